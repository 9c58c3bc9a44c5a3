"""The stream of a run: one append-only row per thing that happened, and a hint to whoever follows.

`emit` belongs inside the transaction of the change it tells of. The hint is sent after the commit and may be lost; the row is
the truth. Kinds and payloads (numbers are of candidates and islands within the run; absent means unknown):

- `run.state`: state, wanted, reason
- `run.best`: candidate, ratio, low, high, compile, fidelity
- `run.budget`: spent {evaluations, tokens, money_usd, gpu_s, wall_s}, budget
- `island`: number, strategy, description
- `migration`: candidate, home, to (islands)
- `candidate.created`: candidate, island, generation, parents, origin, move, state
- `candidate.stage`: candidate, island, stage
- `candidate.requeued`: candidate, island, reason
- `candidate.done`: candidate, island, generation, state, verdict, kind, fidelity, ratio, low, high, compile, lead, evaluations,
  seconds (since the run started), money_usd: a point of the curve
- `diagnosis`: candidate, island, lead {kind, severity, title, suggestion, line}, findings (how many)
- `model_call`: candidate, island, model, role, outcome, tokens_in, tokens_out, money_usd, seconds
- `steering`: author, island, what (kernel or hint)
- `task.report`: warnings (how many): the task was inspected
- `published`: candidate, ratio, low, high: the best was timed once more
- `log`: text
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from django.db.models import F

from evolution_app import statements
from evolution_app.models import Run, RunEvent
from evolution_app.models.base import AppendOnly
from foundry_web.layers import TailLayer

RUN_STATE: Final = "run.state"
RUN_BEST: Final = "run.best"
RUN_BUDGET: Final = "run.budget"
ISLAND: Final = "island"
MIGRATION: Final = "migration"
CREATED: Final = "candidate.created"
STAGE: Final = "candidate.stage"
REQUEUED: Final = "candidate.requeued"
DONE: Final = "candidate.done"
DIAGNOSIS: Final = "diagnosis"
MODEL_CALL: Final = "model_call"
STEERING: Final = "steering"
TASK_REPORT: Final = "task.report"
PUBLISHED: Final = "published"
LOG: Final = "log"


def run_group(run_id: int) -> str:
    return f"run.{run_id}"


@dataclass
class Opened:
    """A run inside a transaction that is changing it: its events are numbered, and histories written, all at once."""

    run: Run
    rows: list[AppendOnly] = field(default_factory=list)

    def flush(self) -> None:
        """Write what waits, table by table."""
        tables: dict[type[AppendOnly], list[AppendOnly]] = {}
        for row in self.rows:
            tables.setdefault(type(row), []).append(row)
        self.rows.clear()
        for rows in tables.values():
            statements.insert(rows)


class _Here(threading.local):
    opened: Opened | None = None


_here = _Here()


@contextmanager
def numbered_by(run: Run) -> Iterator[None]:
    """Events of this run within take their numbers from the instance: one write of `last_seq` and one hint for all.

    The caller has locked the row and saves `last_seq` afterwards.
    """
    before = run.last_seq
    _here.opened = Opened(run)
    try:
        yield
        _here.opened.flush()
    finally:
        _here.opened = None
    if run.last_seq > before:
        _hint_after_commit(run.pk, run.last_seq)


def opened(run_id: int) -> Opened | None:
    """The run whose events are being numbered in this thread, if it is this one."""
    here = _here.opened
    return here if here is not None and here.run.pk == run_id else None


def append(row: AppendOnly) -> None:
    """Write a row of a history with the events of the run that is open in this thread."""
    assert _here.opened is not None, "append belongs to the transaction of the change"
    _here.opened.rows.append(row)


def emit(run_id: int, kind: str, payload: dict[str, Any]) -> RunEvent:
    """Append an event; must run inside the transaction of the change.

    Raising the run's counter locks its row, so that `seq` follows the order of commits on every database.
    """
    assert transaction.get_connection().in_atomic_block, (
        "emit belongs to the transaction of the change"
    )
    if (here := opened(run_id)) is not None:
        here.run.last_seq += 1
        event = RunEvent(run=here.run, seq=here.run.last_seq, kind=kind, payload=payload)
        here.rows.append(event)
        return event
    Run.objects.filter(pk=run_id).update(last_seq=F("last_seq") + 1)
    seq = Run.objects.values_list("last_seq", flat=True).get(pk=run_id)
    event = RunEvent.objects.create(run_id=run_id, seq=seq, kind=kind, payload=payload)
    _hint_after_commit(run_id, seq)
    return event


def _hint_after_commit(run_id: int, seq: int) -> None:
    layer = get_channel_layer()
    if isinstance(layer, TailLayer):
        # A row of the same transaction is seen after it, and needs no commit of its own.
        layer.group_send_now(run_group(run_id), _hint(run_id, seq))
    else:
        transaction.on_commit(lambda: send_hint(run_id, seq), robust=True)


def send_hint(run_id: int, seq: int) -> None:
    """Tell followers that the run has events up to `seq`."""
    layer = get_channel_layer()
    assert layer is not None, "the settings name a channel layer"
    async_to_sync(layer.group_send)(run_group(run_id), _hint(run_id, seq))


def _hint(run_id: int, seq: int) -> dict[str, Any]:
    return {"type": "run.hint", "run": run_id, "seq": seq}
