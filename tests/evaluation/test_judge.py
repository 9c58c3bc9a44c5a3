"""What the judge says of tasks, and of candidates that this device cannot check."""

from collections.abc import Iterator

import pytest

from gpu_runner.core import probe
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity, Stage, State, VerifiedAt
from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.evaluation.pool import LocalPool
from tests.evaluation.quick_pool import quick_pool, task, told
from tests.evaluation.verdict_samples import DOUBLE, HEAD, model

EXAM = pytest.mark.exam
pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("verdicts")]

SCALE = """
import torch
import torch.nn as nn

ROWS = 2048
COLUMNS = 1024

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""

FULL_SIZE_ONLY = (
    HEAD
    + """
@triton.jit
def rows(x, y, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) * 2.0)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, N=1024)
        return y
"""
)

ASSEMBLY = (
    HEAD
    + """
@triton.jit
def assembled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    v = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32,
                                  is_pure=True, pack=1)
    tl.store(y + i, v, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        assembled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""
)


SUMS = """
import torch
import torch.nn as nn

ROWS, COLUMNS = ROWS_COLUMNS

class Model(nn.Module):
    def forward(self, x):
        return OUTPUT

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""

ONE_BLOCK_A_ROW = (
    HEAD
    + """
@triton.jit
def row_sums(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(v, 0))

