"""One judge that has opened one task, the players it asked for, and the deadline of each question.

The judge asks its owner for everything that it must not do itself:

- `{"need": "player", "nursery": kind, "id": n, "role": ...}` → `{"player": n}` with one descriptor,
  the other end of that player's channel
- `{"drop": n}` → `{"exit": n, "code", "signal", "oom", "output"}`
- `{"need": "quiet"}` → `{"quiet": true}` once nobody else uses the device; until `{"need": "company"}`, the next
  `{"stage": name}` or answer
- `{"stage": name}`: for people who watch, and so that the device is held while it works; nothing is sent back
- to `{"do": "open", ...}` and then `{"do": "lint"}` or `{"do": "evaluate", "source": ...}`:
  `{"report": ...}`, `{"invalid_task": {"reason", "line"}}`, `{"evaluation": ...}`: the answer;
  `{"failure": text}` or `{"device_lost": text}` where the judge itself cannot go on
"""

import contextlib
import time
import unicodedata
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Stage
from gpu_runner.evaluation.children import OUTPUT_CHARACTERS, Child, how_it_ended
from gpu_runner.evaluation.devices import DeviceLock
from gpu_runner.evaluation.errors import (
    ChildCrashed,
    DeviceLost,
    InvalidTask,
    ProtocolError,
    RunnerError,
    TimedOut,
)

PLAYERS_LIMIT: Final = 16
ON_DEVICE: Final = frozenset({Stage.CORRECTNESS, Stage.GENUINENESS, Stage.TIMING})
"""The stages in which a GPU works; in the others an evaluation is busy on the host alone."""

OnStage = Callable[[Stage], None]
M = TypeVar("M", bound=BaseModel)


