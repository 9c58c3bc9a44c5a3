"""Whole candidates from the catalogue: what is matched, what is refused, and that results agree with the reference."""

from pathlib import Path

import pytest

from gpu_runner.core.graph import Graph
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Precision, Track
from gpu_runner.proposals import catalogue
from gpu_runner.proposals.child.trace import trace
from tests.proposals.interpreted import run_script

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def task(forward: str, inputs: str, init: str = "pass", arguments: str = "", **sizes: int) -> str:
    """A task with module-level sizes; `init` and `forward` are statements separated by semicolons."""
    lines = [HEAD, *(f"{name} = {size}" for name, size in sizes.items())]
    lines += ["class Model(nn.Module):"]
    lines += [f"    def __init__(self, {arguments}):", "        super().__init__()"]
    lines += [f"        {line.strip()}" for line in init.split(";")]
    lines += [
        "    def forward(self, *x):"
        if "*x" in forward
        else "    def forward(self, x, y=None, z=None):"
    ]
    lines += [f"        {line.strip()}" for line in forward.split(";")]
    lines += [f"def get_inputs():\n    return [{inputs}]"]
    lines += [f"def get_init_inputs():\n    return [{arguments}]\n"]
    return "\n".join(lines)


TASKS = {
    "linear, gelu, residual in three dimensions": task(
        "return x + self.b(F.gelu(self.a(x)))",
        "torch.randn(batch, 7, width)",
        "self.a = nn.Linear(width, 2 * width); self.b = nn.Linear(2 * width, width, bias=False)",
        "width", batch=4096, width=256,
    ),
    "a product with a learned row and an attribute": task(
        "return torch.tanh((x @ self.w.t() - self.offset) / self.limit).clamp(-0.5, 0.5) * y",
        "torch.randn(rows, width), torch.randn(rows, 1)",
        "self.w = nn.Parameter(torch.randn(90, width)); self.offset = nn.Parameter(torch.randn(90)); self.limit = width * 0.5",
        "width", rows=8192, width=512,
    ),
    "batched product, in place activation": task(
        "return F.relu(x @ y.transpose(1, 2), inplace=True)",
        "torch.randn(batch, 50, 40), torch.randn(batch, 60, 40)", batch=256,
    ),
    "convolution, scale, hardswish": task(
        "return F.hardswish(self.conv(x) * self.scale + 0.5)",
        "torch.randn(batch, 6, size, size + 3)",
        "self.conv = nn.Conv2d(6, 10, 3, stride=2, padding=1, dilation=2, groups=2);"
        "self.scale = nn.Parameter(torch.randn(10, 1, 1))",
        batch=32, size=128,
    ),
    "depthwise convolution, silu, residual": task(
        "return x + F.silu(self.conv(x))",
        "torch.randn(batch, 6, size, size)",
        "self.conv = nn.Conv2d(6, 6, 3, padding=1, groups=6)", batch=32, size=128,
    ),
    "transposed convolution in two dimensions": task(
        "return torch.sigmoid(self.conv(x)) * 2.0",
        "torch.randn(batch, 6, size, size + 1)",
        "self.conv = nn.ConvTranspose2d(6, 10, 3, stride=2, padding=1, output_padding=1, groups=2)",
        batch=8, size=64,
    ),
    "transposed convolution, dilated": task(
        "return torch.relu(self.conv(x)) + 1.0",
        "torch.randn(batch, 6, size, size)",
        "self.conv = nn.ConvTranspose2d(6, 10, 3, stride=2, padding=1, dilation=2)", batch=8, size=64,
    ),
    "convolution in many small groups, their number an argument": task(
        "return torch.relu(self.conv(x)) + x",
        "torch.randn(batch, width, 15, 13, dtype=torch.float16)",
        "self.conv = nn.Conv2d(width, width, 3, padding=1, groups=groups, dtype=torch.float16)",
        "width, groups", batch=64, width=64, groups=16,
    ),
    "convolution of patches, then tokens and their positions": task(
        "return self.conv(x).flatten(2).transpose(1, 2) * self.scale + self.positions",
        "torch.randn(batch, 3, 2 * patch, 3 * patch, dtype=torch.float16)",
        "self.conv = nn.Conv2d(3, width, patch, stride=patch, dtype=torch.float16);"
        "self.positions = nn.Parameter(torch.randn(6, width).half());"
        "self.scale = nn.Parameter(torch.randn(width).half())",
        "width, patch", batch=64, width=768, patch=16,
    ),
    "convolution of patches, gelu": task(
        "return F.gelu(self.conv(x))",
        "torch.randn(batch, 6, size, size + 1)",
        "self.conv = nn.Conv2d(6, 10, 2, stride=2)", batch=32, size=128,
    ),
    "convolution in three dimensions, leaky": task(
        "return F.leaky_relu(self.conv(x) + self.shift, 0.2)",
        "torch.randn(batch, 5, 6, size, 7)",
        "self.conv = nn.Conv3d(5, 8, (3, 2, 3), stride=(1, 2, 1), padding=1);"
        "self.shift = nn.Parameter(torch.randn(8, 1, 1, 1))",
        batch=8, size=64,
    ),
    "convolution in one dimension, residual": task(
        "return torch.relu(self.conv(x)) + x",
        "torch.randn(batch, 6, size)",
        "self.conv = nn.Conv1d(6, 6, 5, padding=2)", batch=8, size=4096,
    ),
    "causal attention": task(
        "return F.scaled_dot_product_attention(x, y, z, is_causal=True).transpose(1, 2).flatten(2)",
        "torch.randn(2, 3, tokens, 24), torch.randn(2, 3, tokens, 24), torch.randn(2, 3, tokens, 40)", tokens=2048,
    ),
    "attention by a negative scale": task(
        "return F.scaled_dot_product_attention(x, y, z, scale=-0.3)",
        "torch.randn(2, 3, tokens, 24), torch.randn(2, 3, tokens, 24), torch.randn(2, 3, tokens, 40)", tokens=2048,
    ),
    "attention spelled out, three dimensions, divided": task(
        "p = torch.softmax(torch.bmm(x, y.transpose(1, 2)) / self.temperature, dim=2); return torch.bmm(p, z)",
        "torch.randn(6, tokens, 16), torch.randn(6, 50, 16), torch.randn(6, 50, 16)",
        "self.temperature = 3.0", tokens=2048,
    ),
    "RMS norm spelled out, then gate": task(
        "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.g;"
        "a, b = self.w(x).chunk(2, dim=-1); return F.silu(a) * b",
        "torch.randn(rows, width)",
        "self.eps = 1e-5; self.g = nn.Parameter(torch.randn(width)); self.w = nn.Linear(width, 4 * width, bias=False)",
        "width", rows=8192, width=256,
    ),
    "layer norm, then log softmax and a sum of it": task(
        "y = torch.log_softmax(self.norm(x), dim=-1); return y, y.square().sum(dim=-1)",
        "torch.randn(batch, 5, width)",
        "self.norm = nn.LayerNorm(width); nn.init.normal_(self.norm.weight)", "width", batch=1024, width=2048,
    ),
    "variance, largest and logsumexp of a row": task(
        "return [x.var(dim=-1), x.amax(dim=-1, keepdim=True), torch.logsumexp(x, dim=-1)]",
        "torch.randn(rows, width)", rows=1024, width=3000,
    ),
    "half precision softmax of scaled scores": task(
        "return torch.softmax((x @ y).float() * self.scale, dim=-1).to(x.dtype)",
        "torch.randn(rows, 64, dtype=torch.bfloat16), torch.randn(64, 300, dtype=torch.bfloat16)",
        "self.scale = 0.125", rows=4096,
    ),
}  # fmt: skip

