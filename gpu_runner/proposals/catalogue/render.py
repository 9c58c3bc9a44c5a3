"""Fill one template of `templates/`: its name, its operands and epilogue, its precision and its tile sizes.

A template is a kernel and the host function that launches it, with three markers: `# @arguments` (pointers and strides
of the epilogue's operands), `# @epilogue` (statements on the float32 accumulator `acc`) and `# @operands` (host
statements that bring the operands to the shape of the result). Everything else is ordinary Triton that can be read,
and is pasted as it is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Literal

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
"""What every rendered text expects at the top of the module it is pasted into."""


class Reach(StrEnum):
    """How an epilogue's operand lies against the tile of results."""

    FULL = "full"  # a value per result, after expand: any strides, 0 where it is broadcast
    CHANNEL = (
        "channel"  # a contiguous vector along the result's columns (GEMM) or channels (convolution)
    )
    ROW = "row"  # a value per row of results (rows and elementwise templates only)
    SCALAR = "scalar"  # one number in memory
    NUMBER = "number"  # a Python number, passed by value


@dataclass(frozen=True)
class Operand:
    """A tensor that the epilogue reads; the statements name its value by `name`."""

    name: str
    reach: Reach


@dataclass(frozen=True)
class Access:
    """How a template's kernel reaches an operand; `$` stands for the operand's name, `@` for its pointers."""

    axes: str
    shape: str
    full: str
    channel: str
    channel_load: str


_MASKED_COLUMNS = "tl.load(@, mask={}, other=0.0).to(tl.float32)[None, :]"

_MATRIX = Access(
    axes="mn",
    shape="M, N",
    full="row * stride_$_m + col * stride_$_n",
    channel="cols",
    channel_load=_MASKED_COLUMNS.format("cols < N"),
)

_PIXELS = Access(
    axes="bchw",
    shape="B, O, OH, OW",
    full="(image * stride_$_b + oh * stride_$_h + ow * stride_$_w)[:, None]"
    " + (channels * stride_$_c)[None, :]",
    channel="channels",
    channel_load=_MASKED_COLUMNS.format("in_group"),
)

_PLANES = Access(
    axes="bchw",
    shape="B, O, OH, OW",
    full="(channels * stride_$_c)[:, None]"
    " + (image * stride_$_b + oh * stride_$_h + ow * stride_$_w)[None, :]",
    channel="channels",
    channel_load="tl.load(@, mask=in_group, other=0.0).to(tl.float32)[:, None]",
)

ACCESS: dict[str, Access] = {
    "gemm": _MATRIX,
    "persistent_gemm": _MATRIX,
    "gated_gemm": _MATRIX,
    "batched_gemm": Access(
        axes="bmn",
        shape="B, M, N",
        full="batch * stride_$_b + row * stride_$_m + col * stride_$_n",
        channel="cols",
        channel_load=_MASKED_COLUMNS.format("cols < N"),
    ),
    "attention": Access(
        axes="bhts",
        shape="B, H, T, S",
        full="batch * stride_$_b + head * stride_$_h + queries[:, None] * stride_$_t + keys[None, :] * stride_$_s",
        channel="keys",
        channel_load=_MASKED_COLUMNS.format("keys < S"),
    ),
    "convolution": _PIXELS,
    "grouped_convolution": _PLANES,
    "patch_convolution": _PIXELS,
    "transposed_convolution": _PLANES,
    "convolution_3d": Access(
        axes="bcdhw",
        shape="B, O, OD, OH, OW",
        full="(image * stride_$_b + od * stride_$_d + oh * stride_$_h + ow * stride_$_w)[:, None]"
        " + (channels * stride_$_c)[None, :]",
        channel="channels",
        channel_load=_MASKED_COLUMNS.format("in_group"),
    ),
    "depthwise_convolution": Access(
        axes="bchw",
        shape="B, O, OH, OW",
        full="image * stride_$_b + channels * stride_$_c + oh * stride_$_h + ow * stride_$_w",
        channel="channels",
        channel_load="tl.load(@).to(tl.float32)",
    ),
}


