import pytest

from gpu_runner.core.similar import Alike

TEXTS = {
    1: "Load with an eviction policy where a tensor is read once",
    2: "Read once: use the eviction policy evict_first for loads",
    3: "Split the reduction over programs when rows are few",
    4: "",
}


def test_the_nearest_text_comes_first_and_others_not_at_all() -> None:
    alike = Alike(TEXTS)
    assert [key for key, _ in alike.like(TEXTS[1], without=[1])] == [2]
    assert alike.like("convolution by implicit gemm") == []
    assert alike.like("") == []


def test_a_text_is_entirely_like_itself() -> None:
    [(key, likeness), *_] = Alike(TEXTS).like(TEXTS[3])
    assert (key, likeness) == (3, pytest.approx(1.0))


def test_words_that_all_texts_share_say_nothing_and_ties_go_by_id() -> None:
    alike = Alike({2: "kernel blue", 1: "kernel blue", 3: "kernel red"})
    assert [key for key, _ in alike.like("kernel blue")] == [1, 2]
    assert Alike({1: "kernel"}).like("kernel") == [(1, pytest.approx(1.0))]
