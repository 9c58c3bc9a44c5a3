"""Retrieval finds what was judged to help; the figures and the speed are printed by `benchmarks/retrieval.py`."""

from statistics import fmean

from benchmarks.retrieval import approved, judged, ndcg, quality
from gpu_runner.experience import Library


def test_the_measure_is_one_for_the_best_order_and_zero_for_none() -> None:
    grades = {"a": 3, "b": 1}
    assert ndcg(["a", "b", "c"], grades) == 1.0
    assert 0 < ndcg(["b", "a"], grades) < 1
    assert ndcg(["c"], grades) == 0.0


def test_what_helps_is_found_among_the_first_five() -> None:
    assert len(judged()) >= 60
    scores = [score for _, score, _ in quality(Library(approved()))]
    assert fmean(scores) >= 0.85
