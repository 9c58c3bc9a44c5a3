"""Events as they travel: JSON frames, with the HTML of the partial of their kind where the pages have one.

`templates/events/<kind>.html` receives `event`, `run` and `candidate` (None where the event is about none) and
renders what htmx swaps out of band. A kind without a template travels as data alone.
"""

from functools import cache
from typing import Any, Final

from django.template.exceptions import TemplateDoesNotExist
from django.template.loader import get_template

from evolution_app import events
from evolution_app.models import Candidate, Run, RunEvent

BATCH: Final = 200
TOO_FAR_BEHIND: Final = 2000
"""Events that a page would have to swallow before it is asked to load itself again."""


def frames_after(
    run_id: int, seq: int, *, with_html: bool = True, limit: int = BATCH
) -> list[dict[str, Any]]:
    """At most `limit` frames that follow `seq`, in order; two queries and those of the templates.

    HTML that a later frame of the same batch replaces is left out: the stages of a candidate that is done by now.
    """
    batch = list(RunEvent.objects.after(run_id, seq)[:limit])
    if not batch or not with_html:
        return [event.as_frame() for event in batch]
    run = Run.objects.select_related("task", "best", "runner").get(pk=run_id)
    numbers = {event.payload["candidate"] for event in batch if event.payload.get("candidate")}
    rows = Candidate.objects.filter(run=run, number__in=numbers).for_lists()
    candidates = {candidate.number: candidate for candidate in rows}
    replaced = _replaced(batch)
    frames = []
    for event in batch:
        frame = event.as_frame()
        template = _template(event.kind)
        if template is not None and event.seq not in replaced:
            candidate = candidates.get(event.payload.get("candidate", 0))
            frame["content"] = template.render({"event": event, "run": run, "candidate": candidate})
        frames.append(frame)
    return frames


def is_too_far_behind(run_id: int, seq: int) -> bool:
    newest = Run.objects.values_list("last_seq", flat=True).get(pk=run_id)
    return newest - seq > TOO_FAR_BEHIND


_REPLACEABLE = frozenset({events.STAGE, events.REQUEUED, events.RUN_STATE, events.RUN_BUDGET})


def _replaced(batch: list[RunEvent]) -> set[int]:
    """Seqs of events whose HTML a later one of the batch draws again."""
    newest: dict[Any, RunEvent] = {}
    replaced = set()
    for event in batch:
        drawn = event.payload.get("candidate") or event.kind
        earlier = newest.get(drawn)
        if earlier is not None and earlier.kind in _REPLACEABLE:
            replaced.add(earlier.seq)
        if event.kind in _REPLACEABLE or event.kind == events.DONE:
            newest[drawn] = event
    return replaced


@cache
def _template(kind: str) -> Any:
    """The partial of a kind; None if the pages have none."""
    try:
        return get_template(f"events/{kind}.html")
    except TemplateDoesNotExist:
        return None
