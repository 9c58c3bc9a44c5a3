"""Retrieval by conditions and words; a step that paid becomes a draft."""

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gpu_runner.core.entries import Effect, Entry, EntryContent, EntryKind, EntryState, When
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Fidelity, Stage, Track
from gpu_runner.core.worth import Standing, arm_without
from gpu_runner.experience import (
    FOUND,
    Library,
    Query,
    Shelf,
    Shown,
    distil,
    query_for,
    show,
)
from gpu_runner.experience.conditions import admits, hardware_of
from tests.evolution.making import candidate, evaluation, source

SPEC = TensorSpec(shape=(8, 16), dtype="float32")
REPORT = TaskReport(
    inputs=(SPEC, None),
    outputs=(SPEC,),
    probe=None,
    graph={
        "nodes": [
            {"name": "x", "kind": "input", "op": ""},
            {"name": "y", "kind": "call", "op": "aten.softmax.int"},
            {"name": "z", "kind": "call", "op": "aten.mul.Tensor"},
        ]
    },
)
TASK = TaskSpec(name="row softmax", source="class Model: ...")
QUERY = Query(operators=("softmax",), dtypes=("float32",), target="h200", words="softmax rows")


def entry(name: str, title: str, state: EntryState = EntryState.APPROVED, **more: Any) -> Entry:
    when = When(**{k: v for k, v in more.items() if k in When.model_fields})
    content = {k: v for k, v in more.items() if k in EntryContent.model_fields}
    fields = {"kind": EntryKind.TECHNIQUE, "action": "do it"} | content
    return Entry(id=name, state=state, content=EntryContent(title=title, when=when, **fields))


def ids(entries: list[Entry], query: Query = QUERY, count: int = 4) -> list[str]:
    return [hit.entry.id for hit in Library(entries).retrieve(query, count)]


def test_the_entry_that_shares_more_words_comes_first() -> None:
    entries = [
        entry("a", "softmax of long rows in one pass", operators=("softmax",)),
        entry("b", "rows of a matrix"),
        entry("c", "tiles of a convolution"),
    ]
    hits = Library(entries).retrieve(QUERY)
    assert [(hit.entry.id, hit.rank) for hit in hits] == [("a", 1), ("b", 2)]
    assert hits[0].score > hits[1].score > 0
    assert ids(entries, count=1) == ["a"]


@pytest.mark.parametrize(
    ("condition", "applies"),
    [
        ({}, True),
        ({"operators": ("mm", "softmax")}, True),
        ({"operators": ("mm",)}, False),
        ({"dtypes": ("bfloat16",)}, False),
        ({"hardware": ("h200",)}, True),
        ({"hardware": ("sm_90",)}, True),
        ({"hardware": ("a100",)}, False),
        ({"tracks": (Track.LIBRARY_ALLOWED,)}, False),
        ({"state": EntryState.VERIFIED}, False),
        ({"state": EntryState.RETIRED}, False),
    ],
)
def test_conditions_exclude_what_does_not_apply(condition: dict, applies: bool) -> None:
    assert bool(ids([entry("a", "softmax", **condition)])) is applies


@pytest.mark.parametrize(
    ("device", "fidelity", "hardware"),
    [
        ("cpu", Fidelity.MODELLED, "h200"),
        ("NVIDIA A100 80GB PCIe", Fidelity.MEASURED, "a100"),
        ("NVIDIA L4", Fidelity.MEASURED, "NVIDIA L4"),
    ],
)
def test_what_was_measured_on_a_gpu_is_found_by_runs_for_it(
    device: str, fidelity: Fidelity, hardware: str
) -> None:
    effect = Effect(
        device=device, fidelity=fidelity, track=TASK.track, precision=TASK.precision, ratio=2.0
    )
    assert hardware_of(effect, TASK) == hardware


def test_what_was_checked_is_used_and_what_waits_is_not() -> None:
    states = {
        state: entry(state.value, "softmax rows").model_copy(update={"state": state})
        for state in EntryState
    }
    used = {state for state, one in states.items() if Library([one]).retrieve(QUERY)}
    assert used == {EntryState.CHECKED, EntryState.APPROVED}


def test_an_empty_library_and_an_empty_query_find_nothing() -> None:
    assert ids([]) == []
    assert ids([entry("a", "softmax")], Query()) == []


def test_equal_scores_are_ordered_by_id() -> None:
    entries = [entry("b", "softmax rows tile"), entry("a", "softmax rows fuse")]
    assert ids(entries) == ["a", "b"]


