"""A run's ledger in a folder: `journal.jsonl`, append only, from which everything else can be rebuilt.

Each line is one JSON object with its `record`. A line is on the disk when the method that wrote it returns, so a kill loses at
most the line that was being written; a torn last line is cut off when the journal is opened again. `best.py` and `result.json`
are derived from it and replaced as a whole.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from gpu_runner import inbox
from gpu_runner.core.best_file import best_file
from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.task import Budget, RunSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage, State

FORMAT: Final = 1

SWITCHES: Final = {
    "use_initialisers": "initialisers",
    "use_diagnosis": "diagnosis",
    "use_library": "lessons",
}
"""Options of `evolve` by the fields that they set."""

NOT_UNDERSTOOD: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What reading a record raises that is not one of this version's; a ValidationError is a ValueError."""


class JournalError(RuntimeError):
    """The folder cannot be used for this run; the message says why and what to do."""


class Journal:
    """Implements `core.ledger.Ledger` on files.

    Args:
        directory: created if absent; one run each.
        spec: the run; its budget and model may differ from those of the run that the folder holds, nothing else.

    Raises:
        JournalError: the folder belongs to another task, another process writes to it, or it cannot be written.
    """

    def __init__(self, directory: Path, spec: RunSpec) -> None:
        self.directory = directory
        self._spec = spec
        self._candidates: dict[int, Candidate] = {}
        self._notes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._spent: dict[str, float] = {}
        self._wanted = RunState.RUNNING
        self._held: list[dict[str, Any]] | None = None
        self._file = self._open()
        try:
            self._load()
        except JournalError:
            self.close()
            raise

    @classmethod
    def reopened(cls, directory: Path) -> Self:
        """The journal of the run that a folder holds. Raises JournalError where it holds none."""
        with understood(directory):
            first, *_ = read_records(directory / "journal.jsonl")
            spec = RunSpec.model_validate(first["spec"])
        return cls(directory, spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the lock; nothing is left to be written."""
        self._file.close()

    # The contract of a ledger.

    @property
    def spec(self) -> RunSpec:
        return self._spec

    def budget(self) -> Budget:
        return self._spec.budget

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """One line for all records; what is read meanwhile has them already."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            records, self._held = self._held, None
        if records:
            self._write("together", {"records": records})

    def report(self, report: TaskReport) -> None:
        payload = report.model_dump(mode="json")
        if self._notes["report"][-1:] != [payload]:
            self.note("report", payload)

    def candidates(self) -> list[Candidate]:
        return [self._candidates[number] for number in sorted(self._candidates)]

    def notes(self, kind: str) -> list[dict[str, Any]]:
        return list(self._notes[kind])

    def add(self, proposal: Proposal) -> Candidate:
        candidate = Candidate(**proposal.model_dump(), id=max(self._candidates, default=0) + 1)
        self._write("candidate", candidate.model_dump(mode="json"))
        self._candidates[candidate.id] = candidate
        return candidate

    def stage(self, candidate_id: int, stage: Stage) -> None:
        self._change(candidate_id, State.EVALUATING, stage=stage.value)

    def requeue(self, candidate_id: int, reason: str) -> None:
        self._change(candidate_id, State.QUEUED, reason=reason)

    def abandon(self, candidate_id: int, reason: str) -> None:
        self._change(candidate_id, State.ABANDONED, reason=reason)

    def finish(self, candidate_id: int, evaluation: Evaluation) -> None:
        payload = evaluation.model_dump(mode="json")
        self._write("finished", {"candidate_id": candidate_id, "evaluation": payload})
        self._finished(candidate_id, evaluation)

    def note(self, kind: str, payload: dict[str, Any]) -> None:
        self._write("note", {"kind": kind, "payload": payload})
        self._notes[kind].append(payload)
        if kind == "best":
            self._write_best(self._candidates[payload["candidate_id"]])
        elif kind == "result":
            self._write_result(payload)

    def model_call(self, call: ModelCall) -> None:
        self._write("model_call", call.model_dump(mode="json"))

    def has_injected(self) -> bool:
        return inbox.holds_files(self.directory)

    def injected(self) -> list[Proposal]:
        """What lies in the inbox; a file is put away once the ledger has its candidate."""
        taken = {note["file"] for note in self._notes["submission"]}
        proposals = []
        for name, proposal in inbox.waiting(self.directory, taken):
            self.note("submission", {"file": name, "origin": proposal.origin})
            proposals.append(proposal)
        return proposals

    def hints(self, island: int) -> list[str]:
        """People give hints through the pages only."""
        return []

    def wanted(self) -> RunState:
        return self._wanted

    def want(self, state: RunState) -> None:
        """What the person at the terminal wants, for example STOPPING after an interrupt."""
        self._wanted = state

    def set_state(self, state: RunState, reason: str = "") -> None:
        self._write("state", {"state": state.value, "reason": reason})

    def spend(self, **amounts: float) -> None:
        self._write("spend", amounts)
        self._add_spent(amounts)

    def spent(self) -> dict[str, float]:
        return dict(self._spent)

    # Files.

    @property
    def _path(self) -> Path:
        return self.directory / "journal.jsonl"

    def _open(self) -> BinaryIO:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Open as long as the journal is: the lock goes with it.
            file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise JournalError(
                f"cannot write to {self.directory}: {error.strerror}; choose another --out"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise JournalError(
                f"another process is writing to {self._path}; wait for it or choose another --out"
            ) from error
        return file

    def _load(self) -> None:
        self._file.seek(0)
        good = 0
        lines = self._file.read().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            record = _parsed(line)
            if record is None:
                if number < len(lines) or not _is_torn(line):
                    raise JournalError(f"line {number} of {self._path} is damaged; use a new --out")
                break
            try:
                self._apply(record, number)
            except NOT_UNDERSTOOD as error:
                raise JournalError(
                    f"line {number} of {self._path} cannot be understood ({type(error).__name__});"
                    " it is from another version; use a new --out"
                ) from error
            good += len(line)
        os.ftruncate(self._file.fileno(), good)
        if good == 0:
            spec = self._spec.model_dump(mode="json")
            self._write("run", {"format": FORMAT, "spec": spec})
        self._restore_files()

    def _apply(self, record: dict[str, Any], number: int) -> None:
        kind = record["record"]
        if kind == "together":
            for inner in record["records"]:
                self._apply(inner, number)
            return
        if (number == 1) != (kind == "run"):
            raise JournalError(f"{self._path} is no journal of a run; use a new --out")
        if kind == "run":
            self._check_same(record)
        elif kind == "candidate":
            candidate = Candidate.model_validate(_without(record, "record"))
            self._candidates[candidate.id] = candidate
        elif kind == "changed":
            self._set(record["candidate_id"], State(record["state"]))
        elif kind == "finished":
            evaluation = Evaluation.model_validate(record["evaluation"])
            self._finished(record["candidate_id"], evaluation)
        elif kind == "note":
            self._notes[record["kind"]].append(record["payload"])
        elif kind == "spend":
            self._add_spent(_without(record, "record"))

    def _check_same(self, record: dict[str, Any]) -> None:
        if record["format"] != FORMAT:
            raise JournalError(
                f"{self._path} has format {record['format']}, this version reads {FORMAT}; use a new --out"
            )
        held = RunSpec.model_validate(record["spec"])
        if held.task.key != self._spec.task.key:
            raise JournalError(
                f"{self.directory} holds a run of another task ({held.task.name}); choose another --out"
            )
        for name in ("seed", "islands", "device", "method"):
            old, new = getattr(held, name), getattr(self._spec, name)
            if old != new:
                raise JournalError(
                    f"{self.directory} holds a run with {name} {old}, not {new}; "
                    f"use --{name} {old} to go on with it, or choose another --out"
                )
        for name, option in SWITCHES.items():
            if getattr(held, name) != getattr(self._spec, name):
                was = option if getattr(held, name) else f"no-{option}"
                raise JournalError(
                    f"{self.directory} holds a run that was started with --{was}; "
                    f"use --{was} to go on with it, or choose another --out"
                )

    def _change(self, candidate_id: int, state: State, **details: str) -> None:
        # The stage alone is no loss: a later line carries it to the disk.
        self._write(
            "changed",
            {"candidate_id": candidate_id, "state": state.value, **details},
            is_durable="stage" not in details,
        )
        self._set(candidate_id, state)

    def _set(self, candidate_id: int, state: State) -> None:
        candidate = self._candidates[candidate_id]
        self._candidates[candidate_id] = candidate.model_copy(update={"state": state})

    def _finished(self, candidate_id: int, evaluation: Evaluation) -> None:
        update = {"state": evaluation.state, "evaluation": evaluation}
        self._candidates[candidate_id] = self._candidates[candidate_id].model_copy(update=update)

    def _add_spent(self, amounts: dict[str, float]) -> None:
        for name, amount in amounts.items():
            self._spent[name] = self._spent.get(name, 0.0) + amount

    def _write(self, record: str, content: dict[str, Any], *, is_durable: bool = True) -> None:
        if self._held is not None:
            self._held.append({"record": record, **content})
            return
        line = json.dumps({"record": record, **_finite(content)}, allow_nan=False) + "\n"
        pending = memoryview(line.encode())
        try:
            while pending:
                pending = pending[self._file.write(pending) :]
            if is_durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _restore_files(self) -> None:
        """A kill between the journal's line and the file that follows from it leaves the file behind."""
        results = self._notes["result"]
        if results:
            self._write_result(results[-1])
        elif self._notes["best"]:
            self._write_best(self._candidates[self._notes["best"][-1]["candidate_id"]])

    def _write_best(self, candidate: Candidate) -> None:
        self._replace("best.py", best_file(self._spec.task, candidate))

    def _write_result(self, payload: dict[str, Any]) -> None:
        best = payload["best"]
        if best is not None:
            self._write_best(self._as_published(best))
        self._replace("result.json", json.dumps(_finite(payload), indent=2) + "\n")

    def _as_published(self, best: dict[str, Any]) -> Candidate:
        """The best candidate with the evaluation that is published, which is taken after the one that won."""
        candidate = self._candidates[best["candidate_id"]]
        names = Evaluation.model_fields.keys()
        evaluation = Evaluation.model_validate({k: v for k, v in best.items() if k in names})
        return candidate.model_copy(update={"evaluation": evaluation})

    def _replace(self, name: str, text: str) -> None:
        path, fresh = self.directory / name, self.directory / f".{name}.new"
        try:
            with open(fresh, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except OSError as error:
            raise _unwritable(path, error) from error


@dataclass
class History:
    """What a journal tells of its run so far, without the right to write to it."""

    spec: RunSpec
    candidates: dict[int, Candidate] = field(default_factory=dict)
    calls: list[ModelCall] = field(default_factory=list)


def history(directory: Path) -> History:
    """Read a run that may be in progress. Raises JournalError where the folder holds none."""
    with understood(directory):
        first, *records = read_records(directory / "journal.jsonl")
        told = History(RunSpec.model_validate(first["spec"]))
        for record in records:
            content = _without(record, "record")
            if record["record"] == "candidate":
                candidate = Candidate.model_validate(content)
                told.candidates[candidate.id] = candidate
            elif record["record"] == "finished":
                evaluation = Evaluation.model_validate(content["evaluation"])
                update = {"state": evaluation.state, "evaluation": evaluation}
                old = told.candidates[content["candidate_id"]]
                told.candidates[old.id] = old.model_copy(update=update)
            elif record["record"] == "model_call":
                told.calls.append(ModelCall.model_validate(content))
    return told


@contextlib.contextmanager
def understood(directory: Path) -> Iterator[None]:
    """Reading what a folder holds. Raises JournalError where that is no run, or one that cannot be understood."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"{directory} holds no run; give the --out folder of one") from error
    except NOT_UNDERSTOOD as error:
        raise JournalError(
            f"{directory} holds no run that this version understands ({type(error).__name__}); "
            "give the --out folder of one"
        ) from error


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal in their order, whoever writes to it meanwhile; a torn last line is left out."""
    for line in path.read_bytes().splitlines(keepends=True):
        record = _parsed(line)
        if record is None:
            return
        yield from record["records"] if record["record"] == "together" else (record,)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object on a line; None where the line is torn or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "record" in record else None


def _is_torn(line: bytes) -> bool:
    """Whether a line without an end may be the beginning of one of ours."""
    start = b'{"record": "'
    return line.startswith(start) or start.startswith(line)


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity; a child's evidence may hold them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _unwritable(path: Path, error: OSError) -> JournalError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return JournalError(
            f"the disk is full: {path} could not be written; free some space and run the same command"
            " again, everything finished so far is kept"
        )
    return JournalError(f"cannot write {path}: {error.strerror}; run the same command again later")
