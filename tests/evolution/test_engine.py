"""The fold as a whole: whatever the answers and their order, the invariants hold and a replay gives the same run."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import engine
from gpu_runner.evolution.types import Operator, State, Way
from tests.evolution.making import candidate, evaluation, source

STEPS = frozenset(map(Way, (Operator.REWRITE, Operator.TUNE, Operator.CROSSOVER, Operator.REPAIR)))


def seeded(islands: int = 3) -> State:
    state = engine.begin(islands)
    seeds = [candidate(n + 1, 1.0 + n, island=n) for n in range(islands)]
    state = engine.enqueued(state, seeds, Operator.SEED)
    for seed in seeds:
        state = engine.told(state, seed)
    return state


def ask(state: State, seed: int = 0) -> engine.Request:
    request = engine.ask(state, engine.generator(seed, state.asked), STEPS)
    assert request is not None
    return request


def test_the_island_that_had_least_is_asked_for_first() -> None:
    state = seeded()
    order = []
    for number in range(4, 10):
        request = ask(state)
        order.append(request.island)
        child = candidate(number, island=request.island, evaluation=None, state=Life.QUEUED)
        state = engine.drafted(state, request, [child], is_dry=False)
    assert order == [0, 1, 2, 0, 1, 2]


def test_an_empty_island_gets_parents_from_elsewhere() -> None:
    state = engine.told(engine.begin(3), candidate(1, 1.0))
    request = ask(state)
    assert (request.island, [parent.id for parent in request.parents]) == (1, [1])


def test_nothing_is_asked_before_anything_is_known() -> None:
    state = engine.enqueued(engine.begin(3), [candidate(1)], Operator.SEED)
    assert engine.ask(state, engine.generator(0, 0), STEPS) is None


def test_a_dry_request_is_not_asked_again() -> None:
    state = engine.told(engine.begin(1), candidate(1, 1.0))
    asked = set()
    while (request := engine.ask(state, engine.generator(0, state.asked), STEPS)) is not None:
        assert request.key not in asked
        asked.add(request.key)
        state = engine.drafted(state, request, [], is_dry=True)
    assert asked == {(Operator.REWRITE, "", (1,)), (Operator.TUNE, "", (1,))}


def test_duplicates_are_known_by_their_syntax() -> None:
    state = engine.enqueued(engine.begin(1), [candidate(1, source=source(7))], Operator.SEED)
    assert engine.is_duplicate(state, source(7) + "\n# a comment\n")
    assert not engine.is_duplicate(state, source(8))


def test_what_could_not_be_evaluated_leaves_the_queue_and_nothing_else() -> None:
    lost = candidate(9, evaluation=None, state=Life.ABANDONED)
    state = engine.enqueued(seeded(), [lost], Operator.TUNE)
    after = engine.told(state, lost)
    assert 9 not in after.pending
    assert (after.islands, after.best, after.told) == (state.islands, state.best, state.told)


def test_the_best_stays_on_its_island_however_many_are_faster_within_their_noise() -> None:
    first = candidate(1, 2.0, interval=(1.9, 2.1))
    state = engine.told(engine.begin(1), first)
    for number in range(2, 40):
        state = engine.told(state, candidate(number, 2.05, interval=(1.5, 2.6)))
    assert state.best == first
    assert first in state.islands[0].members
    assert len(state.islands[0].members) <= engine.MAX_CORRECT + 1


def play(seed: int, outcomes: list[float | None], lag: int) -> tuple[State, list[tuple]]:
    """A run with up to `lag` candidates in flight; answers come in a scripted order."""
    state, waiting, asked = engine.begin(3), [], []
    seeds = [candidate(n + 1, island=n % 3, evaluation=None, state=Life.QUEUED) for n in range(4)]
    state = engine.enqueued(state, seeds, Operator.SEED)
    waiting += seeds
    number = len(seeds)
    for outcome in outcomes:
        if len(waiting) <= lag:
            request = engine.ask(state, engine.generator(seed, state.asked), STEPS)
            if request is not None:
                number += 1
                child = Candidate(
                    id=number,
                    source=source(number),
                    island=request.island,
                    parents=tuple(parent.id for parent in request.parents),
                    generation=1 + max(p.generation for p in request.parents),
                    origin=request.operator.value,
                )
                state = engine.drafted(state, request, [child], is_dry=False)
                asked.append((request.number, request.island, *request.key, request.examples))
                waiting.append(child)
        if waiting:
            answered = waiting.pop(0)
            found = candidate(answered.id, outcome).evaluation
            state = engine.told(
                state,
                answered.model_copy(update={"state": Life.FINISHED, "evaluation": found}),
            )
    return state, asked


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 5),
    st.lists(st.one_of(st.none(), st.floats(0.1, 10)), max_size=40),
    st.integers(0, 4),
)
def test_any_run_keeps_its_best_fills_its_islands_and_replays(
    seed: int, outcomes: list[float | None], lag: int
) -> None:
    state, asked = play(seed, outcomes, lag)
    again, asked_again = play(seed, outcomes, lag)
    assert asked == asked_again
    assert again == state
    told = [o for o in outcomes[: state.told] if o]
    assert (state.best.fitness if state.best else 0) == max(told, default=0)
    if state.best:
        assert state.best in state.islands[state.best.island].members
        assert state.best in state.archive.values()
    if state.migrations:
        assert all(island.members for island in state.islands)


def test_seeds_give_different_runs() -> None:
    outcomes = [1.0, 2.0, 1.5, 1.2] * 10
    assert play(1, outcomes, 2)[1] != play(2, outcomes, 2)[1]


def test_migration_comes_after_every_few_answers() -> None:
    state = seeded()
    for number in range(4, 4 + 6 * engine.TOLD_PER_MIGRATION):
        state = engine.told(state, candidate(number, 0.5, island=number % 3))
    assert state.migrations == 2
    assert all(any(m.id == 3 for m in island.members) for island in (state.islands[0],))


def test_the_credit_goes_to_the_operator_that_made_the_child() -> None:
    state = seeded()
    child = candidate(4, 4.0, parents=(2,), island=1)
    state = engine.enqueued(state, [child], Operator.TUNE)
    state = engine.told(state, child)
    assert state.credit[Way(Operator.TUNE)].tries == 1
    assert 0.6 < state.credit[Way(Operator.TUNE)].gain < 0.7
    assert evaluation(4.0).fitness == 4.0
