from types import SimpleNamespace

from evolution_app.templatetags.foundry import stage_bar
from gpu_runner.core.verdicts import Stage, State


def test_the_marks_of_a_candidate_in_progress_are_markup() -> None:
    candidate = SimpleNamespace(state=State.EVALUATING, stage=Stage.PROBE, is_correct=False)

    bar = stage_bar(candidate)

    assert "&lt;" not in bar
    assert bar.count("<i ") == len(Stage)
    assert (bar.count('"done"'), bar.count('"now"')) == (list(Stage).index(Stage.PROBE), 1)