def test_of_entries_that_say_the_same_the_better_one_is_shown() -> None:
    twin = {"operators": ("softmax",), "action": "hold the whole row in registers and read it once"}
    entries = [
        entry("a", "softmax in one pass", **twin),
        entry("b", "softmax in one pass", **twin),
        entry("c", "rows of few elements"),
    ]
    assert ids(entries) == ["a", "c"]


def test_an_entry_that_names_the_finding_comes_before_one_that_names_others() -> None:
    entries = [
        entry("a", "softmax softmax rows", bottlenecks=("spills",)),
        entry("b", "softmax", bottlenecks=("redundant_traffic",)),
    ]
    asked = replace(QUERY, bottlenecks=("redundant_traffic",))
    assert ids(entries, asked) == ["b", "a"]
    assert ids(entries) == ["a", "b"]


def test_islands_with_different_lenses_are_shown_different_slices() -> None:
    entries = [
        entry(f"{topic}-{number}", f"softmax {topic} {topic} {other}", action=f"{other} {topic}")
        for topic in ("fuse", "tile", "precision")
        for number, other in enumerate(("alpha beta", "gamma delta", "epsilon zeta"))
    ]
    slices = {lens: ids(entries, replace(QUERY, lens=lens), count=3) for lens in ("fuse", "tile")}
    assert all(name.startswith("fuse") for name in slices["fuse"])
    assert all(name.startswith("tile") for name in slices["tile"])


def test_entries_whose_code_resembles_the_parents_come_first() -> None:
    entries = [
        entry("a", "softmax rows", before="def other(): pass", action="one way"),
        entry("b", "softmax rows", before="tl.dot(query, key_block)", action="another path"),
    ]
    assert ids(entries, replace(QUERY, code="tl.dot(query, key_block)")) == ["b", "a"]


def test_what_measuring_says_about_an_entry_moves_it() -> None:
    entries = [entry("a", "softmax rows tile"), entry("b", "softmax rows fuse")]
    library = Library(entries, {"a": Standing.RETIRE, "b": Standing.HELPS})
    assert [hit.entry.id for hit in library.retrieve(QUERY)] == ["b", "a"]


@pytest.mark.parametrize(
    ("bounds", "version", "holds"),
    [
        ("", "3.4.0", True),
        (">=3.4", "", True),
        (">=3.4", "3.10.1", True),
        (">=3.4,<4", "4.0", False),
        ("==3.7", "3.7.0", True),
        ("!=3.7.1", "3.7.1+cu130", False),
        ("newer", "3.7.1", False),
    ],
)
def test_a_range_of_versions_admits(bounds: str, version: str, holds: bool) -> None:
    assert admits(bounds, version) is holds
    found = ids([entry("a", "softmax", triton_versions=bounds)], replace(QUERY, triton=version))
    assert bool(found) is holds


def test_chance_alone_decides_what_is_withheld() -> None:
    library = Library([entry("a", "softmax rows tile"), entry("b", "softmax rows fuse")])
    hits = library.retrieve(QUERY)
    rng = random.Random(3)
    arms = Counter(show(hits, rng) for _ in range(4000))

    both = tuple(hit.entry for hit in hits)
    expected = {
        Shown("with", both): 0.6,
        Shown("without"): 0.2,
        Shown("without:a", both[1:]): 0.05,
        Shown("without:b", both[:1]): 0.05,
        Shown("unpaired", both): 0.1,
    }
    assert arms.keys() == expected.keys()
    for shown, share in expected.items():
        assert math.isclose(arms[shown] / 4000, share, abs_tol=0.02)


def test_what_ranks_too_low_to_be_shown_has_its_turn() -> None:
    titles = ("tile", "fuse", "mask", "load", "warps", "stages")
    found = Library([entry(t, f"softmax rows {t}") for t in titles]).retrieve(QUERY, FOUND)
    best, beyond = [hit.entry for hit in found[:4]], [hit.entry for hit in found[4:]]
    assert len(beyond) == 2
    rng = random.Random(3)
    arms = Counter(show(found, rng) for _ in range(20_000))
    for last, share in ((best[3], 0.85), (beyond[0], 0.075), (beyond[1], 0.075)):
        shown = arms[Shown("with", (*best[:3], last))] / 20_000
        withheld = arms[Shown(arm_without(last.id), tuple(best[:3]))] / 20_000
        assert math.isclose(shown, 0.6 * share, abs_tol=0.01)
        assert math.isclose(withheld, 0.05 * share, abs_tol=0.005)


