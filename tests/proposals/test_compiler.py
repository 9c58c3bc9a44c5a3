"""Candidates from the compiler's fusion: right at probe size, standalone, and refused where they would be wrong."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.source import Problem, parse
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Track
from gpu_runner.proposals import compiler
from gpu_runner.proposals.child.compiler_capture import VARIANTS, Refused
from gpu_runner.proposals.child.compiler_class import model_shell
from gpu_runner.proposals.child.compiler_kernels import KernelRewriter, PlainKernel
from gpu_runner.proposals.child.compiler_launch import block_sizes
from gpu_runner.proposals.child.compiler_program import Kernel
from gpu_runner.proposals.child.compiler_sizes import Sizes, told_apart
from gpu_runner.proposals.child.compiler_text import expression, layout, simplify_sizes
from tests.proposals.compiled import COMPARE, EXAMPLES, compiled, example, files, request
from tests.proposals.interpreted import run_script

TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""Largest error of a candidate in units of the result's rms; half precision rounds large values more than that."""


def dtype_of(source: str) -> str:
    ways = {"bfloat16": "torch.bfloat16|.bfloat16()", "float16": "torch.float16|.half()"}
    return next((d for d, w in ways.items() if any(t in source for t in w.split("|"))), "float32")


def assert_standalone(source: str) -> None:
    assert not isinstance(parse(source), Problem)
    words = "inductor triton_helpers tl_math async_compile reinterpret_tensor xnumel extern_kernels"
    assert not [word for word in words.split() if word in source]
    assert not re.search(r"\b(tmp\d+|ks\d+|s\d+|buf\d+|arg\d+_1)\b", source)
    assert max(map(len, source.splitlines())) <= 130


def assert_right(drafts: dict[str, tuple[str, str]], folder: Path) -> None:
    errors = run_script(COMPARE, folder, files(drafts))
    limits = {name: TOLERANCE[dtype_of(task)] for name, (task, _) in drafts.items()}
    assert {name: e for name, e in errors.items() if not e <= limits[name]} == {}


# The whole way, on a few examples of each kind -----------------------------------------------------------------------

FEW = {
    "linear_gelu": "own_kernels",
    "conv_bias_relu": "own_kernels",
    "layer_norm": "own_kernels",
    "rms_norm_swiglu": "library_allowed",
    "cross_entropy": "library_allowed",
    "matmul_scale_softmax": "library_allowed",
}


@pytest.fixture(scope="module")
def few() -> dict[str, dict[str, Any]]:
    requests = {n: request(example(n), track, "default", "looped") for n, track in FEW.items()}
    return compiled(requests)