_LONG = 110
_ORDER_COMMENT = "# Across the order in which this precision reads its operands a product takes two to four times as long."

_CHANNELS_LAST = (
    "x = x.contiguous(memory_format=torch.channels_last)",
    "weight = weight.contiguous(memory_format=torch.channels_last)",
)

ORDERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("gemm", "ieee"): ("b = b if b.stride(1) == 1 else b.contiguous()",),
    ("gemm", "tf32"): (
        "a = a if a.stride(1) == 1 else a.contiguous()",
        "b = b if b.stride(0) == 1 else b.t().contiguous().t()",
    ),
    ("gated_gemm", "ieee"): (
        "b_left = b_left if b_left.stride(1) == 1 else b_left.contiguous()",
        "b_right = b_right if b_right.stride(1) == 1 else b_right.contiguous()",
    ),
    ("gated_gemm", "tf32"): (
        "a = a if a.stride(1) == 1 else a.contiguous()",
        "b_left = b_left if b_left.stride(0) == 1 else b_left.t().contiguous().t()",
        "b_right = b_right if b_right.stride(0) == 1 else b_right.t().contiguous().t()",
    ),
    ("batched_gemm", "ieee"): ("b = b if b.stride(2) == 1 else b.contiguous()",),
    ("batched_gemm", "tf32"): (
        "a = a if a.stride(2) == 1 else a.contiguous()",
        "b = b if b.stride(1) == 1 else b.mT.contiguous().mT",
    ),
    ("attention", "ieee"): ("k = k if k.stride(2) == 1 else k.mT.contiguous().mT",),
    ("convolution", "ieee"): (
        "weight = weight.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)",
    ),
    ("convolution", "tf32"): _CHANNELS_LAST,
    ("grouped_convolution", "tf32"): _CHANNELS_LAST,
    ("patch_convolution", "ieee"): ("weight = weight.t().contiguous().t()",),
    ("transposed_convolution", "tf32"): (
        "x = x.contiguous(memory_format=torch.channels_last)",
        "weight = weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)",
    ),
    ("attention", "tf32"): ("v = v if v.stride(2) == 1 else v.mT.contiguous().mT",),
}
"""Host statements that lay float32 operands out: exact arithmetic reads the right one along N, tensor cores both along K."""


def order_of(template: str, precision: str) -> list[str]:
    statements = ORDERS.get((template, "tf32" if precision.startswith("tf32") else precision))
    return [_ORDER_COMMENT, *statements] if statements else []


_CAUSAL_TILE = (
    "# The last queries see the most keys and start first.",
    "tile = tl.num_programs(0) - 1 - tl.program_id(0)",
)
_CAUSAL_EXTENT = (
    "last = tl.minimum(S, (tile + 1) * BLOCK_M)",
    "whole = tl.minimum(S, tile * BLOCK_M) // BLOCK_N * BLOCK_N",
)

_HALVES_HEAD = (
    "# In halves: a wide tile and its epilogue at once need more registers than a thread has.",
    "left, right = acc.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()",
    "for half in tl.static_range(2):",
    "    acc = left if half == 0 else right",
    "    cols = tile_n * BLOCK_N + half * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)",
    "    col = cols.to(tl.int64)[None, :]",
)
"""What opens the epilogue of a product whose tile is at least 256 wide."""


@cache
def template_text(name: str) -> str:
    """The template without its docstring, which speaks to whoever chooses it, not to the reader of the result."""
    text = (files(__package__) / "templates" / f"{name}.py").read_text(encoding="utf-8")
    return re.sub(r'\A""".*?"""\s*', "", text, flags=re.DOTALL)


