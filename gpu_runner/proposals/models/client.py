"""One request to one endpoint: no redirects, bounded in bytes and in time, every way to fail named."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import openai

from gpu_runner.proposals.models.failures import Failure, Message, ModelFailure, Reply
from gpu_runner.proposals.models.profiles import Profile


class Client:
    """Talks to one profile's endpoint; safe to use from several threads. The key is neither logged nor shown."""

    def __init__(self, profile: Profile, key: str | None) -> None:
        self._profile = profile
        self._key = key
        transport = _BoundedTransport(profile.max_reply_bytes, profile.timeout_s)
        self._openai = openai.OpenAI(
            api_key=key or "none",
            base_url=profile.base_url,
            timeout=profile.timeout_s,
            max_retries=profile.retries,
            http_client=httpx2.Client(
                transport=transport,
                follow_redirects=False,
                trust_env=False,
                headers={"Accept-Encoding": "identity"},
            ),
        )

    def complete(self, messages: Sequence[Message], temperature: float) -> Reply:
        """Ask once (the SDK repeats what may be repeated).

        Raises:
            ModelFailure: with one of the five kinds.
        """
        chosen = self._profile.temperature
        body: Any = list(messages)
        try:
            answer = self._openai.chat.completions.create(
                model=self._profile.model,
                messages=body,
                temperature=temperature if chosen is None else chosen,
                max_tokens=self._profile.max_tokens,
            )
        except openai.APIStatusError as error:
            raise self._status_failure(error) from error
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            raise ModelFailure(Failure.UNREACHABLE, self._safe(_cause(error))) from error
        except (openai.OpenAIError, ValueError) as error:
            detail = f"the reply is no chat completion: {self._safe(_cause(error))}"
            raise ModelFailure(Failure.MALFORMED, detail) from error
        return self._read(answer)

    def close(self) -> None:
        self._openai.close()

    def _read(self, answer: Any) -> Reply:
        """The SDK does not check what it parses: every field is looked at before it is believed."""
        try:
            choice = answer.choices[0]
            text, refusal = choice.message.content, getattr(choice.message, "refusal", None)
        except (AttributeError, IndexError, TypeError) as error:
            detail = "the reply holds no choice with a message"
            raise ModelFailure(Failure.MALFORMED, detail) from error
        reply = Reply(
            self._safe(text) if isinstance(text, str) else "",
            _count(answer, "prompt_tokens"),
            _count(answer, "completion_tokens"),
        )
        if choice.finish_reason == "length":
            detail = f"the reply was cut off at {self._profile.max_tokens:,} tokens"
            raise ModelFailure(Failure.TRUNCATED, detail, reply)
        if choice.finish_reason == "content_filter" or isinstance(refusal, str):
            raise ModelFailure(Failure.REFUSED, self._safe(refusal or "filtered"), reply)
        if not reply.text.strip():
            raise ModelFailure(Failure.EMPTY, "the reply has no text", reply)
        return reply

    def _status_failure(self, error: openai.APIStatusError) -> ModelFailure:
        status = error.status_code
        detail = self._safe(f"the endpoint answered {status}: {error.message}")
        if 300 <= status < 400:
            detail = f"the endpoint answered {status}, a redirect, which is not followed"
            return ModelFailure(Failure.UNREACHABLE, detail)
        is_down = status >= 500 or status in (408, 429)
        return ModelFailure(Failure.UNREACHABLE if is_down else Failure.REFUSED, detail)

    def _safe(self, text: str) -> str:
        """Endpoints echo keys in their error messages."""
        shown = text.replace(self._key, "[key]") if self._key else text
        return shown[: self._profile.max_reply_bytes]


def _cause(error: BaseException) -> str:
    inner = error.__cause__
    return f"{error}" if inner is None else f"{error} ({inner or type(inner).__name__})"


def _count(answer: Any, name: str) -> int | None:
    value = getattr(getattr(answer, "usage", None), name, None)
    return value if isinstance(value, int) and 0 <= value < 10**9 else None


class _BoundedTransport(httpx2.HTTPTransport):
    """Counts what arrives, error bodies included, and looks at the clock, since a timeout of reads starts anew with each."""

    def __init__(self, limit_bytes: int, limit_s: float) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._limit_s = limit_s

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        deadline = time.monotonic() + self._limit_s
        response = super().handle_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few compressed bytes may stand for gigabytes.
            response.close()
            raise httpx2.ReadError("the reply is compressed though that was not asked for")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _BoundedStream(response.stream, self._limit_bytes, deadline)
        return response


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, limit_bytes: int, deadline: float) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        left = self._limit_bytes
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the reply is larger than {self._limit_bytes:,} bytes")
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the reply was not complete in time")
            yield chunk

    def close(self) -> None:
        self._stream.close()
