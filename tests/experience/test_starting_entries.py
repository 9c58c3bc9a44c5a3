"""The entries that the project starts with: readable, whole, and on record with what running them found."""

from collections import Counter
from pathlib import Path

import pytest

from gpu_runner.core.contract import check_contract
from gpu_runner.core.entries import EntryKind, EntryState
from gpu_runner.core.source import Problem, parse
from gpu_runner.core.starting_entries import (
    Outcome,
    Starting,
    UnreadableEntry,
    read_all,
    starting_entries,
)
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import KINDS, Track, Verdict
from gpu_runner.evaluation.pool import LocalPool
from tests.evaluation.quick_pool import quick_pool, told

ALL = read_all()


def test_there_are_enough_of_every_kind() -> None:
    kinds = Counter(starting.head.kind for starting in ALL)
    assert sum(kinds.values()) >= 60
    assert min(kinds[kind] for kind in EntryKind) >= 5
    assert len({entry.id for entry in starting_entries()}) == len(ALL)
    assert sum(bool(starting.outcomes) for starting in ALL) >= 60, "run library_evaluated.py"


@pytest.mark.parametrize("starting", ALL, ids=lambda starting: starting.slug)
def test_an_entry_is_whole_and_its_code_ran_as_it_says(starting: Starting) -> None:
    assert check_contract(starting.task_source) == []
    for part in ("Before", "After"):
        assert not isinstance(parse(starting.text[part]), Problem)
        assert "class ModelNew(nn.Module):" in starting.text[part]
    assert all(
        starting.text[part] for part in ("Action", "Not when", "Preconditions", "If violated")
    )
    assert starting.head.operators
    assert starting.head.bottlenecks
    verdict, _, kind = starting.head.cures.partition("/")
    assert not verdict or kind in KINDS[Verdict(verdict)]

    found = {(o.before, o.after) for o in starting.outcomes if o.target == starting.head.target}
    assert found <= {(starting.head.cures or "correct", "correct")}
    assert found or starting.state is EntryState.DRAFT, "what never ran is nobody's advice"


def test_a_claim_that_does_not_hold_is_kept_and_not_used() -> None:
    by_slug = {starting.slug: starting for starting in ALL}
    assert by_slug["hold-the-row-in-registers"].state is EntryState.CHECKED
    assert by_slug["sums-in-sixteen-bits"].state is EntryState.CHECKED
    assert by_slug["rsqrt-for-one-over-sqrt"].state is EntryState.REJECTED
    assert by_slug["evict-first-for-streams"].state is EntryState.NOMINATED


def test_no_outcome_of_a_run_speaks_for_a_person() -> None:
    assert EntryState.APPROVED not in {starting.state for starting in ALL}


def test_a_record_counts_only_for_the_code_that_it_was_made_with() -> None:
    starting = ALL[0]
    changed = starting.model_copy(update={"text": {**starting.text, "After": "changed"}})
    assert changed.digest != starting.digest
    unknown = starting.model_copy(update={"outcomes": ()})
    assert unknown.state is EntryState.DRAFT
    wrong = Outcome(digest="", target=starting.head.target, before="correct", after="timeout/call")
    assert starting.model_copy(update={"outcomes": (wrong,)}).state is EntryState.DRAFT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no head", "unpack"),
        ('+++\nkind = "technique"\n+++\nDo it.\n', "its sections are"),
        ("+++\nkind =\n+++\nDo it.\n", "Invalid"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "library/entries").mkdir(parents=True)
    (tmp_path / "library/entries/one.md").write_text(text)
    with pytest.raises(UnreadableEntry, match=rf"one\.md: .*{problem}"):
        read_all(tmp_path / "library")
    with pytest.raises(UnreadableEntry, match="no folder of entries"):
        read_all(tmp_path / "elsewhere")


@pytest.fixture(scope="module")
def pool() -> LocalPool:
    with quick_pool() as pool:
        yield pool


@pytest.mark.sandbox
@pytest.mark.exam
@pytest.mark.parametrize(
    "starting", sorted(ALL, key=lambda one: one.head.task), ids=lambda starting: starting.slug
)
def test_the_code_before_and_after_does_what_the_entry_says(
    pool: LocalPool, starting: Starting
) -> None:
    head = starting.head
    spec = TaskSpec(
        name=starting.slug,
        source=starting.task_source,
        track=head.tracks[0] if head.tracks else Track.OWN_KERNELS,
        precision=head.precision,
        target=head.target,
    )
    before = pool.evaluate(spec, starting.text["Before"])
    after = pool.evaluate(spec, starting.text["After"])
    found = f"{before.verdict}/{before.kind}" if before.kind else str(before.verdict)

    assert after.is_correct, told(after)
    assert found == (head.cures or "correct"), told(before)