FUSED = {
    "wide product in halves, gelu, residual": task(
        "return y + F.gelu(self.a(x))",
        "torch.randn(rows, width, dtype=torch.bfloat16), torch.randn(rows, 4 * width, dtype=torch.bfloat16)",
        "self.a = nn.Linear(width, 4 * width, dtype=torch.bfloat16)", "width", rows=8192, width=1024,
    ),
    "two gated layers with biases": task(
        "return F.silu(self.a(x)) * self.b(x)",
        "torch.randn(batch, 7, width)",
        "self.a = nn.Linear(width, 2 * width); self.b = nn.Linear(width, 2 * width)", "width", batch=4096, width=256,
    ),
    "halves of one layer, gated": task(
        "a, b = self.a(x).split(y.shape[-1], dim=-1); return torch.sigmoid(a) * b + y",
        "torch.randn(rows, width), torch.randn(rows, width)",
        "self.a = nn.Linear(width, 2 * width)", "width", rows=4096, width=256,
    ),
    "attention with an added mask and shared heads": task(
        "return F.scaled_dot_product_attention(x, y, y, attn_mask=z, enable_gqa=True)",
        "torch.randn(2, 4, tokens, 24), torch.randn(2, 2, tokens, 24), torch.randn(tokens, tokens)", tokens=1024,
    ),
    "attention spelled out, kept where a buffer is not zero": task(
        "s = (x @ y.transpose(-2, -1)) * 0.2; s = s.masked_fill(self.kept == 0, float('-inf'));"
        "return torch.softmax(s, dim=-1) @ z",
        "torch.randn(2, 3, tokens, 16), torch.randn(2, 3, tokens, 16), torch.randn(2, 3, tokens, 16)",
        "self.register_buffer('kept', torch.tril(torch.ones(tokens, tokens)))", tokens=512,
    ),
    "places of extremes along three axes": task(
        "top = x.max(dim=1, keepdim=True); return x.argmin(dim=0), torch.argmax(x, dim=-1, keepdim=True), top[0], top[1]",
        "torch.randn(batch, 30, size)", batch=64, size=300,
    ),
    "running products from behind": task(
        "return torch.cumprod(x.flip(1), dim=1), torch.cumsum(torch.cat((x, y), dim=0), dim=0)",
        "0.5 + torch.rand(rows, 40), torch.randn(rows, 40)", rows=500,
    ),
}  # fmt: skip

