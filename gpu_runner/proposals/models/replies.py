"""What an endpoint sent, read as data: every field is looked at before it is believed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpu_runner.proposals.models.failures import Failure, ModelFailure, Reply

Safe = Callable[[str], str]
"""Makes a text fit to be kept: keys, which endpoints echo, taken out, and bounded."""


def read_completion(raw: Any, max_tokens: int, safe: Safe) -> Reply:
    """A chat completion as the wire carries it, from an endpoint or from a line of a batch file.

    Raises:
        ModelFailure: it is none, or holds nothing that can be used.
    """
    choice = _first(_field(raw, "choices"))
    message = _field(choice, "message")
    if not isinstance(message, Mapping):
        raise ModelFailure(Failure.MALFORMED, "the reply holds no choice with a message")
    return _checked(
        text=message.get("content"),
        refusal=message.get("refusal"),
        finish=_field(choice, "finish_reason"),
        usage=_field(raw, "usage"),
        max_tokens=max_tokens,
        safe=safe,
    )


def read_stream(chunks: Iterable[Any], max_tokens: int, safe: Safe) -> Reply:
    """A completion that was sent piece by piece. What came before a stream broke off is kept with the failure."""
    pieces: list[str] = []
    refusal: list[str] = []
    finish, usage = None, None
    try:
        for chunk in chunks:
            usage = _field(chunk, "usage") or usage
            choice = _first(_field(chunk, "choices"))
            delta = _field(choice, "delta")
            for name, into in (("content", pieces), ("refusal", refusal)):
                piece = _field(delta, name)
                if isinstance(piece, str):
                    into.append(piece)
            finish = _field(choice, "finish_reason") or finish
    except ModelFailure as failure:
        text = safe("".join(pieces))
        # What was written is paid for, whether or not the end arrived.
        got = Reply(text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
        raise ModelFailure(failure.failure, failure.detail, got if text else None) from failure
    if finish is None:
        raise ModelFailure(
            Failure.TRUNCATED, "the stream ended without an end", Reply(safe("".join(pieces)))
        )
    return _checked(
        text="".join(pieces),
        refusal="".join(refusal) or None,
        finish=finish,
        usage=usage,
        max_tokens=max_tokens,
        safe=safe,
    )


def _checked(
    *, text: Any, refusal: Any, finish: Any, usage: Any, max_tokens: int, safe: Safe
) -> Reply:
    reply = Reply(
        whole_characters(safe(text)) if isinstance(text, str) else "",
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
    )
    if finish == "length":
        detail = f"the reply was cut off at {max_tokens:,} tokens"
        raise ModelFailure(Failure.TRUNCATED, detail, reply)
    if finish == "content_filter" or isinstance(refusal, str):
        raise ModelFailure(Failure.REFUSED, safe(refusal or "filtered"), reply)
    if not reply.text.strip():
        raise ModelFailure(Failure.EMPTY, "the reply has no text", reply)
    return reply


def whole_characters(text: str) -> str:
    """JSON may hold halves of characters, which no file and no database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _count(usage: Any, name: str) -> int | None:
    value = _field(usage, name)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value < 10**9 else None