def test_what_is_measured_meanwhile_ranks_at_the_next_question_without_indexing_again() -> None:
    entries = [entry("a", "softmax rows tile"), entry("b", "softmax rows fuse")]
    standings: dict[str, Standing] = {}
    read = []

    def books() -> list[Entry]:
        read.append(1)
        return entries

    shelf = Shelf(books, lambda: 1, lambda: dict(standings))
    assert [hit.entry.id for hit in shelf.library().retrieve(QUERY)] == ["a", "b"]
    standings["a"] = Standing.RETIRE
    assert [hit.entry.id for hit in shelf.library().retrieve(QUERY)] == ["b", "a"]
    assert len(read) == 1


def test_what_is_approved_meanwhile_is_on_the_shelf_at_the_next_question() -> None:
    entries = [entry("a", "softmax rows tile")]
    revision = [1]
    read = []

    def books() -> list[Entry]:
        read.append(1)
        return list(entries)

    shelf = Shelf(books, lambda: revision[0])
    assert [hit.entry.id for hit in shelf.library().retrieve(QUERY)] == ["a"]
    entries.append(entry("b", "softmax rows fuse"))
    assert len(shelf.library()) == 1
    assert len(read) == 1
    revision[0] = 2
    assert [hit.entry.id for hit in shelf.library().retrieve(QUERY)] == ["a", "b"]


def test_a_query_asks_for_operators_dtypes_and_what_is_wrong() -> None:
    lead = Finding(
        stage=Stage.PROFILE,
        kind="memory_bound",
        severity=Severity.HINT,
        source=Source.INTERPRETER,
        title="reads its input three times",
    )
    query = query_for(TASK, REPORT, [candidate(1, evaluation=evaluation(1.0, findings=(lead,)))])
    assert query.operators == ("softmax", "mul")
    assert query.dtypes == ("float32",)
    assert query.bottlenecks == ("memory_bound",)
    assert "reads its input three times" in query.words


def test_demonstrations_are_whole_kernels_for_the_same_operators() -> None:
    whole = {"kind": EntryKind.DEMONSTRATION, "after": source(3)}
    entries = [
        entry("a", "softmax", operators=("softmax",), **whole),
        entry("b", "softmax", **whole),
        entry("c", "softmax", operators=("softmax",), kind=EntryKind.DEMONSTRATION, after="x"),
    ]
    assert [found.id for found in Library(entries).demonstrations(QUERY)] == ["a"]


def test_a_demonstration_that_cannot_be_called_like_the_task_is_none() -> None:
    taken = "class Model:\n def forward(self, x): pass"
    whole = {"kind": EntryKind.DEMONSTRATION, "after": source(3), "task": taken}
    library = Library([entry("a", "softmax", operators=("softmax",), **whole)])
    two = "class Model:\n def forward(self, x, mask): pass"
    assert [e.id for e in library.demonstrations(replace(QUERY, reference=taken))] == ["a"]
    assert library.demonstrations(replace(QUERY, reference=two)) == ()


def test_a_step_that_paid_becomes_a_draft() -> None:
    parent = candidate(1, 1.0)
    child = candidate(2, 1.5, parents=(1,), move="one pass", origin="rewrite:online")
    draft = distil(parent, child, TASK, REPORT)
    assert draft is not None
    assert (draft.title, draft.kind) == ("one pass", EntryKind.TECHNIQUE)
    assert (draft.before, draft.after) == (parent.source, child.source)
    assert draft.when.operators == ("softmax", "mul")
    assert draft.when.hardware == ("h200",)
    (effect,) = draft.effects
    assert (effect.fidelity, effect.ratio, effect.low) == (Fidelity.MODELLED, 1.5, None)
    assert (draft.provenance.candidate_id, draft.provenance.task_key) == (2, TASK.key)


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (candidate(1, 1.0), candidate(2, 1.05)),
        (candidate(1), candidate(2, 5.0)),
        (candidate(1, 1.0), candidate(2)),
        (candidate(1, 1.0), candidate(2, 2.0, interval=(1.9, 2.1))),
        (candidate(1, 1.0, interval=(0.8, 1.2)), candidate(2, 1.3, interval=(1.2, 1.4))),
    ],
)
def test_no_draft_without_a_sure_gain(parent, child) -> None:
    assert distil(parent, child, TASK, REPORT) is None


def test_a_measured_effect_carries_the_interval_of_the_ratio() -> None:
    parent = candidate(1, 1.0, interval=(0.9, 1.1))
    child = candidate(2, 2.0, interval=(1.8, 2.2))
    draft = distil(parent, child, TASK, REPORT)
    assert draft is not None
    (effect,) = draft.effects
    assert effect.low is not None
    assert effect.high is not None
    assert math.isclose(effect.low, 1.8 / 1.1)
    assert math.isclose(effect.high, 2.2 / 0.9)
    assert draft.when.hardware == ("cpu",)
