"""How the pages put into words what rows and children hold."""

import pytest

from evolution_app.events import RUN_STATE
from evolution_app.models import RunEvent
from evolution_app.templatetags.foundry import conditions, evidence_value, unwrapped
from evolution_app.views.candidates import _plain
from evolution_app.views.run_log import line_of
from gpu_runner.core.entries import When
from gpu_runner.core.verdicts import Track


def test_the_log_does_not_ask_for_what_has_happened() -> None:
    payload = {"state": "finished", "wanted": "stopping", "reason": "stopped by a person"}
    ended = RunEvent(seq=1, kind=RUN_STATE, payload=payload)
    assert line_of(ended).text == "the run is finished: stopped by a person"
    asked = {"state": "evaluating", "wanted": "stopping", "reason": ""}
    assert line_of(RunEvent(seq=2, kind=RUN_STATE, payload=asked)).text.endswith("for: stopping")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one sentence\nof an editor", "one sentence of an editor"),
        ("a paragraph\n\nanother", "a paragraph\n\nanother"),
        ("do\n- this\n- that", "do\n- this\n- that"),
        ("first\r\nsecond", "first second"),
        ("code:\n    x = 1", "code:\n    x = 1"),
    ],
)
def test_only_line_breaks_that_mean_something_are_kept(text: str, shown: str) -> None:
    assert unwrapped(text) == shown


def test_an_entry_says_when_it_applies_in_words() -> None:
    when = When(operators=("mm", "bmm"), bottlenecks=("bound_by_dot",), tracks=(Track.OWN_KERNELS,))
    assert conditions(when) == "operators mm, bmm; findings bound by dot; track own kernels"
    assert conditions(When()) == "anywhere"


def test_structures_of_a_profile_are_written_for_people() -> None:
    dots = [{"dtype": "f32", "precision": "tf32x3"}, {"dtype": "bf16"}]
    assert _plain(dots) == "dtype f32, precision tf32x3; dtype bf16"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (507_510_784.0, "507,510,784"),
        (86.4753, "86.48"),
        (9_999.0, "9999"),
        (1e30, "1e+30"),
        (-2.5e5, "-250,000"),
    ],
)
def test_large_numbers_of_evidence_are_written_out(value: float, shown: str) -> None:
    assert evidence_value(value) == shown
