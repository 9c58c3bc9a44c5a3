"""How an evaluation can fail without being a verdict."""


class RunnerError(RuntimeError):
    """Ours, never the candidate's: it is queued again and its fitness stays untouched."""


class ChildCrashed(RunnerError):
    """The process at the other end of a channel is gone."""


class TimedOut(RunnerError, TimeoutError):
    """No complete message came, or could be handed over, before the deadline."""


class ProtocolError(RunnerError):
    """A message is unreadable, too large, or not one that is expected here."""


class DeviceLost(RunnerError):
    """The device of a slot does not exist or stopped answering."""


class SandboxMissing(RunnerError):
    """Children cannot be isolated on this machine; the message says what to install or change."""


class InvalidTask(ValueError):
    """The submitted task is unusable, which is for its author to mend.

    Args:
        reason: one or two sentences for the author.
        line: line of the task's source, from 1, where one is to blame.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line


class ChildFailed(RuntimeError):
    """A function called in a sandboxed child did not return; its error, crash or deadline.

    Args:
        detail: what happened, in one line where the function raised.
        trace: the end of the traceback, for a log.
    """

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.trace = trace
