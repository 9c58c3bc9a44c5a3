"""Which draft is tried first, and what a model is told about earlier failures."""

from gpu_runner.drafting import failed_moves, preferred, unique_drafts
from gpu_runner.proposals.types import Draft
from tests.evolution.making import candidate, source


def draft(move: str, gain: float | None = None, mark: int = 1) -> Draft:
    return Draft(source=source(mark), origin="tune", move=move, predicted_gain=gain)


def test_an_islands_words_go_before_the_gain_and_the_gain_before_the_order() -> None:
    plain, gaining, fitting = draft("a"), draft("b", 1.5), draft("fuse it")
    assert preferred([plain, gaining, fitting], ["fuse"]) is fitting
    assert preferred([plain, gaining], ["fuse"]) is gaining
    assert preferred([plain, draft("c")], []) is plain
    assert preferred([], ["fuse"]) is None


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