class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        row_sums[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
        return y
"""
)

OFFSETS_OF_32_BITS = (
    HEAD
    + """
@triton.jit
def rows(x, y, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * n + i, mask=i < n)
        tl.store(y + tl.program_id(0) * n + i, v + 1.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
        return y
"""
)

CAPTURED = model("""
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = doubled(x)
graph.replay()
return y
""")


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


def test_a_correct_candidate_has_a_modelled_time_and_names_it_so(pool: LocalPool) -> None:
    seen: list[Stage] = []

    evaluation = pool.evaluate(task(SCALE), model("return doubled(x)"), on_stage=seen.append)

    assert evaluation.is_correct, told(evaluation)
    assert evaluation.fidelity is Fidelity.MODELLED
    assert evaluation.verified_at is VerifiedAt.PROBE
    assert evaluation.candidate is not None
    assert (evaluation.candidate.n, evaluation.candidate.call_us) == (0, None)
    assert evaluation.speedup.eager is not None
    assert evaluation.speedup.eager.low is None
    assert evaluation.speedup.torch_compile is None
    assert evaluation.fitness == evaluation.speedup.eager.ratio
    assert evaluation.profile["kernels"][0]["kernel"] == "double"
    assert [s for s in Stage if s in seen] == [
        Stage.STATIC,
        Stage.LOAD,
        Stage.COMPILE,
        Stage.PROBE,
        Stage.GENUINENESS,
        Stage.TIMING,
    ]


def test_the_users_own_kernel_is_a_named_baseline(pool: LocalPool) -> None:
    wasteful = model("return doubled(doubled(doubled(x)))")

    evaluation = pool.evaluate(task(SCALE, baseline_source=wasteful), model("return doubled(x)"))

    assert evaluation.is_correct, told(evaluation)
    assert evaluation.speedup.user is not None
    assert evaluation.speedup.user.ratio == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(
    ("reference", "source", "reason"),
    [
        (SCALE, FULL_SIZE_ONLY, "1024"),
        (DOUBLE, ASSEMBLY, "assembly"),
        (DOUBLE, CAPTURED, "CUDA graphs"),
    ],
    ids=["full size only", "inline assembly", "CUDA graph"],
)
def test_what_this_device_cannot_check_is_unevaluated(
    pool: LocalPool, reference: str, source: str, reason: str
) -> None:
    evaluation = pool.evaluate(task(reference), source)

    assert (evaluation.verdict, evaluation.state) == (None, State.UNEVALUATED), told(evaluation)
    assert reason in told(evaluation)


@pytest.mark.parametrize(
    ("sizes", "output", "source", "kind", "words"),
    [
        ("512, 4096", "x.sum(1)", ONE_BLOCK_A_ROW, "values", "the rest as large as given"),
        ("70000, 40000", "x + 1.0", OFFSETS_OF_32_BITS, "out_of_bounds", "at full size"),
    ],
    ids=["a block of a fixed size", "offsets of 32 bits"],
)
def test_what_is_right_at_probe_size_only_is_not_correct(
    pool: LocalPool, sizes: str, output: str, source: str, kind: str, words: str
) -> None:
    reference = SUMS.replace("ROWS_COLUMNS", sizes).replace("OUTPUT", output)

    evaluation = pool.evaluate(task(reference), source)

    assert evaluation.kind == kind, told(evaluation)
    assert words in told(evaluation)


SHIFTED = DOUBLE.replace(
    "return x * 2.0", "return torch.cat([x.flatten()[:1], x.flatten()[:-1]]).view_as(x) * 2.0"
)
READS_ITS_NEIGHBOURS = (
    HEAD
    + """
@triton.jit
def shifts(x, s, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(s + i, tl.load(x + i, mask=i < n), mask=i < n)
    before = tl.load(s + tl.maximum(i - 1, 0), mask=i < n)
    tl.store(y + i, before * 2.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y, s = torch.empty_like(x), torch.empty_like(x)
        shifts[(triton.cdiv(x.numel(), 64),)](x, s, y, x.numel(), BLOCK=64)
        return y
"""
)


def test_what_is_right_in_one_order_of_programs_only_is_a_race(pool: LocalPool) -> None:
    evaluation = pool.evaluate(task(SHIFTED), READS_ITS_NEIGHBOURS)

    assert (evaluation.verdict, evaluation.kind) == ("incorrect", "race"), told(evaluation)


FORKS = "import os, time; [os.fork() or time.sleep(60) for _ in range(80)]"
SPARSE = """
def get_inputs():
    return [x.to_sparse() for x in made()]
"""

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8))
        self.norm = nn.BatchNorm1d(8, affine=False)
        self.calls = 0

    def forward(self, x, y):
        {forward}

def get_inputs():
    return [torch.randn(16, 8), {second}]
"""


def task_of(forward: str, second: str = "torch.rand(16, 8)") -> TaskSpec:
    body = forward.replace("\n", "\n        ")
    return task(TASK.format(forward=body, second=second))


@pytest.mark.parametrize(
    ("forward", "kind", "number"),
    [
        ("return x * 0.0 + y * 0.0 + self.w", "constant_output", "change_rms"),
        pytest.param("return self.w + (x + y) * 1e-7", "constant_output", "change_rms", marks=EXAM),
        ("return x * self.w", "dead_input", "change_rms"),
        pytest.param("return x * self.w + y * 1e-7", "dead_input", "change_rms", marks=EXAM),
        ("return x + y", "dead_parameter", "change_rms"),
        pytest.param(
            "return self.norm(x + self.w) + y", "dead_parameter", "change_rms", marks=EXAM
        ),
        ("z = torch.exp(x).sum()\nreturn x * self.w + y", "dead_code", "operations"),
        pytest.param("return (x + y) * self.w * 1e-7", "tiny_output", "rms", marks=EXAM),
        pytest.param(
            "return 1.0 + (x + y) * self.w * 1e-5", "weak_output", "tolerance_rms", marks=EXAM
        ),
        pytest.param("return x.mul_(2.0) + y * self.w", "input_changed", "max_change", marks=EXAM),
        pytest.param(
            "return torch.sqrt(x) + y * self.w", "nonfinite_output", "finite_share", marks=EXAM
        ),
        ("return ((x + 1e7) - 1e7) * y * self.w", "ill_conditioned", "own_error_rms"),
        ("for _ in range(90): x = x + 0.1\nreturn x * self.w + y", "slow_reference", "factor"),
    ],
)
def test_a_task_that_cannot_tell_right_from_wrong_is_warned_of_with_the_number_that_shows_it(
    pool: LocalPool, forward: str, kind: str, number: str
) -> None:
    report = pool.inspect(task_of(forward))

    (found, *_) = [warning for warning in report.warnings if warning.kind == kind]
    assert isinstance(found.evidence[number], float | int)
    assert [tuple(spec.shape) for spec in report.inputs if spec] == [(16, 8), (16, 8)]


def test_an_input_that_is_always_the_same_is_warned_of(pool: LocalPool) -> None:
    report = pool.inspect(task_of("return x * self.w + y", "torch.ones(16, 8)"))

    found = [w.evidence for w in report.warnings if w.kind == "constant_input"]
    assert found == [{"input": 1, "sets": 5}]


def test_an_input_that_only_ends_up_in_another_one_matters(pool: LocalPool) -> None:
    source = task_of("y[:4] = x[:4]\nreturn x[4:] * self.w").source + "\nINPLACE = True\n"

    kinds = {warning.kind for warning in pool.inspect(task(source)).warnings}
    assert "dead_input" not in kinds
    assert "input_changed" in kinds


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return nn.functional.dropout(x * self.w + y)", "aten::bernoulli_"),
        ("self.calls += 1\nreturn x * self.w + y + self.calls", "keeps something between calls"),
    ],
    ids=["random", "hidden state"],
)
def test_what_answers_differently_each_time_is_untestable_and_no_candidates_fault(
    pool: LocalPool, forward: str, reason: str
) -> None:
    spec = task_of(forward)

    found = pool.inspect(spec).untestable
    assert found is not None
    assert reason in found.title
    assert float(found.evidence["max_difference_rms"]) > 0.01  # type: ignore[arg-type]
    with pytest.raises(InvalidTask, match="untestable"):
        pool.evaluate(spec, model("return doubled(x)"))


LITERAL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x @ x.t()

def get_inputs():
    return [torch.randn(2048, 2048)]
"""


CHAMFER = """
import torch
import torch.nn as nn

BATCH, POINTS = 16, 2048

class Model(nn.Module):
    def forward(self, a, b):
        return (a[:, :, None] - b[:, None]).square().sum(-1).amin(-1)

def get_inputs():
    return [torch.randn(BATCH, POINTS, 3), torch.randn(BATCH, POINTS, 3)]
"""


def test_a_probe_is_small_enough_for_what_lies_between_inputs_and_outputs(pool: LocalPool) -> None:
    first = probe.probe_assignments(CHAMFER)[0]

    values = pool.inspect(task(CHAMFER)).probe

    assert values is not None
    pairs, most = (v["BATCH"] * v["POINTS"] ** 2 for v in (values, first))
    assert values["POINTS"] % 16
    assert 100_000 < pairs < most / 5


def test_the_same_inputs_each_time_make_no_decoy_of_a_kernel(pool: LocalPool) -> None:
    same = task(SCALE.replace("torch.randn(ROWS, COLUMNS)", "torch.arange(300.0)"))

    found = [pool.evaluate(same, model("return doubled(x)") + f"# {i}") for i in range(4)]

    assert [told(evaluation) for evaluation in found if not evaluation.is_correct] == []


def test_what_nothing_makes_small_enough_to_interpret_is_for_a_gpu_only(pool: LocalPool) -> None:
    report = pool.inspect(task(LITERAL))
    (found,) = [warning for warning in report.warnings if warning.kind == "gpu_only"]
    assert float(found.evidence["seconds"]) > 60  # type: ignore[arg-type]
    assert [tuple(spec.shape) for spec in report.outputs] == [(2048, 2048)]

    evaluation = pool.evaluate(task(LITERAL), model("return doubled(x)"))

    assert (evaluation.verdict, evaluation.state) == (None, State.UNEVALUATED), told(evaluation)


def test_a_sound_task_is_not_warned_of(pool: LocalPool) -> None:
    report = pool.inspect(task_of("return torch.tanh((self.norm(x) * self.w) @ y.t())"))

    assert report.warnings == ()
    assert [tuple(spec.shape) for spec in report.outputs] == [(16, 16)]


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("def f(:\n", 1, "invalid syntax"),
        ("import torch\n", None, "Model"),
        (
            DOUBLE.replace("import torch.nn as nn", "import torch.nn as nn\nimport no_such_module"),
            4,
            "no_such_module",
        ),
        (DOUBLE.replace("return x * 2.0", "return x.no_such()"), 7, "no_such"),
        (DOUBLE.replace("return x * 2.0", "return None"), None, "no tensor"),
        (
            DOUBLE.replace("import torch.nn as nn", "import torch.nn as nn\nwhile True: pass"),
            None,
            "did not end",
        ),
        (DOUBLE.replace("return x * 2.0", "import os; os._exit(3)"), None, "exit code 3"),
        (DOUBLE + "\nTOLERANCE = 'tight'\n", None, "TOLERANCE"),
        (DOUBLE.replace("return x * 2.0", f"{FORKS}; return x"), None, "more processes"),
        (DOUBLE.replace("return x * 2.0", "return x[:0]"), None, "every output is empty"),
        (DOUBLE.replace("return x * 2.0", "raise OSError(chr(0xD800))"), 7, "OSError"),
        (DOUBLE + "\nmade = get_inputs\n" + SPARSE, None, "torch.sparse_coo tensor"),
    ],
    ids="syntax model import forward tensor endless exit tolerance forks empty surrogate sparse".split(),
)
def test_an_unusable_task_is_refused_with_line_and_reason(
    pool: LocalPool, source: str, line: int | None, reason: str
) -> None:
    with pytest.raises(InvalidTask) as refused:
        pool.inspect(task(source))

    assert refused.value.line == line
    assert reason in refused.value.reason