class Session:
    """Talks to one judge; for one thread at a time.

    Args:
        judge: a child that runs the judge; owned from now on.
        fork_player: makes a player of the kind and for the role that the judge names.
        deadline_s: for each question to the judge.
    """

    def __init__(
        self,
        task: TaskSpec,
        judge: Child,
        fork_player: Callable[[str, str], Child],
        lock: DeviceLock,
        *,
        deadline_s: float,
    ) -> None:
        self.task = task
        self.report = TaskReport(inputs=(), outputs=(), probe=None)
        self._judge = judge
        self._fork_player = fork_player
        self._lock = lock
        self._deadline_s = deadline_s
        self._players: dict[int, Child] = {}
        self._is_linted = False

    def open(self, options: dict[str, Any], on_stage: OnStage | None = None) -> TaskReport:
        """Have the judge run the task's reference. Raises InvalidTask, or RunnerError if we fail."""
        self._lock.to_shared()
        question = {"do": "open", "task": self.task.model_dump(mode="json"), **options}
        answer = self._ask(question, on_stage)
        self.report = _checked(TaskReport, answer.get("report"))
        return self.report

    def lint(self) -> TaskReport:
        """The report with all that makes the task unable to tell right from wrong; asked for once."""
        if not self._is_linted:
            self._lock.to_shared()
            self.report = _checked(TaskReport, self._ask({"do": "lint"}, None).get("report"))
            self._is_linted = True
        return self.report

    def evaluate(self, source: str, on_stage: OnStage | None = None) -> Evaluation:
        """Have the judge evaluate one candidate.

        Raises:
            InvalidTask: no candidate of this task can be judged.
            RunnerError: it is we who fail.
        """
        before_s = self._lock.held_s
        answer = self._ask({"do": "evaluate", "source": source}, on_stage)
        evaluation = _checked(Evaluation, answer.get("evaluation"))
        held_s = self._lock.held_s - before_s
        if not held_s:
            return evaluation
        profile = {**evaluation.profile, "held_s": round(held_s, 3)}
        return evaluation.model_copy(update={"profile": profile})

    def close(self) -> None:
        """End the judge and its players."""
        for child in (self._judge, *self._players.values()):
            child.kill()
            child.channel.close()
        self._players.clear()

    def _ask(self, question: dict[str, Any], on_stage: OnStage | None) -> dict[str, Any]:
        """The judge's answer, its own requests served meanwhile; no player outlives the question
        unless the judge keeps it."""
        deadline = time.monotonic() + self._deadline_s
        try:
            self._judge.channel.send(question)
            while True:
                message, fds = self._judge.channel.receive(max(0.0, deadline - time.monotonic()))
                if fds:
                    raise ProtocolError("the judge sent descriptors, which nobody asked for")
                if not self._serve(message, on_stage):
                    return _answer(message)
        except TimedOut as error:
            raise TimedOut(f"the judge gave no answer in {self._deadline_s:g} s") from error
        except ChildCrashed as error:
            raise ChildCrashed(f"the judge ended: {how_it_ended(self._judge)}") from error
        finally:
            self._lock.release()

    def _serve(self, message: dict[str, Any], on_stage: OnStage | None) -> bool:
        """Do what the judge asks for; False if the message is no request but an answer."""
        if "stage" in message:
            stage = _stage(message["stage"])
            self._hold(stage)
            if on_stage:
                on_stage(stage)
        elif message.get("need") == "player":
            self._give_player(message)
        elif message.get("need") == "quiet":
            self._lock.to_exclusive()
            self._judge.channel.send({"quiet": True})
        elif message.get("need") == "company":
            self._lock.to_shared()
            self._judge.channel.send({"quiet": False})
        elif "drop" in message:
            self._drop_player(message["drop"])
        else:
            return False
        return True

    def _give_player(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if not isinstance(number, int) or number in self._players:
            raise ProtocolError(f"a player cannot be numbered {number!r}")
        if len(self._players) >= PLAYERS_LIMIT:
            raise ProtocolError(f"the judge wants more than {PLAYERS_LIMIT} players at once")
        player = self._fork_player(str(message.get("nursery")), str(message.get("role")))
        self._players[number] = player
        self._judge.channel.send({"player": number}, [player.channel.fileno()])
        # With our copy open, the judge would not notice when the player's end closes ours.
        player.channel.close()

    def _drop_player(self, number: Any) -> None:
        player = self._players.pop(number, None) if isinstance(number, int) else None
        if player is None:
            raise ProtocolError(f"there is no player {number!r} to drop")
        end = player.kill()
        if end.is_lost:
            # Not the candidate's doing, and the judge must not take it for that.
            raise RunnerError(f"a player is lost: {how_it_ended(player)}")
        exit_ = {"exit": number, "code": end.code, "signal": end.signal, "oom": end.oom}
        self._judge.channel.send(
            {**exit_, "reason": end.reason, "output": player.output()[-OUTPUT_CHARACTERS:]}
        )

    def _hold(self, stage: Stage) -> None:
        """The device for the stages that work on it; nobody waits for those that do not."""
        if stage in ON_DEVICE:
            self._lock.to_shared()
        else:
            self._lock.release()


def printable(content: Any) -> Any:
    """The same, with the control characters of its texts escaped.

    Submitted code chooses the words of its exceptions; a terminal would obey them, and a database refuses a null.
    """
    if isinstance(content, str):
        return content if content.isprintable() else "".join(map(_visible, content))
    if isinstance(content, list):
        return [printable(item) for item in content]
    if isinstance(content, dict):
        return {printable(key): printable(item) for key, item in content.items()}
    return content


def _visible(character: str) -> str:
    is_control = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
    return character.encode("unicode_escape").decode() if is_control else character


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    if "failure" in message:
        raise RunnerError(f"the judge failed: {message['failure']}")
    if "device_lost" in message:
        raise DeviceLost(str(message["device_lost"]))
    if "invalid_task" in message:
        raise _invalid_task(message["invalid_task"])
    return message


def _invalid_task(told: Any) -> InvalidTask:
    with contextlib.suppress(TypeError, KeyError):
        line = told.get("line")
        return InvalidTask(printable(str(told["reason"])), line if isinstance(line, int) else None)
    raise ProtocolError(f"the judge refused the task without a reason: {str(told)[:200]}")


def _stage(name: Any) -> Stage:
    try:
        return Stage(name)
    except ValueError as error:
        raise ProtocolError(f"the judge named an unknown stage: {str(name)[:60]!r}") from error


def _checked(kind: type[M], content: Any) -> M:
    try:
        return kind.model_validate(printable(content))
    except ValidationError as error:
        raise ProtocolError(f"the judge's {kind.__name__} does not fit: {error}") from error
