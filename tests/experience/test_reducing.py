"""Of a change only the hunks are kept on which its gain rests."""

from gpu_runner.experience.reducing import applied, hunks_of, smallest

BEFORE = "a\nb\nc\nd\ne\nf\ng\nh\n"
AFTER = "A\nb\nC\nd\nE\nf\nG\nh\nnew\n"


def times(needs: set[str], breaks: set[str] = frozenset()):
    """100 us, 40 us with all that is needed; None where something is that must not stand alone."""
    asked = []

    def time_of(source: str) -> float | None:
        asked.append(source)
        lines = set(source.split())
        if breaks & lines and not needs <= lines:
            return None
        return 40.0 if needs <= lines else 100.0

    return time_of, asked


def test_hunks_rebuild_the_code_after() -> None:
    hunks = hunks_of(BEFORE, AFTER)
    assert len(hunks) == 5
    assert applied(BEFORE, hunks) == AFTER
    assert applied(BEFORE, []) == BEFORE
    assert applied(BEFORE, hunks[1:2]) == BEFORE.replace("c", "C")


def test_what_the_gain_does_not_rest_on_is_left_out() -> None:
    time_of, _ = times({"C", "new"})
    assert smallest(BEFORE, AFTER, time_of, evaluations=30) == "a\nb\nC\nd\ne\nf\ng\nh\nnew\n"


def test_a_part_that_breaks_the_kernel_is_not_taken() -> None:
    time_of, _ = times({"A", "E"}, breaks={"A", "E"})
    assert smallest(BEFORE, AFTER, time_of, evaluations=30) == "A\nb\nc\nd\nE\nf\ng\nh\n"


def test_the_budget_is_kept_and_a_change_without_a_gain_stays_as_it_is() -> None:
    time_of, asked = times({"C"})
    smallest(BEFORE, AFTER, time_of, evaluations=4)
    assert len(asked) == 4
    time_of, asked = times({"nothing"})
    assert smallest(BEFORE, AFTER, time_of, evaluations=30) == AFTER
    assert len(asked) == 2