def render(
    template: str,
    *,
    name: str,
    signature: str | None = None,
    operands: Sequence[Operand] = (),
    statements: Sequence[str] = (),
    precision: str = "ieee",
    dtype: str = "float32",
    reorders: bool = True,
    launch: Mapping[str, int] = {},
    docstring: str | None = None,
    out_dtype: str | None = None,
) -> str:
    """One kernel `{name}_kernel` and its host function `name`.

    Args:
        template: a file of `templates/` without `.py`.
        signature: the host function's parameters when they differ from the template's own.
        operands: in the order in which the host function takes them, after the template's own inputs.
        statements: lines on `acc` (float32) and the operands' names (float32 too), last one assigning `acc`.
        precision: of `tl.dot` on float32 inputs: ieee, tf32 or tf32x3.
        dtype: of the inputs, as torch prints it without "torch.".
        reorders: whether float32 inputs may be copied into the order in which the arithmetic reads them.
        launch: compile-time parameters of the launch that replace the template's, such as BLOCK_M and num_warps.
        out_dtype: of the result, as Python text, where it is not the inputs'.
    """
    in_halves = launch.get("BLOCK_N", 0) >= 256 and "# @halves" in template_text(template)
    text = fill(
        template,
        name=name,
        signature=signature,
        sections={
            "arguments": _arguments(template, operands),
            "epilogue": [*_loads(template, operands), *statements],
            "order": order_of(template, precision if dtype == "float32" else dtype)
            if reorders
            else [],
            "operands": _expansions(template, operands),
            "halves": _HALVES_HEAD if in_halves else [],
        },
        precision=precision,
        launch=launch,
    )
    if in_halves:
        text = _with_halves(text)
    text = _with_host_operands(text, template, operands)
    if out_dtype is not None:
        text = re.sub(r"(out = torch\.empty\(.*dtype=)[\w.]+\)", rf"\g<1>{out_dtype})", text)
    if docstring is not None:
        text = re.sub(rf'(def {name}\(.*\):\n    )""".*"""', rf'\1"""{docstring}"""', text)
    return text.strip() + "\n"


def render_attention(
    *,
    name: str,
    causal: bool,
    mask: Literal["no", "added", "kept", "dropped"],
    precision: str,
    dtype: str,
    launch: Mapping[str, int],
) -> str:
    """Attention with the host function `name(q, k, v, scale[, mask])`.

    Args:
        mask: whether scores have a mask `added` to them, or are `kept` or `dropped` where it is not zero.
    """
    operands = [] if mask == "no" else [Operand("mask", Reach.FULL)]
    places = ACCESS["attention"].full.replace("$", "mask")
    masks = [
        f"mask_ptrs = mask_ptr + {places}",
        "mask = tl.load(mask_ptrs, mask=(queries[:, None] < T) & (keys[None, :] < S), other=0)",
        {
            "no": "",
            "added": "scores += mask.to(tl.float32) * 1.4426950408889634",
            "kept": 'scores = tl.where(mask != 0, scores, float("-inf"))',
            "dropped": 'scores = tl.where(mask == 0, scores, float("-inf"))',
        }[mask],
    ]
    nothing = [
        "# A query that no key is kept for gets zeros.",
        "total = tl.where(total > 0.0, total, 1.0)",
    ]
    text = fill(
        "attention",
        name=name,
        sections={
            "arguments": _arguments("attention", operands),
            "tile": _CAUSAL_TILE if causal else ["tile = tl.program_id(0)"],
            "extent": _CAUSAL_EXTENT if causal else ["last = S", "whole = S // BLOCK_N * BLOCK_N"],
            "mask": masks if operands else [],
            "causal": ["seen = seen & (keys[None, :] <= queries[:, None])"] if causal else [],
            "nothing": nothing if operands else [],
            "order": order_of("attention", precision if dtype == "float32" else dtype),
            "operands": _expansions("attention", operands),
        },
        precision=precision,
        launch=launch,
    )
    return _with_host_operands(text, "attention", operands)


def fill(
    template: str,
    *,
    name: str,
    sections: Mapping[str, Sequence[str]],
    signature: str | None = None,
    precision: str = "ieee",
    launch: Mapping[str, int] = {},
) -> str:
    """A template with its markers replaced by the lines of `sections`, under a new name."""
    text = template_text(template)
    text = text.replace('input_precision="ieee"', f'input_precision="{precision}"')
    text = _with_launch(text, launch)
    for marker, lines in sections.items():
        text = _with_marker(text, marker, lines)
    text = re.sub(rf"\b{template}_kernel\b", f"{name}_kernel", text)
    text = re.sub(rf"\bdef {template}\b", f"def {name}", text)
    if signature is not None:
        text = re.sub(rf"def {name}\(.*\):", f"def {name}({signature}):", text)
    return text.strip() + "\n"


