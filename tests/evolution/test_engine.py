"""The fold as a whole: whatever the answers and their order, the invariants hold and a replay gives the same run."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.search import IdeaState, Method
from gpu_runner.core.verdicts import Stage
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import engine, notes, plans, replay
from gpu_runner.evolution.types import Operator, Settings, State, Way
from tests.evolution.making import candidate, evaluation, source

STEPS = frozenset(map(Way, (Operator.REWRITE, Operator.TUNE, Operator.CROSSOVER, Operator.REPAIR)))


HINT = Finding(
    stage=Stage.PROFILE,
    kind="launches",
    severity=Severity.HINT,
    source=Source.JUDGE,
    title="two launches",
    suggestion="fuse them",
)


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


def test_the_leading_island_gets_three_requests_to_one_of_each_other() -> None:
    state = seeded()
    order = []
    for number in range(4, 14):
        request = ask(state)
        order.append(request.island)
        child = candidate(number, island=request.island, evaluation=None, state=Life.QUEUED)
        state = engine.drafted(state, request, [child], is_dry=False)
    assert order == [2, 2, 0, 1, 2, 2, 2, 0, 1, 2]


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


WAYS = STEPS | {
    Way(operator, model)
    for operator in (Operator.IMPROVE, Operator.REPAIR, Operator.CROSSOVER)
    for model in ("cheap", "dear")
}


class Play:
    """A run with up to `lag` candidates in flight; answers come in a scripted order."""

    def __init__(
        self, seed: int, outcomes: list[float | None], lag: int, parts: Settings | None = None
    ) -> None:
        self.state = engine.begin(3, parts or Settings())
        self.states = [self.state]
        self.asked: list[tuple] = []
        self.answers: list[dict] = []
        self.candidates: dict[int, Candidate] = {}
        self.waiting: list[Candidate] = []
        seeds = [self.made(n % 3, (), "compiler") for n in range(4)]
        self.note(replay.seeded_answer(seeds))
        self.state = engine.enqueued(self.state, seeds, Operator.SEED)
        for outcome in outcomes:
            if len(self.waiting) <= lag:
                self.ask(seed)
            if self.waiting:
                self.answer(outcome)
            self.states.append(self.state)

    def made(self, island: int, parents: tuple[Candidate, ...], origin: str) -> Candidate:
        number = len(self.candidates) + 1
        made = Candidate(
            id=number,
            source=source(number),
            island=island,
            parents=tuple(parent.id for parent in parents),
            generation=1 + max((p.generation for p in parents), default=-1),
            origin=origin,
        )
        self.candidates[number] = made
        self.waiting.append(made)
        return made

    def note(self, answer: dict) -> None:
        self.answers.append(json.loads(json.dumps(answer)))

    def ask(self, seed: int) -> None:
        request = engine.ask(self.state, engine.generator(seed, self.state.asked), WAYS)
        if request is None:
            return
        # Every seventh request leads to nothing.
        fails = request.number % 7 == 6
        made = [] if fails else [self.made(request.island, request.parents, request.operator.value)]
        cost = 2.0 if request.model else 1.0
        self.note(replay.asked_answer(request, made, is_dry=fails, cost=cost))
        self.state = engine.drafted(self.state, request, made, is_dry=fails, cost=cost)
        self.asked.append(
            (request.number, request.island, request.idea, request.text, *request.key)
        )

    def answer(self, outcome: float | None) -> None:
        waits = self.waiting.pop(0)
        hint = HINT.model_copy(update={"kind": f"loss {waits.id % 3}"})
        found = candidate(waits.id, outcome).evaluation
        assert found is not None
        profile = {"candidate": {"parts": [{}] * (1 + waits.id % 5)}}
        found = found.model_copy(update={"findings": (hint,), "profile": profile})
        done = waits.model_copy(update={"state": Life.FINISHED, "evaluation": found})
        self.candidates[done.id] = done
        self.note(replay.told_answer(done))
        self.state = engine.told(self.state, done)
        if (want := engine.wanted_text(self.state)) is not None:
            self.note(replay.text_answer(want, "look elsewhere"))
            self.state = engine.text_written(self.state, want, "look elsewhere")


SETTINGS = st.builds(
    Settings,
    migration=st.booleans(),
    archive=st.booleans(),
    plans=st.booleans(),
    bandit=st.booleans(),
    texts=st.booleans(),
    restarts=st.booleans(),
)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 5),
    st.lists(st.one_of(st.none(), st.floats(0.1, 10)), max_size=60),
    st.integers(0, 4),
    st.one_of(st.just(Settings()), SETTINGS),
)
def test_any_run_keeps_its_best_fills_its_islands_and_replays(
    seed: int, outcomes: list[float | None], lag: int, parts: Settings
) -> None:
    played = Play(seed, outcomes, lag, parts)
    state = played.state
    assert replay.replay(3, played.candidates, played.answers, parts) == state
    told = [o for o in outcomes[: state.told] if o]
    assert (state.best.fitness if state.best else 0) == max(told, default=0)
    if state.best:
        assert state.best in state.islands[state.best.island].members
        assert state.best in state.archive.values() or not parts.archive
    if state.migrations:
        assert all(island.members for island in state.islands)
    for idea in state.plan.ideas.values():
        assert idea.attempts <= plans.MAX_ATTEMPTS + idea.in_flight
        assert (idea.state is not IdeaState.OPEN) or idea.attempts < plans.MAX_ATTEMPTS
    assert not state.plan.ideas or parts.plans


def test_the_same_seed_and_answers_give_the_same_run_and_another_seed_another() -> None:
    outcomes = [1.0, None, 2.0, 1.5, 1.2] * 10
    assert Play(1, outcomes, 2).asked == Play(1, outcomes, 2).asked != Play(2, outcomes, 2).asked


def test_every_part_of_the_search_takes_place_and_is_noted() -> None:
    played = Play(3, [1.0, None, 2.0, 0.5, 1.2, 0.7] * 25, 2)
    ideas = {idea.state for idea in played.state.plan.ideas.values()}
    assert {IdeaState.GAINED, IdeaState.REFUTED} <= ideas
    assert played.state.migrations
    assert any(island.restarts for island in played.state.islands)
    assert any(text.parents for text in played.state.texts.values())
    kinds = Counter(
        kind
        for before, after in pairwise(played.states)
        for kind, payload in notes.between(before, after, WAYS)
        if json.dumps(payload)
    )
    assert kinds.keys() == {"plan", "strategy", "restart", "shares"}
    assert sum(engine.shares(played.state, WAYS).values()) == pytest.approx(1)


def test_the_control_arm_never_builds_on_what_it_found() -> None:
    state = engine.begin(2, Settings(method=Method.SAMPLING))
    assert engine.ask(state, engine.generator(0, 0), WAYS) is None
    seeds = [candidate(n + 1, 1.0 + n, island=n) for n in range(2)]
    child = candidate(3, 9.0, parents=(1,))
    for one in (*seeds, child):
        state = engine.told(engine.enqueued(state, [one], Operator.SEED), one)
    for number in range(20):
        request = engine.ask(state, engine.generator(0, number), WAYS)
        assert request is not None
        assert request.parents[0].id in (1, 2)
        assert (request.examples, request.idea) == ((), None)
    writer = Way(Operator.SEED, "cheap")
    request = engine.ask(state, engine.generator(0, 0), WAYS | {writer})
    assert request is not None
    assert (request.way, request.parents) == (writer, ())


def test_an_idea_whose_code_broke_is_repaired_until_it_is_given_up() -> None:
    found = evaluation(2.0, findings=(HINT,))
    base = candidate(1, evaluation=found)
    state = engine.told(engine.enqueued(engine.begin(1), [base], Operator.SEED), base)
    pursued = []
    for number in range(2, 200):
        request = engine.ask(state, engine.generator(5, state.asked), WAYS)
        assert request is not None
        child = candidate(number, parents=tuple(p.id for p in request.parents))
        if request.idea is not None:
            pursued.append((request.operator, [p.id for p in request.parents]))
            assert request.idea.state is IdeaState.OPEN
        state = engine.told(engine.drafted(state, request, [child], is_dry=False), child)
    assert len(pursued) == plans.MAX_ATTEMPTS
    assert pursued[0] == (Operator.IMPROVE, [1])
    assert Operator.REPAIR in [operator for operator, _ in pursued]


def test_a_stagnant_island_begins_afresh_from_the_archive_and_the_home_of_the_best_stays() -> None:
    state = seeded(2)
    other = evaluation(1.5, profile={"candidate": {"parts": [{}] * 7}})
    state = engine.told(state, candidate(50, island=1, evaluation=other))
    for number in range(100, 100 + 4 * engine.STALE):
        state = engine.told(state, candidate(number, 0.1, island=number % 2), may_migrate=False)
    home, stale = state.islands[1], state.islands[0]
    assert (home.restarts, stale.restarts > 0) == (0, True)
    assert state.best in home.members
    assert {50} <= {member.id for member in stale.members}


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
