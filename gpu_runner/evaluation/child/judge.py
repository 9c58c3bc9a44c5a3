"""The judge of one task: opens it, then evaluates candidates as the pool asks. It runs no submitted code."""

import os
import traceback
from typing import Any

import torch
from pydantic import ValidationError

from gpu_runner.core.source import without_mark
from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child.evaluating import evaluate
from gpu_runner.evaluation.child.links import PlayerLost, PoolLink
from gpu_runner.evaluation.child.open_task import OpenTask
from gpu_runner.evaluation.errors import ChildCrashed, InvalidTask, RunnerError

_FULL = (
    "no memory is left for this task's tensors, which every player gets a copy of and which are compared in float64. Make its "
    "sizes smaller, use fewer slots, or a device that nobody else uses"
)


def main(channel: Channel, fds: list[int]) -> None:
    """Answer the pool's questions until it closes the channel."""
    for fd in fds:
        os.close(fd)
    Judge(channel).serve()


class Judge:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pool = PoolLink(channel)
        self._task: OpenTask | None = None

    def serve(self) -> None:
        while True:
            try:
                message, _ = self._channel.receive(1e6)
            except ChildCrashed:
                return
            self._channel.send(self._answer(message))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            if message.get("do") == "open":
                self._task = OpenTask(self._pool, message)
                return {"report": self._task.report.model_dump(mode="json")}
            if self._task is None:
                return {"failure": "no task is open"}
            if message.get("do") == "lint":
                return {"report": self._task.linted().model_dump(mode="json")}
            evaluation = evaluate(self._task, without_mark(str(message["source"])))
            return {"evaluation": evaluation.model_dump(mode="json")}
        except InvalidTask as error:
            return {"invalid_task": {"reason": error.reason, "line": error.line}}
        except (MemoryError, torch.OutOfMemoryError) as error:
            return {"failure": f"{_FULL} ({str(error)[:200]})"}
        except (RunnerError, PlayerLost, ValidationError, RuntimeError) as error:
            trace = "".join(traceback.format_exception(error))
            return {"failure": f"{type(error).__name__}: {error}\n{trace[-2000:]}"}
