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
from typing import Any, Final

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from django.db.models import F

from evolution_app.models import Run, RunEvent
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


_open = threading.local()


@contextmanager
def numbered_by(run: Run) -> Iterator[None]:
    """Events of this run within take their numbers from the instance: one write of `last_seq` and one hint for all.

    The caller has locked the row and saves `last_seq` afterwards.
    """
    before = run.last_seq
    _open.run = run
    try:
        yield
    finally:
        _open.run = None
    if run.last_seq > before:
        seq = run.last_seq
        transaction.on_commit(lambda: send_hint(run.pk, seq), robust=True)


def opened(run_id: int) -> Run | None:
    """The run whose events are being numbered in this thread, if it is this one."""
    run: Run | None = getattr(_open, "run", None)
    return run if run is not None and run.pk == run_id else None


def emit(run_id: int, kind: str, payload: dict[str, Any]) -> RunEvent:
    """Append an event; must run inside the transaction of the change.

    Raising the run's counter locks its row, so that `seq` follows the order of commits on every database.
    """
    assert transaction.get_connection().in_atomic_block, (
        "emit belongs to the transaction of the change"
    )
    if (run := opened(run_id)) is not None:
        run.last_seq += 1
        return RunEvent.objects.create(run=run, seq=run.last_seq, kind=kind, payload=payload)
    Run.objects.filter(pk=run_id).update(last_seq=F("last_seq") + 1)
    seq = Run.objects.values_list("last_seq", flat=True).get(pk=run_id)
    event = RunEvent.objects.create(run_id=run_id, seq=seq, kind=kind, payload=payload)
    transaction.on_commit(lambda: send_hint(run_id, seq), robust=True)
    return event


def send_hint(run_id: int, seq: int) -> None:
    """Tell followers that the run has events up to `seq`."""
    layer = get_channel_layer()
    assert layer is not None, "the settings name a channel layer"
    message = {"type": "run.hint", "run": run_id, "seq": seq}
    if isinstance(layer, TailLayer):
        layer.group_send_now(run_group(run_id), message)
    else:
        async_to_sync(layer.group_send)(run_group(run_id), message)