def _with_launch(text: str, launch: Mapping[str, int]) -> str:
    for key, value in launch.items():
        text = re.sub(rf"\b{key}=(\d+|triton\.next_power_of_2\(N\))", f"{key}={value}", text)
    return text


def _with_marker(text: str, marker: str, lines: Sequence[str]) -> str:
    def filled(match: re.Match[str]) -> str:
        return "".join(f"{match['indent']}{line}\n" for line in lines)

    return re.sub(rf"^(?P<indent> *)# @{marker}\n", filled, text, flags=re.MULTILINE)


def _with_halves(text: str) -> str:
    """Indent what follows the head, to the end of the kernel, into the loop that the head opens."""
    before, head, after = text.partition(_HALVES_HEAD[-1] + "\n")
    tail, gap, rest = after.partition("\n\n\n")
    indented = "\n".join(f"    {line}" if line else line for line in tail.split("\n"))
    return before + head + indented + gap + rest


def _strides(operand: Operand, axes: str) -> list[str]:
    if operand.reach is not Reach.FULL:
        return []
    return [f"stride_{operand.name}_{axis}" for axis in axes]


def _pointer(operand: Operand) -> str:
    return operand.name if operand.reach is Reach.NUMBER else f"{operand.name}_ptr"


def _arguments(template: str, operands: Sequence[Operand]) -> list[str]:
    axes = ACCESS[template].axes if operands else ""
    return [
        f"{argument},"
        for operand in operands
        for argument in (_pointer(operand), *_strides(operand, axes))
    ]


def _loads(template: str, operands: Sequence[Operand]) -> list[str]:
    lines = []
    for operand in operands:
        if operand.reach is Reach.NUMBER:
            continue
        if operand.reach is Reach.SCALAR:
            lines.append(f"{operand.name} = tl.load({operand.name}_ptr).to(tl.float32)")
            continue
        access = ACCESS[template]
        where = access.full if operand.reach is Reach.FULL else access.channel
        lines += _pointers(operand.name, where)
        lines.append(f"$ = {_load(access, operand.reach)}".replace("$", operand.name))
    return lines


def _pointers(name: str, where: str) -> list[str]:
    """`name_ptrs = name_ptr + where`, one term a line where it is long."""
    line = f"$_ptrs = $_ptr + {where}".replace("$", name)
    if len(line) <= _LONG:
        return [line]
    terms = re.split(r"(?<=\]) \+ (?=\()", where.replace("$", name))
    return [f"{name}_ptrs = (", f"    {name}_ptr", *(f"    + {term}" for term in terms), ")"]


def _load(access: Access, reach: Reach) -> str:
    if reach is Reach.FULL:
        return "tl.load($_ptrs, mask=inside, other=0.0).to(tl.float32)"
    return access.channel_load.replace("@", "$_ptrs")


def _expansions(template: str, operands: Sequence[Operand]) -> list[str]:
    return [
        f"{operand.name} = {operand.name}.expand({ACCESS[template].shape})"
        for operand in operands
        if operand.reach is Reach.FULL
    ]


def _with_host_operands(text: str, template: str, operands: Sequence[Operand]) -> str:
    axes = ACCESS[template].axes if template in ACCESS else ""
    passed = [
        argument
        for operand in operands
        for argument in (
            operand.name,
            *(
                [f"{operand.name}.stride({i})" for i in range(len(axes))]
                if operand.reach is Reach.FULL
                else []
            ),
        )
    ]
    names = "".join(f", {operand.name}" for operand in operands)
    text = re.sub(r"(def .*), \*operands", rf"\1{names}", text)
    return text.replace(", *operands", "".join(f", {argument}" for argument in passed))