SMALL = {"batch": 2, "size": 13, "rows": 19, "tokens": 37, "width": 24, "groups": 8, "patch": 4}


EMULATED = frozenset(
    {
        "a product with a learned row and an attribute",
        "causal attention",
        "two gated layers with biases",
    }
)
"""Tasks whose first draft, with emulated float32 products, is tried too; the others' differ in one word."""


def probe_of(source: str) -> str:
    for name, size in SMALL.items():
        lines = [
            f"{name} = {size}" if line.startswith(f"{name} = ") else line
            for line in source.split("\n")
        ]
        source = "\n".join(lines)
    return source


def drafted(source: str, precision: Precision = Precision.REFERENCE) -> list[str]:
    graph = trace({"source": source, "probe_source": probe_of(source)})
    report = TaskReport(inputs=(), outputs=(), probe=None, graph=graph)
    return [
        d.source
        for d in catalogue.drafts(TaskSpec(name="task", source=source, precision=precision), report)
    ]


def test_drafts_agree_with_their_references_and_compile_for_a_gpu(tmp_path: Path) -> None:
    sources, names = {}, []
    for name, source in TASKS.items():
        for draft in drafted(source)[0 if name in EMULATED else -1 :]:
            number = len(names)
            names.append(f"{name}, emulated" if "tf32x3" in draft else name)
            sources |= {f"reference{number}.py": probe_of(source), f"candidate{number}.py": draft}
    script = f"""
        errors, names = [], {names!r}
        for number in range({len(names)}):
            reference, candidate = load(f"reference{{number}}.py"), load(f"candidate{{number}}.py")
            model = reference.Model(*reference.get_init_inputs())
            own = candidate.ModelNew(*reference.get_init_inputs())
            own.load_state_dict(model.state_dict())
            inputs = reference.get_inputs()
            got = own(*[x.clone() for x in inputs])
            if not os.environ.get("TRITON_INTERPRET"):
                continue
            expected = model(*inputs)
            if torch.is_tensor(expected):
                got, expected = [got], [expected]
            assert type(got) is type(expected) and len(got) == len(expected)
            tolerance = 1e-2 if expected[0].dtype is torch.bfloat16 or "convolution" in names[number] else 1e-5
            tolerance = max(tolerance, 1e-4 * ("emulated" in names[number]))
            errors.append(max(error(a, b) for a, b in zip(got, expected)) / tolerance)
        print(json.dumps(errors if errors else compiled))
        """
    errors = run_script(script, tmp_path, sources)
    assert {name: e for name, e in zip(names, errors, strict=True) if not e < 1} == {}
    compiled = run_script(script, tmp_path, interpret=False)
    assert len(compiled) >= len(names)
    assert all(shared <= 227 * 1024 for _, shared, _ in compiled)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("linear, gelu, residual in three dimensions", 2),
        ("a product with a learned row and an attribute", 1),
        ("convolution, scale, hardswish", 1),
        ("convolution of patches, then tokens and their positions", 1),
        ("causal attention", 1),
        ("attention by a negative scale", 1),
        ("attention spelled out, three dimensions, divided", 1),
        ("layer norm, then log softmax and a sum of it", 1),
        ("half precision softmax of scaled scores", 2),
        ("wide product in halves, gelu, residual", 1),
        ("two gated layers with biases", 1),
        ("halves of one layer, gated", 1),
        ("attention with an added mask and shared heads", 1),
        ("attention spelled out, kept where a buffer is not zero", 1),
        ("places of extremes along three axes", 3),
    ],
)
def test_what_can_be_fused_is_one_kernel(name: str, kernels: int) -> None:
    *_, draft = drafted((TASKS | FUSED)[name])
    assert draft.count("@triton.jit") == kernels


