"""Triton functions that stand in for the vendor calls of compiler-emitted code, with the call's own parameters."""

from dataclasses import dataclass
from typing import TypedDict

from gpu_runner.proposals.catalogue.render import IMPORTS, Operand, Reach, render
from gpu_runner.proposals.catalogue.tiles import (
    convolution_launch,
    gemm_launch,
    gemm_template,
)


@dataclass(frozen=True)
class LibraryFunction:
    """Source text that defines `name`; it expects `imports` at the top of its module."""

    name: str
    text: str
    imports: str = IMPORTS


class _Order(TypedDict):
    """What decides whether operands are laid out anew; see `render`."""

    dtype: str
    reorders: bool


def function_for(
    op: str,
    *,
    name: str | None = None,
    sizes: tuple[int, int, int] | None = None,
    dtype: str = "float32",
    precision: str = "ieee",
    alpha: float = 1.0,
    beta: float = 1.0,
    bias: bool = True,
    template: str = "convolution",
) -> LibraryFunction | None:
    """The Triton function that computes one library operation; None where there is no template for it.

    The package's docstring lists the operations and the host functions' parameters.

    Args:
        op: mm, addmm, bmm, baddbmm or convolution, also as "aten.mm" or "aten.mm.default".
        name: of the host function; the operation's own by default. The kernel is `{name}_kernel`.
        sizes: (m, n, k) of the product, or (pixels, filters of a group, taps) of the convolution, to choose tiles by.
        dtype: of the inputs, as torch prints it without "torch.".
        precision: of float32 products: ieee, or tf32 where the task's policy permits it.
        alpha, beta: of addmm and baddbmm.
        bias: whether the convolution has one.
        template: of the convolution, by `tiles.convolution_template`. One and two dimensions share a text.
    """
    op = op.removeprefix("aten.").split(".")[0]
    name = name or op
    if op in ("mm", "addmm", "bmm", "baddbmm"):
        launch = gemm_launch(*(sizes or (4096, 4096, 4096)), dtype, precision)
        order = _Order(dtype=dtype, reorders=sizes is None or sizes[0] >= 256)
        return LibraryFunction(name, _product(op, name, launch, precision, alpha, beta, order))
    if op == "convolution":
        launch = convolution_launch(template, *(sizes or (4096, 4096, 4096)), dtype, precision)
        return LibraryFunction(name, _convolution(name, template, launch, precision, bias, dtype))
    return None


def _scaled(value: str, factor: float) -> str:
    return value if factor == 1 else f"{value} * {factor!r}"


def _product(
    op: str,
    name: str,
    launch: dict[str, int],
    precision: str,
    alpha: float,
    beta: float,
    order: _Order,
) -> str:
    is_batched = op in ("bmm", "baddbmm")
    template = "batched_gemm" if is_batched else gemm_template(launch, order["dtype"])
    if op in ("mm", "bmm"):
        return render(template, name=name, precision=precision, launch=launch, **order)
    return render(
        template,
        name=name,
        signature="bias, a, b, *, out=None",
        operands=[Operand("bias", Reach.FULL)],
        statements=[f"acc = {_scaled('acc', alpha)} + {_scaled('bias', beta)}"],
        precision=precision,
        launch=launch,
        docstring=f"{_scaled('bias', beta)} + {_scaled('a @ b', alpha)}, the bias broadcast to the product.",
        **order,
    )


_CONVOLUTION = '''
def {name}(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out=None):
    """Convolution of x (B, C, H, W) or (B, C, W) with the parameters of torch's own operation."""
    if x.dim() == 3:
        y = {name}(
            x[:, :, None], weight[:, :, None], bias, (1, *stride), (0, *padding), (1, *dilation),
            transposed, (0, *output_padding), groups, out=None if out is None else out[:, :, None],
        )
        return y[:, :, 0]
    return {name}_tiles(
        x, weight, {bias}{options}out=out
    )
'''

_OPTIONS = {
    "transposed_convolution": "stride=stride, padding=padding, output_padding=output_padding, groups=groups, ",
    "patch_convolution": "",
}

_CONVOLUTION_3D = '''
def {name}(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out=None):
    """Convolution in one to three dimensions, also transposed, with the parameters of torch's own operation."""
    if x.dim() < 5:
        y = {name}(
            x[:, :, None], weight[:, :, None], bias, (1, *stride), (0, *padding), (1, *dilation),
            transposed, (0, *output_padding), groups, out=None if out is None else out[:, :, None],
        )
        return y[:, :, 0]
    return {name}_tiles(
        x, weight, {bias}stride=stride, padding=padding, dilation=dilation, groups=groups,
        transposed=transposed, output_padding=output_padding, out=out
    )
'''


def _convolution(
    name: str, template: str, launch: dict[str, int], precision: str, bias: bool, dtype: str
) -> str:
    tiles = render(
        template,
        name=f"{name}_tiles",
        operands=[Operand("bias", Reach.CHANNEL)] if bias else [],
        statements=["acc += bias"] if bias else [],
        precision=precision,
        dtype=dtype,
        launch=launch,
    )
    adapter = _CONVOLUTION_3D if template == "convolution_3d" else _CONVOLUTION
    options = _OPTIONS.get(
        template, "stride=stride, padding=padding, dilation=dilation, groups=groups, "
    )
    return tiles + "\n" + adapter.format(name=name, bias="bias, " if bias else "", options=options)
