"""What changed between two sources is told by rules."""

import pytest

from gpu_runner.experience.changes import changes

ONE = "@triton.jit\ndef k(x, BLOCK: tl.constexpr):\n    tl.load(x)\n\nk[(1,)](x, BLOCK=128, num_warps=4)\n"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (ONE, ONE, ()),
        (ONE, ONE.replace("128", "1024"), ("BLOCK 128 becomes 1024",)),
        (ONE, ONE.replace("num_warps=4", "num_warps=8"), ("num_warps 4 becomes 8",)),
        (ONE + ONE, ONE, ("1 kernel instead of 2", "1 launch instead of 2", "1 load less")),
        (
            ONE,
            ONE.replace("tl.load(x)", "tl.dot(tl.load(x), y)"),
            ("products on tensor cores came in",),
        ),
        (ONE.replace("tl.load(x)", "tl.atomic_add(x, tl.load(x))"), ONE, ("atomics went",)),
        ("", "", ()),
    ],
)
def test_a_change_is_recognised(before: str, after: str, told: tuple[str, ...]) -> None:
    assert changes(before, after) == told
