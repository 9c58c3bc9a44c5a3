"""Which draft is tried first, and what a model is told about earlier failures."""

import random
from collections import Counter

from gpu_runner.core.candidate import Candidate
from gpu_runner.drafting import failed_moves, kernel_to_change, preferred, unique_drafts
from gpu_runner.proposals.types import Draft
from tests.evolution.making import candidate, evaluation, source


def draft(move: str, gain: float | None = None, mark: int = 1) -> Draft:
    return Draft(source=source(mark), origin="tune", move=move, predicted_gain=gain)


def modelled(shares: dict[str, float]) -> Candidate:
    parts = [{"name": name, "kind": "kernel", "us": us} for name, us in shares.items()]
    parts.append({"name": "relu", "kind": "pointwise", "us": 900.0})
    return candidate(1, evaluation=evaluation(1.0, profile={"candidate": {"parts": parts}}))


def test_an_islands_words_go_before_the_kernel_and_the_kernel_before_the_gain() -> None:
    plain, gaining = draft("in scale_kernel"), draft("in scale_kernel", 1.5)
    hot, fitting = draft("in matmul_kernel"), draft("fuse in scale_kernel")
    assert preferred([plain, gaining, hot, fitting], ["fuse"], "matmul_kernel") is fitting
    assert preferred([plain, gaining, hot], ["fuse"], "matmul_kernel") is hot
    assert preferred([plain, gaining], ["fuse"], "matmul_kernel") is gaining
    assert preferred([plain, draft("in scale_kernel")], [], "") is plain
    assert preferred([draft("in my_matmul_kernel"), hot], [], "matmul_kernel") is hot
    assert preferred([], ["fuse"]) is None


def test_the_kernel_to_change_is_drawn_by_its_share_of_the_time() -> None:
    parent = modelled({"a": 90.0, "b": 10.0})
    drawn = Counter(kernel_to_change((parent,), random.Random(n)) for n in range(400))
    assert set(drawn) == {"a", "b"}
    assert 320 < drawn["a"] < 400
    assert kernel_to_change((candidate(1),), random.Random(0)) == ""
    assert kernel_to_change((), random.Random(0)) == ""


def test_of_equal_drafts_the_first_kind_keeps_one() -> None:
    first, same, other = draft("a"), draft("b"), draft("c", mark=2)
    unique = unique_drafts({"compiler": [first, same], "catalogue": [same, other]}, frozenset())
    assert unique == {"compiler": [first], "catalogue": [other]}


def test_failed_moves_are_those_that_gained_nothing_on_these_parents() -> None:
    parent = candidate(1, 2.0)
    known = [
        parent,
        candidate(2, 3.0, parents=(1,), move="won"),
        candidate(3, 1.5, parents=(1,), move="slower"),
        candidate(4, parents=(1,), move="wrong"),
        candidate(5, 0.5, parents=(2,), move="elsewhere"),
    ]
    assert failed_moves((parent,), known) == (
        "slower -> correct, no faster (1.50)",
        "wrong -> incorrect: ",
    )
