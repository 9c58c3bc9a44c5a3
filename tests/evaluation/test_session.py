"""What leaves the evaluation is text that a terminal and a database can take."""

from gpu_runner.evaluation.session import printable


def test_control_characters_are_escaped_wherever_they_stand() -> None:
    told = {"title": "no \x1b[2J \x00", "lines": [3, "a\nb\tc", {"é\r": None}]}

    assert printable(told) == {
        "title": r"no \x1b[2J \x00",
        "lines": [3, "a\nb\tc", {r"é\r": None}],
    }