def drafts_of(answers: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {
        f"{name}_{draft['variant']}": (example(name), draft["source"])
        for name, answer in answers.items()
        for draft in answer["drafts"]
    }


def test_candidates_agree_with_their_tasks_at_probe_size(
    few: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    drafts = drafts_of(few)
    assert {name.rpartition("_")[0] for name in drafts} == set(FEW)
    assert_right(drafts, tmp_path)


def test_candidates_stand_alone(few: dict[str, dict[str, Any]]) -> None:
    for _, source in drafts_of(few).values():
        assert_standalone(source)


def test_the_track_decides_who_multiplies(few: dict[str, dict[str, Any]]) -> None:
    own = few["linear_gelu"]["drafts"][0]["source"]
    library = few["rms_norm_swiglu"]["drafts"][0]["source"]
    assert "torch.addmm" not in own
    assert "tl.dot" in own
    assert "torch.mm(" in library
    assert "tl.dot" not in library


def test_looped_reductions_differ_from_persistent_ones(few: dict[str, dict[str, Any]]) -> None:
    sources = {d["variant"]: d["source"] for d in few["layer_norm"]["drafts"]}
    assert "for start in range" in sources["looped"]
    assert "for start in range" not in sources["default"]


def test_equal_programs_are_drafted_once(few: dict[str, dict[str, Any]]) -> None:
    assert [d["variant"] for d in few["linear_gelu"]["drafts"]] == ["default"]
    assert few["linear_gelu"]["refused"] == {"looped": "the same program as another variant"}


@pytest.mark.exam
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("level", ["level1", "level2", "level3", "serving"])
@pytest.mark.parametrize("track", ["own_kernels", "library_allowed"])
def test_whatever_is_drafted_for_an_example_is_right(
    track: str, level: str, tmp_path: Path
) -> None:
    names = [path.stem for path in sorted(EXAMPLES.glob(f"{level}/*.py"))]
    answers = compiled({n: request(example(n), track, *compiler.VARIANTS) for n in names})
    drafts = drafts_of(answers)
    without = [name for name in names if not answers[name]["drafts"]]
    assert len(without) <= len(names) / 5, without
    for _, source in drafts.values():
        assert_standalone(source)
    assert_right(drafts, tmp_path)


# What cannot be compiled into plain launches --------------------------------------------------------------------------

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
TAIL = """

n_rows = 640
n_cols = 4096


def get_inputs():
    return [torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
"""
REFUSED = {
    "dropout": ("    def forward(self, x):\n        return F.dropout(x, 0.5)\n", "random"),
    "noise": ("    def forward(self, x):\n        return x + torch.randn_like(x)\n", "random"),
    "counts": ("    def forward(self, x):\n        return torch.histc(x, 64) * 2\n", "library"),
}


def test_what_would_be_wrong_is_refused_with_its_reason() -> None:
    answers = compiled({name: request(HEAD + body + TAIL) for name, (body, _) in REFUSED.items()})
    for name, (_, reason) in REFUSED.items():
        assert answers[name]["drafts"] == [], name
        assert reason in answers[name]["refused"]["default"], name


RIGHT = {
    "eval_dropout": "    def forward(self, x):\n        return F.dropout(x, 0.5, False) + 1\n",
    "row_maximum": "    def forward(self, x):\n        return x.amax(dim=1)\n",
    "tied_attribute": (
        "    def __init__(self, width):\n        super().__init__()\n        self.scale = width**-0.5\n\n"
        "    def forward(self, x):\n        return torch.softmax(x * self.scale, dim=0)\n"
    ),
    "helper_module": (
        "    def __init__(self, width):\n        super().__init__()\n"
        "        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])\n\n"
        "    def forward(self, x):\n        for block in self.blocks:\n"
        "            x = block(x)\n        return x\n"
    ),
    "two_results": (
        "    def forward(self, x):\n        return torch.tanh(x).sum(dim=1, keepdim=True) + x.std()\n"
    ),
}
BLOCK = """

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.sigmoid(x) * self.weight
"""


def test_tasks_with_attributes_modules_and_odd_reductions_compile(tmp_path: Path) -> None:
    sources = {
        name: HEAD + body + BLOCK + (TAIL.replace("[]", "[n_cols]") if "width" in body else TAIL)
        for name, body in RIGHT.items()
    }
    answers = compiled({name: request(source) for name, source in sources.items()})
    assert {n: a["refused"] for n, a in answers.items() if a["refused"]} == {}
    drafts = {name: (sources[name], a["drafts"][0]["source"]) for name, a in answers.items()}
    assert_right(drafts, tmp_path)
    assert "self.scale" in drafts["tied_attribute"][1]
    assert "self.blocks[1].weight" in drafts["helper_module"][1]


def written(init: str, forward: str, inputs: str, **sizes: int) -> str:
    """A task of a constructor and a forward, statements separated by semicolons, and one line of inputs."""
    given = forward.partition("|")[0]
    lines = [f"{name} = {value}" for name, value in sizes.items()]
    lines += ["", "def get_inputs():", f"    return [{inputs}]", "", "def get_init_inputs():"]
    lines += [f"    return [{', '.join(sizes)}]", ""]
    body = "\n        ".join(line.strip() for line in forward.partition("|")[2].split(";"))
    made = "\n        ".join(line.strip() for line in init.split(";"))
    start = f"    def __init__(self, {', '.join(sizes)}):\n        super().__init__()\n        {made}\n\n"
    return f"{HEAD}{start}    def forward(self, {given}):\n        {body}\n\n" + "\n".join(lines)


HARDER = {
    "as many groups as channels": written(
        "self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)",
        "x| return torch.relu(self.conv(x))",
        "torch.randn(batch, channels, size, size)", batch=24, channels=64, size=56,
    ),
    "windows that depend on the size": written(
        "self.conv = nn.Conv2d(3, width, patch_size, stride=patch_size)",
        "x| return torch.tanh(self.conv(x).flatten(2))",
        "torch.randn(batch, 3, high * patch_size, wide * patch_size)",
        batch=64, width=96, patch_size=16, high=13, wide=15,
    ),
    "results side by side": written(
        "self.first = nn.Linear(width, 40); self.second = nn.Linear(width, width)",
        "x| a = torch.relu(self.first(x)); b = torch.tanh(self.second(x));"
        "return torch.stack((torch.cat((a, b, x.sin()), dim=1), torch.cat((x, b, a), dim=1)), dim=1)",
        "torch.randn(rows, width)", rows=4096, width=96,
    ),
    "the highest of each row": written(
        "self.scale = 2.0",
        "x| best, places = x.topk(5, dim=-1); return torch.softmax(best * self.scale, dim=-1), places",
        "torch.randn(rows, width)", rows=4096, width=300,
    ),
    "a histogram of integers": written(
        "self.bins = bins",
        "x| counts = torch.zeros(self.bins, dtype=torch.int64, device=x.device);"
        "return counts.index_add(0, x, torch.ones_like(x))",
        "torch.randint(0, bins, (count,))", bins=200, count=8192,
    ),
    "two numbers to a byte": written(
        "self.register_buffer('packed', torch.randint(0, 256, (rows, width), dtype=torch.uint8))",
        "x| halves = torch.stack((self.packed & 15, self.packed >> 4), dim=-1);"
        "return x * (halves.flatten(1).float() - 8)",
        "torch.randn(rows, 2 * width)", rows=400, width=300,
    ),
    "the largest in windows of one dimension": written(
        "self.pool = nn.MaxPool1d(5, stride=2, padding=2)", "x| return self.pool(x)",
        "torch.randn(batch, 24, length)", batch=16, length=4000,
    ),
    "averages in three dimensions, padding not counted": written(
        "self.pool = nn.AvgPool3d(3, stride=2, padding=1, count_include_pad=False)",
        "x| return self.pool(x)",
        "torch.randn(batch, 4, depth, size, size)", batch=8, depth=24, size=40,
    ),
    "rows by index": written(
        "pass", "x, y| return torch.take_along_dim(x, y[:, :, None], dim=1) * 2",
        "torch.randn(batch, steps, 24), torch.randint(0, steps, (batch, 50))", batch=32, steps=300,
    ),
    "a hash of integers": written(
        "self.rows = rows; self.table = nn.Embedding(rows, 24)",
        "x| return self.table((x * 2654435761 ^ x.flip(1) * 40503) % self.rows)",
        "torch.randint(0, 9999, (batch, steps))", batch=16, steps=500, rows=700,
    ),
    "statistics of the batch": written(
        "self.norm = nn.BatchNorm1d(width)", "x| return self.norm(x)",
        "torch.randn(rows, width)", rows=640, width=300,
    ),
    "a counter": written(
        "self.register_buffer('calls', torch.zeros(()))", "x| self.calls += 1; return x * 2",
        "torch.randn(rows, width)", rows=640, width=300,
    ),
    "rows written to an input": written(
        "pass", "x, places, cache| cache[places] = x * 2; return x.sin()",
        "torch.randn(rows, 24), torch.randperm(rows * 2)[:rows], torch.randn(rows * 2, 24)", rows=640,
    ),
    "a statistic that is a scalar buffer": written(
        "self.norm = nn.BatchNorm2d(width).eval()", "x| return torch.relu(self.norm(x))",
        "torch.randn(batch, width, size, size)", batch=16, width=48, size=40,
    ),
    "a running maximum with its places": written(
        "pass", "x| best, places = torch.cummax(x, dim=1); return {'best': best * 2, 'places': [places, None]}",
        "torch.randn(batch, steps, width)", batch=8, steps=300, width=96,
    ),
    "a running logarithm of sums": written(
        "pass", "x| return torch.logcumsumexp(x, dim=-1)", "torch.randn(rows, width)", rows=640, width=900,
    ),
    "how many were guessed": written(
        "pass", "x, y| return (x.argmax(dim=1) == y).float().mean(), x.argmin(dim=0)",
        "torch.randn(rows, width), torch.randint(0, width, (rows,))", rows=640, width=900,
    ),
    "between which bounds": written(
        "self.register_buffer('bounds', torch.linspace(-2, 2, 17))",
        "x| return torch.bucketize(x, self.bounds, right=True) + torch.searchsorted(self.bounds, x)",
        "torch.randn(rows, width)", rows=640, width=96,
    ),
    "around the median": written(
        "pass", "x| return x - x.median(dim=-1, keepdim=True).values + x.kthvalue(3, dim=0).values",
        "torch.randn(rows, width)", rows=640, width=301,
    ),
    "a recurrent layer of fixed length": written(
        "self.cells = nn.LSTM(32, width, 2, batch_first=True, bidirectional=True)",
        "x| y, (h, c) = self.cells(x); return y.relu(), c",
        "torch.randn(batch, 5, 32)", batch=64, width=40,
    ),
    "a product of two inputs and a weight": written(
        "self.mix = nn.Bilinear(32, width, 20)", "x, y| return self.mix(x, y).sigmoid()",
        "torch.randn(rows, 32), torch.randn(rows, width)", rows=640, width=48,
    ),
    "bags of words": written(
        "self.words = nn.EmbeddingBag(500, width, mode='max')", "x| return self.words(x)",
        "torch.randint(0, 500, (rows, 20))", rows=640, width=64,
    ),
    "inputs named as what a module is made of": written(
        "self.grid = nn.Linear(width, width); self.output = nn.Linear(width, width)",
        "grid, output, numel| return torch.relu(self.grid(grid)) + self.output(output) * numel",
        "torch.randn(rows, width), torch.randn(rows, width), torch.randn(rows, 1)", rows=640, width=96,
    ),
    "all of it, and one number of all of it": written(
        "self.codes = nn.Embedding(50, width)",
        "x, y| near = self.codes(x); return near, F.mse_loss(near, y)",
        "torch.randint(0, 50, (rows,)), torch.randn(rows, width)", rows=8192, width=64,
    ),
    "as many rows as torch asks about": written(
        "self.conv = nn.Conv2d(width, width, 3, padding=1)",
        "x| return F.silu(self.conv(x)).mean(dim=1)",
        "torch.randn(batch, width, size, size)", batch=16, width=24, size=40,
    ),
    "twice the size, smoothly": written(
        "pass", "x| return F.interpolate(x, scale_factor=2, mode='bicubic', align_corners=False)",
        "torch.randn(batch, 4, size, size)", batch=8, size=40,
    ),
    "half the size, groups of channels, back": written(
        "self.down = nn.Conv2d(n_channels, 2 * n_channels, 3, stride=2, padding=1);"
        "self.norm = nn.GroupNorm(n_groups, 2 * n_channels);"
        "self.up = nn.Conv2d(2 * n_channels, n_channels, 3, padding=1)",
        "x| y = self.up(F.silu(self.norm(self.down(x)))); return x + F.interpolate(y, size=x.shape[-2:])",
        "torch.randn(batch, n_channels, height, width)",
        n_channels=64, n_groups=8, batch=8, height=64, width=64,
    ),
}  # fmt: skip
"""From what is hard about a task to its source: at full size all of it is of the task's text, so nothing may stay fixed."""


FIRST = (
    "as many groups as channels",
    "results side by side",
    "the highest of each row",
    "a running maximum with its places",
    "all of it, and one number of all of it",
)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(FIRST, id="a few"),
        pytest.param(tuple(HARDER.keys() - FIRST), id="the others", marks=pytest.mark.exam),
    ],
)
def test_geometry_parts_several_results_and_state_compile_to_right_candidates(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    answers = compiled({n: request(HARDER[n], "library_allowed") for n in names})
    assert {n: a["refused"] for n, a in answers.items() if a["refused"]} == {}
    drafts = {
        re.sub(r"\W", "_", n): (HARDER[n], a["drafts"][0]["source"]) for n, a in answers.items()
    }
    assert_right(drafts, tmp_path)
    for _, source in drafts.values():
        assert_standalone(source)


OWN = {
    "the highest of each row": HARDER["the highest of each row"],
    "around the median": HARDER["around the median"],
    "in falling order, in rising order, the lowest along the first axis": written(
        "pass",
        "x, y| falling, places = torch.sort(x, dim=1, descending=True); low, where = x.topk(3, dim=0, largest=False);"
        "return falling * 2, places, low + 1, where, y.argsort(dim=-1, stable=True) + 1, torch.mm(x, x.t())",
        "torch.randn(rows, width), torch.randint(0, 9, (rows, width, 7)).half()", rows=640, width=300,
    ),
}  # fmt: skip


def test_sorts_and_selections_are_own_kernels_where_no_library_may_help(tmp_path: Path) -> None:
    answers = compiled({name: request(source) for name, source in OWN.items()})
    assert {n: a["refused"] for n, a in answers.items() if not a["drafts"]} == {}
    drafts = {f"t{i}": (OWN[n], answers[n]["drafts"][0]["source"]) for i, n in enumerate(OWN)}
    assert_right(drafts, tmp_path)
    for _, source in drafts.values():
        assert_standalone(source)
        assert not re.search(r"torch\.(topk|sort|mm)\(", source)
    launched = run_script(ON_A_GPU, tmp_path, files(drafts), interpret=False)
    assert {"top_k_along_kernel", "sorted_order_along_kernel"} <= set(launched)


ON_A_GPU = """
for name in json.load(open("names.json")):
    task, candidate = load(f"{name}.task.py"), load(f"{name}.py")
    candidate.ModelNew(*task.get_init_inputs())(*task.get_inputs())
print(json.dumps([name for name, *_ in compiled]))
"""


def test_functions_beside_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    names = ("a running maximum with its places", "how many were guessed", "between which bounds")
    answers = compiled({n: request(HARDER[n]) for n in names})
    drafts = {f"t{i}": (HARDER[n], answers[n]["drafts"][0]["source"]) for i, n in enumerate(names)}
    launched = run_script(ON_A_GPU, tmp_path, files(drafts), interpret=False)
    assert {"cummax_kernel", "argmax_kernel", "bucketize_searchsorted_add_kernel"} <= set(launched)


# The parent's side ------------------------------------------------------------------------------------------------------


class FakePool:
    def __init__(self) -> None:
        self.request: dict[str, Any] = {}

    def call(
        self, entry: str, request: dict[str, Any], *, nursery: str = "", timeout_s: float = 0
    ) -> dict[str, Any]:
        self.request = {"entry": entry, "nursery": nursery, **request}
        return {
            "drafts": [{"variant": "looped", "source": "class ModelNew: ...", "move": "in a loop"}],
            "refused": {"default": "no"},
        }


REPORT = TaskReport(inputs=(), outputs=(), probe={"n": 7})


def test_drafts_name_the_variant_that_wrote_them() -> None:
    pool = FakePool()
    task = TaskSpec(name="t", source="n = 64\n", track=Track.LIBRARY_ALLOWED)
    (draft,) = compiler.drafts(pool, task, REPORT)

    assert (draft.origin, draft.move) == ("compiler:looped", "in a loop")
    assert pool.request == {
        "entry": "gpu_runner.proposals.child.compiler:compile_source",
        "nursery": "compile",
        "source": "n = 64\n",
        "probe": {"n": 7},
        "track": "library_allowed",
        "precision": "reference",
        "variants": list(compiler.VARIANTS),
        "begin_within_s": compiler.BEGIN_WITHIN_S,
    }


def test_what_was_drafted_in_time_is_kept_where_another_variant_would_take_too_long() -> None:
    slow = request(example("layer_norm"), "own_kernels", "default", "looped") | {
        "begin_within_s": 0.0
    }
    answer = compiled({"slow": slow})["slow"]
    assert [draft["variant"] for draft in answer["drafts"]] == ["default"]
    assert answer["refused"] == {"looped": "there was no time left for it"}


def test_an_unknown_variant_is_an_error() -> None:
    with pytest.raises(ValueError, match="fastest"):
        compiler.drafts(FakePool(), TaskSpec(name="t", source=""), REPORT, ["fastest"])


def test_parent_and_child_know_the_same_variants() -> None:
    assert tuple(VARIANTS) == compiler.VARIANTS


# Sizes ------------------------------------------------------------------------------------------------------------------


def test_a_dimension_is_expressed_by_the_task_s_sizes() -> None:
    sizes = Sizes.of({"n_rows": 640, "n_cols": 4096}, {"n_rows": 19, "n_cols": 67})
    found = {
        pair: getattr(sizes.expression(pair, fallback="width"), "text", None)
        for pair in [(4096, 67), (12288, 201), (640 * 4096, 19 * 67), (3, 3), (641, 20), (99, 5)]
    }
    assert found == {
        (4096, 67): "n_cols",
        (12288, 201): "3 * n_cols",
        (640 * 4096, 19 * 67): "n_rows * n_cols",
        (3, 3): None,
        (641, 20): "n_rows + 1",
        (99, 5): "width",
    }
    assert sizes.symbols["width"] == (99, 5)


def test_features_of_heads_are_written_as_a_product() -> None:
    sizes = Sizes.of({"n_features": 1024, "n_heads": 16}, {"n_features": 64, "n_heads": 4})
    assert sizes.symbols == {"n_heads": (16, 4), "n_features_per_n_heads": (64, 16)}
    assert sizes.products["n_features"].text == "n_heads * n_features_per_n_heads"
    factor = sizes.expression((64, 16), fallback="x")
    assert factor is not None
    assert factor.text == "n_features_per_n_heads"


def test_equal_sizes_are_told_apart_by_a_third_assignment() -> None:
    full = {"batch": 32, "height": 128, "width": 128, "kernel": 3}
    probe = {"batch": 3, "height": 15, "width": 15, "kernel": 3}
    third = told_apart(full, probe)
    assert third == {"batch": 3, "height": 15, "width": 17, "kernel": 3}
    sizes = Sizes.of(full, probe, third)
    texts = [e and e.text for e in (sizes.expression((128, 15, v), "new") for v in (15, 17))]
    assert texts == ["height", "width"]
    assert told_apart({"a": 4, "b": 8}, {"a": 2, "b": 3}) is None


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("(1) * ((1) >= (ks0)) + (ks0) * ((ks0) > (1))", "ks0"),
        ("(a) * ((a) <= (b)) + (b) * ((b) < (a))", "tl.minimum(a, b)"),
        ("(-1) + x0", "x0 - 1"),
        ("x4 + ((-1)*ks0)", "x4 - ks0"),
        ("max(1, n // 2) * 1", "n // 2"),
    ],
)
def test_arithmetic_of_sizes_is_written_as_a_person_would(text: str, simple: str) -> None:
    assert ast.unparse(simplify_sizes(expression(text))) == simple


