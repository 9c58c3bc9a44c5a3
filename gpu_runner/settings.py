"""What the environment says to a runner, read once, typed, and refused at start-up if wrong."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


class InvalidSetting(ValueError):
    """A variable has a value that means nothing; the message says what to write instead."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How a `work` process evaluates.

    Attributes:
        device: `auto` is the first GPU, or the interpreter where there is none.
        sandbox: `bwrap`, or `none`, which every page then says.
        runs: how many runs it works on at the same time; they share the slots fairly.
        idle_s: how long it waits before it looks for a run again.
        grace_s: how long it may take to put its run down after SIGTERM.
    """

    device: str = "auto"
    slots: int = 1
    runs: int = 16
    sandbox: str = "bwrap"
    max_autotune: bool = False
    idle_s: float = 0.5
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InvalidSetting(f"FOUNDRY_DEVICE={self.device}: write auto, cpu, cuda or cuda:N")
        if self.sandbox not in ("bwrap", "none"):
            raise InvalidSetting(f"FOUNDRY_SANDBOX={self.sandbox}: write bwrap or none")
        if not 1 <= self.slots <= 64:
            raise InvalidSetting(f"FOUNDRY_SLOTS={self.slots}: write a number from 1 to 64")
        if not 1 <= self.runs <= 1000:
            raise InvalidSetting(f"FOUNDRY_RUNS={self.runs}: write a number from 1 to 1000")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        values = os.environ if environment is None else environment
        slots = values.get("FOUNDRY_SLOTS") or "1"
        if not slots.isdecimal():
            raise InvalidSetting(f"FOUNDRY_SLOTS={slots}: write a number from 1 to 64")
        runs = values.get("FOUNDRY_RUNS") or "16"
        if not runs.isdecimal():
            raise InvalidSetting(f"FOUNDRY_RUNS={runs}: write a number from 1 to 1000")
        return cls(
            device=values.get("FOUNDRY_DEVICE") or "auto",
            slots=int(slots),
            runs=int(runs),
            sandbox=values.get("FOUNDRY_SANDBOX") or "bwrap",
            max_autotune=values.get("FOUNDRY_MAX_AUTOTUNE") == "1",
        )
