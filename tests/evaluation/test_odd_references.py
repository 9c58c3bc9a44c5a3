"""Whatever a reference takes, keeps and returns: right candidates are correct, wrong ones are told what is wrong."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.evaluation.pool import LocalPool
from tests.evaluation.odd_references import ODD, Odd
from tests.evaluation.quick_pool import quick_pool, task, told

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("odd references")]
QUICK = {"nested, right 1", "named tuple, right 0", "training mode, wrong 0", "float8, right 0"}
QUICK.add("shape of an input left as it came, wrong 0")


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


def _cases() -> list[Any]:
    return [
        pytest.param(odd, source, kind, id=name, marks=[] if name in QUICK else [pytest.mark.exam])
        for odd in ODD
        for name, source, kind in odd.candidates()
    ]


@pytest.mark.parametrize(("odd", "source", "kind"), _cases())
def test_a_candidate_of_an_odd_reference_is_judged_rightly(
    pool: LocalPool, odd: Odd, source: str, kind: str | None
) -> None:
    evaluation = pool.evaluate(task(odd.task), source)

    assert evaluation.kind == kind, told(evaluation)
    assert evaluation.is_correct == (kind is None), told(evaluation)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("from dataclasses import make_dataclass\nreturn make_dataclass('Out', ['y'])(x)", "Out"),
        ("x.to_sparse()", "sparse"),
        ("x.as_subclass(type('Agreeing', (torch.Tensor,), {}))", "Agreeing"),
    ],
)
def test_what_cannot_be_compared_is_said_to_be_so(
    pool: LocalPool, forward: str, reason: str
) -> None:
    with pytest.raises(InvalidTask, match=reason):
        pool.inspect(task(Odd("incomparable", forward, ()).task))