def test_long_statements_are_broken_at_commas_and_operators() -> None:
    word = "quite_a_long_name_of_a_value"
    call = ast.parse(f"x = tl.load({word} + {word} + {word} + {word}, mask=m).to(tl.float32)")
    assert layout(call.body[0], 4) == [
        "    x = tl.load(",
        f"        {word}",
        f"        + {word}",
        f"        + {word}",
        f"        + {word},",
        "        mask=m,",
        "    ).to(tl.float32)",
    ]


# Kernels ----------------------------------------------------------------------------------------------------------------


def rewritten(
    body: str, arguments: dict[str, str], hints: dict[str, int], kind: str, **floats: str
) -> PlainKernel:
    """A kernel of this body; arguments from inductor's name to its type; their host names are their own."""
    blocks = [f"{axis.upper()}BLOCK" for axis in hints if kind != "persistent" or axis != "r0_"]
    parameters = ", ".join([*arguments, *(f"{block}: tl.constexpr" for block in blocks)])
    tree = ast.parse(f"def kernel({parameters}):\n{body}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    kernel = Kernel("kernel", tree, [], kind, hints, arguments, ["softmax"])
    names = {"in_ptr0": "x", "out_ptr0": "output", "ks0": "width", "xnumel": "numel"}
    host = [names.get(name, name) for name in arguments]
    return KernelRewriter(kernel, "plain", host, host, floats).rewrite()


POINTWISE = """
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask, eviction_policy='evict_last').to(tl.float32)
    tmp1 = tmp0.to(tl.float32)
    tmp2 = tl.full([1], 0.5, tl.float32)
    tmp3 = tmp1 * tmp2
    tmp4 = tmp1 * tmp1
    tmp5 = libdevice.tanh(tmp3)
    tl.store(out_ptr0 + (x0), tmp5, xmask)
"""
BF16 = {"in_ptr0": "*bf16", "out_ptr0": "*bf16", "xnumel": "i32"}


def test_a_pointwise_kernel_becomes_what_a_person_would_write() -> None:
    kernel = rewritten(POINTWISE, BF16, {"x": 4096}, "pointwise")
    assert kernel.text.splitlines() == [
        "@triton.jit",
        "def plain(x_ptr, output_ptr, numel, BLOCK: tl.constexpr):",
        '    """Fused: softmax."""',
        "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offsets < numel",
        "    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)",
        "    output = libdevice.tanh(x * 0.5)",
        "    tl.store(output_ptr + offsets, output, mask=mask)",
    ]
    assert kernel.needs_libdevice
    assert kernel.blocks == {"BLOCK": "_2"}


def test_a_constant_that_depends_on_the_size_becomes_a_parameter() -> None:
    kernel = rewritten(POINTWISE, BF16, {"x": 4096}, "pointwise", **{"0.5": "norm.scale"})
    assert "libdevice.tanh(x * scale)" in kernel.text
    assert [p.name for p in kernel.parameters] == ["x_ptr", "output_ptr", "numel", "scale"]
    host = kernel.parameters[-1].source
    assert isinstance(host, ast.AST)
    assert ast.unparse(host) == "self.norm.scale"


REDUCTION = """
    R0_BLOCK: tl.constexpr = 4096
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_offset = 0
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp0 = tl.load(in_ptr0 + (r0_1 + ks0*xindex), r0_mask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask & xmask, tmp1, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None].to(tl.float32)
    tmp5 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
    tmp6 = triton_helpers.max2(tmp5, 1)[:, None].to(tl.float32)
    tmp7 = triton_helpers.maximum(tmp6, tmp4)
    tl.store(out_ptr0 + (xindex), tmp7, xmask)
"""
F32 = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "ks0": "i64", "xnumel": "i32", "r0_numel": "i32"}