def test_a_wide_tile_is_finished_in_halves() -> None:
    *_, draft = drafted(FUSED["wide product in halves, gelu, residual"])
    assert "BLOCK_N=256" in draft
    assert draft.index("for half in tl.static_range(2):") < draft.index("tl.erf(")


def test_sorting_stays_a_library_call_where_that_is_allowed() -> None:
    source = task("return torch.sort(x, dim=-1)[0] * 2.0", "torch.randn(rows, 64)", rows=1000)
    graph = trace({"source": source, "probe_source": probe_of(source)})
    report = TaskReport(inputs=(), outputs=(), probe=None, graph=graph)
    spec = TaskSpec(name="task", source=source, track=Track.LIBRARY_ALLOWED)
    *_, draft = catalogue.drafts(spec, report)
    assert "torch.sort(x" in draft.source
    assert draft.source.count("@triton.jit") == 1


def test_the_state_keeps_its_names_and_the_constructor_its_arguments() -> None:
    *_, draft = drafted(TASKS["RMS norm spelled out, then gate"])
    assert "def __init__(self, width):" in draft
    assert "self.w.weight.t()" in draft
    assert "self.eps" in draft.split("def forward")[1]


@pytest.mark.parametrize(
    ("precision", "product", "convolution"),
    [
        (Precision.REFERENCE, "ieee", "tf32"),
        (Precision.IEEE, "ieee", "ieee"),
        (Precision.TF32, "tf32", "tf32"),
    ],
)
def test_products_use_the_precision_that_the_policy_permits(
    precision: Precision, product: str, convolution: str
) -> None:
    *_, linear = drafted(TASKS["a product with a learned row and an attribute"], precision)
    *_, conv = drafted(TASKS["convolution, scale, hardswish"], precision)
    assert f'input_precision="{product}"' in linear
    assert f'input_precision="{convolution}"' in conv


def test_float32_products_are_offered_emulated_first_and_say_so() -> None:
    emulated, exact = drafted(TASKS["a product with a learned row and an attribute"])
    assert 'input_precision="tf32x3"' in emulated
    assert "three TF32" in emulated.split("\n")[0] + emulated.split("\n")[1]
    assert 'input_precision="ieee"' in exact


def test_products_that_need_no_emulation_are_offered_once() -> None:
    assert len(drafted(TASKS["a product with a learned row and an attribute"], Precision.TF32)) == 1


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.sort(x)[0]",
        "return torch.fft.fft(x).abs()",
        "x.add_(1); return x.exp()",
        "return F.dropout(x, 0.5, True)",
        "return x.t()",
    ],
)
def test_what_no_template_covers_has_no_draft(forward: str) -> None:
    assert drafted(task(forward, "torch.randn(rows, 64)", rows=1000)) == []


def test_an_empty_graph_has_no_draft() -> None:
    report = TaskReport(inputs=(), outputs=(), probe=None, graph=Graph(reason="why").model_dump())
    assert catalogue.drafts(TaskSpec(name="task", source=""), report) == []
