"""The folder of a suite's results: `bench.json`, one folder per task with its run, `report.json` and `report.html`.

    OUT/bench.json                                the settings that every row shares
    OUT/own_kernels-reference/level1/softmax/     as `evolve` writes it: journal.jsonl, best.py, result.json
                                     row.json     what the report says of it; a task that has one is not run again
    OUT/report.json  OUT/report.html

Nothing in it names a path or a device to be used, so it can be carried to another machine and gone on with there.
"""

import fcntl
import os
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_runner.bench.rows import Row
from gpu_runner.bench.suite import SuiteTask
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import Precision, Track

_OPTIONS: Final = {
    "use_initialisers": "initialisers",
    "use_diagnosis": "diagnosis",
    "use_library": "lessons",
}


class NoResults(RuntimeError):
    """The folder cannot be used; the message says why and what to do."""


class Settings(BaseModel):
    """What all rows of a folder share, besides their track and precision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str = Field(description="the name of its folder")
    evaluations: int = Field(default=24, ge=1)
    seconds: float | None = Field(default=None, gt=0, description="wall time per task")
    islands: int = Field(default=3, ge=1, le=16)
    seed: int = Field(default=0, ge=0)
    target: str = "h200"
    model: str | None = None
    method: Method = Method.EVOLUTION
    use_initialisers: bool = True
    use_diagnosis: bool = True
    use_library: bool = True
    library: str | None = Field(
        default=None, description="the name of the folder of entries, where not the project's"
    )

    def run_spec(
        self, task: SuiteTask, track: Track, precision: Precision, device_kind: str
    ) -> RunSpec:
        return RunSpec(
            task=TaskSpec(
                name=task.name[-120:],
                source=task.source,
                track=track,
                precision=precision,
                target=self.target,
            ),
            seed=self.seed,
            islands=self.islands,
            budget=Budget(evaluations=self.evaluations, wall_s=self.seconds),
            device=device_kind,
            model=self.model,
            method=self.method,
            use_initialisers=self.use_initialisers,
            use_diagnosis=self.use_diagnosis,
            use_library=self.use_library,
        )


class Results:
    """A folder that this process alone writes to.

    Raises:
        NoResults: another process does, it holds results with other settings, or it cannot be written.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self.settings = settings
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Open as long as the results are: the lock goes with it.
            self._lock = open(directory / ".lock", "w")  # noqa: SIM115
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._settle()
        except BlockingIOError as error:
            self.close()
            raise NoResults(
                f"another process is writing to {directory}; wait for it or choose another --out"
            ) from error
        except NoResults:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._lock.close()

    def folder(self, task: str, track: Track, precision: Precision) -> Path:
        return self.directory / f"{track}-{precision}" / task

    def save(self, row: Row) -> None:
        path = self.folder(*row.id) / "row.json"
        self.write(path.relative_to(self.directory), row.model_dump_json(indent=1) + "\n")

    def drop_unreadable(self, task: str, track: Track, precision: Precision) -> None:
        """Remove a row that this version cannot read: it is made again from the journal."""
        path = self.folder(task, track, precision) / "row.json"
        if path.exists():
            try:
                _row(path)
            except NoResults:
                path.unlink()

    def forget(self, row: Row) -> None:
        """Let a task that was unusable be run again, since its file was mended."""
        for name in ("row.json", "journal.jsonl"):
            (self.folder(*row.id) / name).unlink(missing_ok=True)

    def write(self, name: str | Path, text: str) -> None:
        """Replace a file as a whole. Raises NoResults where that fails."""
        path = self.directory / name
        fresh = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except OSError as error:
            raise _unwritable(self.directory, error) from error

    def _settle(self) -> None:
        """Keep the settings of a new folder; refuse others than those that it was begun with."""
        if not (self.directory / "bench.json").exists():
            self.write("bench.json", self.settings.model_dump_json(indent=1) + "\n")
            return
        held = settings_in(self.directory)
        # What the suite's folder is called here may differ; each task's source may not.
        for name in Settings.model_fields:
            old, new = getattr(held, name), getattr(self.settings, name)
            if old != new and name != "suite":
                raise NoResults(
                    f"{self.directory} was begun {_with(name, old)}, not {_with(name, new)};"
                    " do the same to go on with it, or choose another --out"
                )


def settings_in(directory: Path) -> Settings:
    """The settings of the results that a folder holds. Raises NoResults where it holds none."""
    try:
        return Settings.model_validate_json((directory / "bench.json").read_bytes())
    except OSError as error:
        raise NoResults(
            f"{directory} holds no results of a bench; give its --out folder"
        ) from error
    except ValidationError as error:
        raise NoResults(
            f"{directory / 'bench.json'} is of another version; choose another --out"
        ) from error


def rows_in(directory: Path) -> list[Row]:
    """All final rows of a folder, by task, track and precision. Raises NoResults for one that cannot be read."""
    return sorted(map(_row, directory.glob("*/**/row.json")), key=lambda row: row.id)


def _row(path: Path) -> Row:
    try:
        return Row.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise NoResults(
            f"{path} cannot be read; `bench` with its suite makes it again from the journal beside it"
        ) from error


def _with(name: str, value: Any) -> str:
    """A setting as the option that makes it."""
    if name in _OPTIONS:
        return f"with --{'' if value else 'no-'}{_OPTIONS[name]}"
    return f"without --{name}" if value is None else f"with --{name} {value}"


def _unwritable(directory: Path, error: OSError) -> NoResults:
    return NoResults(
        f"cannot write to {directory}: {error.strerror}; everything finished so far is kept,"
        " run the same command again once it can, or choose another --out"
    )