def test_a_reduction_masks_what_is_not_masked_already() -> None:
    kernel = rewritten(REDUCTION, F32, {"x": 640, "r0_": 4096}, "persistent_reduction")
    assert "total = tl.sum(x, 1)[:, None]" in kernel.text
    assert 'largest = tl.max(tl.where(col_mask, x, float("-inf")), 1)[:, None]' in kernel.text
    assert "tl.maximum(largest, total, propagate_nan=tl.PropagateNan.ALL)" in kernel.text
    assert list(kernel.blocks) == ["BLOCK_ROWS", "BLOCK_COLS"]
    assert kernel.axes == ["BLOCK_ROWS"]


def test_first_blocks_follow_the_contiguous_dimension() -> None:
    extents = {"BLOCK_ROWS": 4096, "BLOCK_COLS": 512}
    along = rewritten(REDUCTION, F32, {"x": 4096, "r0_": 512}, "reduction")
    across_body = REDUCTION.replace("r0_1 + ks0*xindex", "ks0*r0_1 + xindex")
    across = rewritten(across_body, F32, {"x": 4096, "r0_": 512}, "reduction")
    assert block_sizes(along, extents) == {"BLOCK_ROWS": 1, "BLOCK_COLS": 512, "num_warps": 8}
    assert block_sizes(across, extents) == {"BLOCK_ROWS": 64, "BLOCK_COLS": 32, "num_warps": 4}


