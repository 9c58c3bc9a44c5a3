"""One request to one endpoint: no redirects, bounded in bytes and in time, every way to fail named."""

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx2
import openai

from gpu_runner.proposals.models.failures import Failure, ModelFailure, Reply
from gpu_runner.proposals.models.profiles import Profile
from gpu_runner.proposals.models.replies import read_completion, read_stream

# A line for every request otherwise.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class Client:
    """Talks to one profile's endpoint; safe to use from several threads. The key is neither logged nor shown."""

    def __init__(self, profile: Profile, key: str | None) -> None:
        self._profile = profile
        self._key = key
        transport = _BoundedTransport(
            profile.max_reply_bytes, profile.timeout_s, profile.requests_at_once
        )
        timeout = httpx2.Timeout(profile.timeout_s, connect=profile.connect_timeout_s)
        self._openai = openai.OpenAI(
            api_key=key or "none",
            base_url=profile.base_url,
            timeout=timeout,
            max_retries=profile.retries,
            http_client=httpx2.Client(
                transport=transport,
                timeout=timeout,
                follow_redirects=False,
                trust_env=False,
                headers={"Accept-Encoding": "identity"},
            ),
        )

    def complete(self, body: Mapping[str, Any]) -> Reply:
        """Ask once (the SDK repeats what may be repeated, later each time).

        Args:
            body: of the request, as `orders.body_for` makes it.

        Raises:
            ModelFailure: with one of the five kinds.
        """
        max_tokens = int(body["max_tokens"])
        try:
            if self._profile.stream:
                return self._streamed(body, max_tokens)
            answer = self._openai.chat.completions.with_raw_response.create(**body)
            return read_completion(json.loads(answer.http_response.content), max_tokens, self._safe)
        except openai.APIStatusError as error:
            raise self._status_failure(error) from error
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            raise ModelFailure(Failure.UNREACHABLE, self._safe(_cause(error))) from error
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            detail = f"the reply is no chat completion: {self._safe(_cause(error))}"
            raise ModelFailure(Failure.MALFORMED, detail) from error

    def _streamed(self, body: Mapping[str, Any], max_tokens: int) -> Reply:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        with self._openai.chat.completions.with_streaming_response.create(
            **body, **options
        ) as answer:
            return read_stream(self._chunks(answer.iter_lines()), max_tokens, self._safe)

    def _chunks(self, lines: Iterable[str]) -> Iterator[Any]:
        """The events of a stream. Raises ModelFailure where it breaks off."""
        try:
            for line in lines:
                content = line.removeprefix("data:").strip()
                if content == "[DONE]":
                    return
                if line.startswith("data:"):
                    chunk = json.loads(content)
                    if isinstance(chunk, dict) and "error" in chunk:
                        detail = f"the stream broke off: {self._safe(str(chunk['error']))}"
                        raise ModelFailure(Failure.UNREACHABLE, detail)
                    yield chunk
        except (httpx2.HTTPError, openai.APIConnectionError) as error:
            raise ModelFailure(Failure.UNREACHABLE, self._safe(_cause(error))) from error
        except (ValueError, RecursionError) as error:
            raise ModelFailure(Failure.MALFORMED, "an event of the stream is no JSON") from error

    def close(self) -> None:
        self._openai.close()

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


class _BoundedTransport(httpx2.HTTPTransport):
    """Counts what arrives, error bodies included, and looks at the clock, since a timeout of reads starts anew with each."""

    def __init__(self, limit_bytes: int, limit_s: float, connections: int) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=connections))
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
