"""Small tasks with other operations, orders and axes than the built-in suite has, as people might paste them.

`TASKS` is a table from what a task does to its source. Sizes are module-level numbers, so that probe sizes are derived.
"""

_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def task(forward: str, inputs: str, *, init: str = "pass", **sizes: int) -> str:
    """A task in the KernelBench form; `forward` and `init` are statements separated by semicolons."""
    names = [name.strip() for name in forward.split("|")[0].split(",")]
    body = forward.split("|")[1]
    lines = [_HEAD, *(f"{name} = {size}" for name, size in sizes.items()), ""]
    lines += ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line.strip()}" for line in init.split(";")]
    lines += [f"\n    def forward(self, {', '.join(names)}):"]
    lines += [f"        {line.strip()}" for line in body.split(";")]
    lines += [f"\ndef get_inputs():\n    return [{inputs}]"]
    lines += ["\ndef get_init_inputs():\n    return []\n"]
    return "\n".join(lines)


_QKV = ", ".join(["torch.randn(2, 4, tokens, 32)"] * 3)
_HALF = "tokens, 32, dtype=torch.float16)"

TASKS = {
    "softmax over channels": task(
        "x| return torch.softmax(x, dim=1)", "torch.randn(batch, 40, size, size)", batch=16, size=64,
    ),
    "mean over space, then a gate": task(
        "x| s = x.mean(dim=(2, 3), keepdim=True); return x * torch.sigmoid(s)",
        "torch.randn(batch, 48, size, size)", batch=32, size=56,
    ),
    "largest over the middle axis": task(
        "x| return x.amax(dim=1) - x.amin(dim=1)", "torch.randn(batch, steps, 96)", batch=64, steps=500,
    ),
    "where the largest is": task(
        "x| return torch.argmax(x, dim=-1)", "torch.randn(rows, width)", rows=4096, width=1500,
    ),
    "where the smallest is, along the first axis": task(
        "x| return torch.argmin(x, dim=0)", "torch.randn(rows, width)", rows=700, width=3000,
    ),
    "largest value and its place": task(
        "x| values, places = x.max(dim=1); return values, places", "torch.randn(batch, steps, 64)", batch=64, steps=300,
    ),
    "running sum along the rows": task(
        "x| return torch.cumsum(x.flip(1), dim=1)", "torch.randn(rows, width)", rows=1000, width=2000,
    ),
    "running product along the first axis": task(
        "x| return torch.cumprod(x, dim=0)", "0.5 + torch.rand(steps, width)", steps=200, width=3000,
    ),
    "average pooling in one dimension": task(
        "x| return F.avg_pool1d(x, 5, stride=2, padding=2)", "torch.randn(batch, 24, length)", batch=32, length=4000,
    ),
    "largest in windows, dilated": task(
        "x| return F.max_pool2d(x, 3, stride=2, padding=1, dilation=2)",
        "torch.randn(batch, 32, size, size + 3)", batch=16, size=80,
    ),
    "average pooling in three dimensions": task(
        "x| return F.avg_pool3d(x, 2, stride=2)", "torch.randn(batch, 8, size, size, size)", batch=8, size=40,
    ),
    "both factors transposed": task(
        "x, y| return x.t() @ y.t()", "torch.randn(depth, rows), torch.randn(width, depth)", depth=300, rows=700, width=500,
    ),
    "attention with an additive mask": task(
        "q, k, v, m| return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        _QKV + ", torch.randn(tokens, tokens)",
        tokens=700,
    ),
    "attention with a mask of yes and no": task(
        "q, k, v| m = torch.arange(tokens)[None, :] <= torch.arange(tokens)[:, None] + 5;"
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        _QKV, tokens=700,
    ),
    "attention of grouped queries": task(
        "q, k, v| return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
        f"torch.randn(2, 8, {_HALF}, torch.randn(2, 2, {_HALF}, torch.randn(2, 2, {_HALF}",
        tokens=700,
    ),
    "relu attention, no softmax": task(
        "q, k, v| return F.relu(q @ k.transpose(-2, -1)) @ v",
        _QKV, tokens=500,
    ),
    "depthwise convolution, then pointwise": task(
        "x| return F.relu6(self.point(self.depth(x)))", "torch.randn(batch, 24, size, size)",
        init="self.depth = nn.Conv2d(24, 24, 5, padding=2, groups=24, bias=False); self.point = nn.Conv2d(24, 40, 1)",
        batch=16, size=56,
    ),
    "transposed convolution, then softmax": task(
        "x| return torch.softmax(self.conv(x), dim=1)", "torch.randn(batch, 16, size, size)",
        init="self.conv = nn.ConvTranspose2d(16, 24, 4, stride=2, padding=1)", batch=8, size=40,
    ),
    "transposed convolution in one dimension": task(
        "x| return torch.tanh(self.conv(x))", "torch.randn(batch, 16, length)",
        init="self.conv = nn.ConvTranspose1d(16, 8, 5, stride=3, dilation=2)", batch=8, length=2000,
    ),
    "gather along an axis, scaled": task(
        "x, y| return torch.gather(x, 1, y) * 2.0", "torch.randn(rows, width), torch.randint(0, width, (rows, 50))",
        rows=4000, width=300,
    ),
    "gated feed-forward of two layers": task(
        "x| return self.c(F.silu(self.a(x)) * self.b(x))", "torch.randn(rows, 256, dtype=torch.bfloat16)",
        init="kind = {'bias': False, 'dtype': torch.bfloat16}; self.a = nn.Linear(256, 512, **kind);"
        "self.b = nn.Linear(256, 512, **kind); self.c = nn.Linear(512, 256, **kind)",
        rows=4000,
    ),
    "a recurrent cell": task(
        "x, h| h = torch.tanh(self.a(torch.cat((x, h), dim=1))); return self.b(h), h",
        "torch.randn(rows, 100), torch.randn(rows, 130)",
        init="self.a = nn.Linear(230, 130); self.b = nn.Linear(130, 60)", rows=2000,
    ),
}  # fmt: skip
"""From what a task does to its source."""