def test_a_helper_that_is_not_known_is_refused() -> None:
    body = POINTWISE.replace("libdevice.tanh(tmp3)", "triton_helpers.bucketize(tmp3)")
    with pytest.raises(Refused, match="bucketize"):
        rewritten(body, BF16, {"x": 4096}, "pointwise")


# The constructor --------------------------------------------------------------------------------------------------------

TASK = '''
import math

import torch
import torch.nn as nn

SCALE = 2
unused = 3


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(SCALE))

    def forward(self, x):
        return x * self.w


class Model(nn.Module):
    """Doc."""

    def __init__(self, unused, *, flag=True):
        super(Model, self).__init__()
        self.inner = Inner()
        self._reset(unused)

    def _reset(self, value):
        self.value = math.sqrt(value)

    def _only_forward(self, x):
        return x

    def forward(self, x, mask=None):
        return self._only_forward(self.inner(x))
'''


def test_the_constructor_keeps_what_it_needs_and_nothing_else() -> None:
    shell = model_shell(TASK)
    assert shell.arguments == ["x", "mask"]
    assert shell.defaults == {"mask": "None"}
    assert set(shell.imports) == {"import math", "import torch", "import torch.nn as nn"}
    assert shell.support[0] == "SCALE = 2"
    assert "forward" not in shell.support[1]
    assert "\n".join(shell.model) == (
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, unused, *, flag=True):\n"
        "        super(ModelNew, self).__init__()\n"
        "        self.inner = Inner()\n"
        "        self._reset(unused)\n"
        "\n"
        "    def _reset(self, value):\n"
        "        self.value = math.sqrt(value)"
    )
