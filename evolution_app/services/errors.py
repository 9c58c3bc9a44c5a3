"""How a service says no: to whom, why, and what to do."""

from collections.abc import Sequence

from django.core.exceptions import PermissionDenied
from pydantic import ValidationError

from gpu_runner.core.source import Problem


class NotAllowed(PermissionDenied):
    """The person's role or relation to the object does not permit this."""


class Refused(ValueError):
    """The request cannot be carried out; the message says why and what to do.

    `problems` name lines where a source is the reason.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Stale(Refused):
    """The object has changed since the person looked at it: show them what changed and ask again."""


def readable(error: ValidationError) -> str:
    """A pydantic error in one line for people."""
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)
