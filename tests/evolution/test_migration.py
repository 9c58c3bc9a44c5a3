from hypothesis import given
from hypothesis import strategies as st

from gpu_runner.evolution.migration import elites, migrate, moved
from gpu_runner.evolution.strategies import strategy_of
from gpu_runner.evolution.types import Island
from tests.evolution.making import candidate


def islands_of(*speedups: list[float | None]) -> list[Island]:
    number = 0
    made = []
    for index, values in enumerate(speedups):
        members = []
        for value in values:
            number += 1
            members.append(candidate(number, value, island=index))
        made.append(Island(index, strategy_of(index), tuple(members)))
    return made


def ids(islands: list[Island] | tuple[Island, ...]) -> list[list[int]]:
    return [[member.id for member in island.members] for island in islands]


def test_elites_go_to_the_next_island_and_stay_at_home() -> None:
    islands = islands_of([1.0, 3.0], [2.0], [0.5])
    after = migrate(islands)
    assert ids(after) == [[1, 2, 4], [3, 2], [4, 3]]
    assert moved(islands, after) == [(4, 0), (2, 1), (3, 2)]


def test_an_island_that_holds_the_migrant_does_not_grow() -> None:
    once = migrate(islands_of([1.0], [2.0]))
    assert ids(once) == [[1, 2], [2, 1]]
    assert ids(migrate(once)) == [[1, 2], [2, 1]]


def test_one_island_migrates_to_itself_without_growing() -> None:
    assert ids(migrate(islands_of([1.0]))) == [[1]]


def test_empty_islands_receive_what_travels_past_them() -> None:
    assert ids(migrate(islands_of([1.0], [], []))) == [[1], [1], [1]]


def test_failing_candidates_leave_only_where_nothing_is_correct() -> None:
    assert ids(migrate(islands_of([None, 1.0], [None]))) == [[1, 2, 3], [3, 2]]


def test_ties_go_to_the_older_candidate() -> None:
    assert [c.id for c in elites(islands_of([2.0, 2.0, 1.0])[0], 1)] == [1]


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.floats(0.01, 100)), max_size=5), min_size=1, max_size=6
    ),
    st.integers(1, 3),
)
def test_migration_loses_nobody_and_leaves_no_island_empty(
    speedups: list[list[float | None]], migrants: int
) -> None:
    islands = islands_of(*speedups)
    after = migrate(islands, migrants)
    for old, new in zip(islands, after, strict=True):
        assert new.members[: len(old.members)] == old.members
        assert len(new.members) <= len(old.members) + migrants
        assert len({m.id for m in new.members}) == len(new.members)
    assert all(island.members for island in after) or not any(i.members for i in islands)
    best = max((m.fitness for i in islands for m in i.members), default=0.0)
    assert max((m.fitness for i in after for m in i.members), default=0.0) == best
