"""What a step of the search changed, as notes for the ledger; the payloads are described in `core.search`."""

from collections.abc import Iterator
from typing import Any

from gpu_runner.evolution import bandit, engine, plans
from gpu_runner.evolution.types import State, Way

Note = tuple[str, dict[str, Any]]


def between(before: State, after: State, ways: frozenset[Way]) -> Iterator[Note]:
    """Notes on the plan, the strategies' texts, islands begun afresh and, where credit was given, the bandit's shares."""
    ideas = plans.changed(before.plan, after.plan)
    if ideas:
        yield "plan", {"ideas": [idea.model_dump(mode="json") for idea in ideas]}
    for number, text in after.texts.items():
        if before.texts.get(number) is not text:
            yield "strategy", text.model_dump(mode="json")
    for old, new in zip(before.islands, after.islands, strict=True):
        if new.restarts > old.restarts:
            yield "restart", {"island": new.index, "from": [member.id for member in new.members]}
    if before.credit is not after.credit:
        shares = engine.shares(after, ways)
        shown = bandit.shown(shares, after.credit)
        yield "shares", {"ways": [share.model_dump(mode="json") for share in shown]}
