"""Decide which templates compute a graph: a sequence of steps, each one launch or one change of view.

The rules go by operations and shapes alone. A product, convolution or attention starts a step and takes the elementwise
operations after it along, as far as one value leaves; what is left is gathered into steps over whole rows or tiles.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from gpu_runner.core.graph import Argument, Graph, Node, Ref, Symbol
from gpu_runner.core.verdicts import Track
from gpu_runner.proposals.catalogue.along import Along, along_of
from gpu_runner.proposals.catalogue.kept import is_kept
from gpu_runner.proposals.catalogue.pointwise import FLOATS, base_name, expression
from gpu_runner.proposals.catalogue.tiles import convolution_template

_VIEWS: Final = frozenset(
    "view reshape _unsafe_view transpose permute t unsqueeze squeeze expand select flatten unflatten movedim chunk"
    " split unbind contiguous narrow swapaxes slice numpy_T mT".split()
)
_IGNORED: Final = frozenset(("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range"))
_ROW_OPERATIONS: Final = frozenset(
    "softmax _softmax log_softmax layer_norm rms_norm sum mean amax amin logsumexp var linalg_vector_norm".split()
)
_CONVOLUTIONS: Final[dict[str, dict[str, int]]] = {
    "convolution": {
        "stride": 3, "padding": 4, "dilation": 5, "transposed": 6, "output_padding": 7, "groups": 8,
    },
    "conv": {"stride": 3, "padding": 4, "dilation": 5, "groups": 6},
    "conv_transpose": {"stride": 3, "padding": 4, "output_padding": 5, "groups": 6, "dilation": 7},
}  # fmt: skip
"""Where the operations of ATen keep their options."""
MAX_ROW: Final = 32_768


class Unsupported(Exception):
    """No template covers an operation of this graph; the message says which."""


@dataclass(frozen=True)
class View:
    """A host statement that moves no numbers."""

    node: Node


@dataclass(frozen=True)
class Kept:
    """A call of torch that stays one."""

    node: Node


@dataclass(frozen=True)
class Region:
    """Nodes that one kernel computes, in order, the anchor first; `outputs` are read outside."""

    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True)
class Product:
    """A matrix product with its epilogue; `b_transposed` for a weight kept as (N, K)."""

    template: Literal["gemm", "batched_gemm"]
    a: Node
    b: Node
    b_transposed: bool
    bias: Node | None
    region: Region


@dataclass(frozen=True)
class GatedProduct:
    """Two products of `a`, joined by what follows: with two weights, or with the halves of one along its columns."""

    a: Node
    weights: tuple[Node, ...]
    biases: tuple[Node, ...]
    b_transposed: bool
    left: Node
    right: Node
    region: Region


@dataclass(frozen=True)
class Convolution:
    x: Node
    weight: Node
    bias: Node | None
    stride: tuple[Argument, ...]
    padding: tuple[Argument, ...]
    dilation: tuple[Argument, ...]
    groups: Argument
    transposed: bool
    output_padding: tuple[Argument, ...]
    region: Region
    tokens: bool = False
    """Whether the result is (batch, pixels, channels): the region's second and third node flatten and transpose it."""

    @property
    def template(self) -> str:
        shape = self.weight.shape or ()
        return convolution_template(
            shape,
            stride=[number(value) for value in self.stride],
            padding=[number(value) for value in self.padding],
            dilation=[number(value) for value in self.dilation],
            groups=int(number(self.groups)),
            transposed=self.transposed,
        )


MaskUse = Literal["added", "kept", "dropped"]
"""What a mask does to scores: is added to them, or keeps or drops those where it is not zero."""


@dataclass(frozen=True)
class Attention:
    q: Node
    k: Node
    v: Node
    scale: Argument
    divides: bool
    causal: bool
    region: Region
    mask: Node | None = None
    mask_use: MaskUse = "added"


@dataclass(frozen=True)
class Rows:
    """Elementwise operations and, where it `reduces`, reductions over the last dimension of `shape`."""

    shape: tuple[int, ...]
    reduces: bool
    region: Region


Step = View | Kept | Along | Product | GatedProduct | Convolution | Attention | Rows


def plan(graph: Graph, track: Track = Track.OWN_KERNELS) -> list[Step]:
    """The steps that compute a graph, in order.

    Raises:
        Unsupported: an operation, shape, dtype or mutation has no template.
    """
    return _Planner(graph, track).steps()


def is_view(node: Node) -> bool:
    return node.kind == "item" or base_name(node) in _VIEWS


def keyword(node: Node, position: int, name: str, default: Argument) -> Argument:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def number(argument: Argument) -> int | float:
    """The value of a constant argument."""
    value = argument.value if isinstance(argument, Symbol) else argument
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unsupported(f"a constant was expected, not {argument!r}")
    return value


@dataclass
class _Planner:
    graph: Graph
    track: Track
    available: set[str] = field(default_factory=set)
    plan: list[Step] = field(default_factory=list)

    def steps(self) -> list[Step]:
        self._refuse_mutation()
        self.available = {
            n.name for n in self.graph.nodes if n.kind in ("input", "parameter", "buffer")
        }
        live = self._live()
        for node in self.graph.calls:
            if node.name in live and node.name not in self.available:
                self._add(node)
        if all(isinstance(step, View | Kept) for step in self.plan):
            raise Unsupported("nothing is computed")
        return self.plan

    def _refuse_mutation(self) -> None:
        for name in self.graph.mutated:
            node = self.graph.node(name)
            if node.kind != "call" or is_view(node) or len(self.graph.users(name)) != 1:
                raise Unsupported(f"{name} is changed in place")

    def _live(self) -> set[str]:
        pending = [name for name in self.graph.outputs if name is not None]
        live: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in live:
                live.add(name)
                pending += self.graph.node(name).inputs
        return live

    def _add(self, node: Node) -> None:
        if base_name(node) in _IGNORED:
            return
        if is_view(node):
            self._add_view(node)
            return
        if is_kept(node, self.graph, self.track):
            self._add_kept(node)
            return
        along = along_of(node, self.graph)
        if along is not None:
            self._source(node.args[0])
            self.plan.append(along)
            self.available.add(node.name)
            return
        step: Attention | GatedProduct | Product | Convolution | Rows | None
        step = self._attention(node) or self._gated_product(node) or self._product(node)
        step = step or self._convolution(node) or self._rows(node)
        if step is None:
            raise Unsupported(f"{node.op} on {node.dtype} {node.shape}")
        self.plan.append(step)
        self.available.update(member.name for member in step.region.nodes)

    def _add_view(self, node: Node) -> None:
        if missing := [name for name in node.inputs if name not in self.available]:
            raise Unsupported(f"{node.name} reads {missing[0]}, which no step computes before it")
        self.plan.append(View(node))
        self.available.add(node.name)

    def _add_kept(self, node: Node) -> None:
        if missing := [name for name in node.inputs if not self._ready(name)]:
            raise Unsupported(f"{node.name} reads {missing[0]}, which no step computes before it")
        self.plan.append(Kept(node))
        self.available.add(node.name)

    def _ready(self, name: str) -> bool:
        """Whether a value exists before the current step; views of what exists are made on the way."""
        if name in self.available:
            return True
        node = self.graph.node(name)
        kept = is_kept(node, self.graph, self.track)
        if not (kept or is_view(node)) or not all(self._ready(source) for source in node.inputs):
            return False
        if kept:
            self._add_kept(node)
        else:
            self._add_view(node)
        return True

    # Regions: what one kernel computes.

    def _epilogue(self, nodes: list[Node], whole: bool = False) -> Region:
        """The anchor (`nodes`, the last is its value) and the elementwise operations that may follow in registers.

        Args:
            whole: whether the kernel knows all dimensions of three, and does not flatten the first two.
        """
        anchor = nodes[-1]
        region, best = list(nodes), list(nodes)
        narrowest = _width(anchor)
        for node in self._followers(nodes[0]):
            if node in region or node.shape != anchor.shape or not self._joins(node, region, whole):
                continue
            region.append(node)
            leaving = self._leaving(region)
            one = len(leaving) == 1 and leaving[0] is node and node.dtype in FLOATS
            if one and _width(node) <= narrowest:
                best, narrowest = list(region), _width(node)
        leaving = self._leaving(best)
        if len(leaving) != 1:
            raise Unsupported(f"more than one value leaves {anchor.name}")
        return Region(tuple(best), tuple(leaving))

    def _joins(self, node: Node, region: list[Node], whole: bool) -> bool:
        members = {member.name for member in region}
        inside = [name for name in node.inputs if name in members]
        outside = [name for name in node.inputs if name not in members]
        if not inside or is_view(node) or expression(node, lambda _: "x") is None:
            return False
        return all(
            self._ready(name) and self._broadcasts(self.graph.node(name), node, whole)
            for name in outside
        )

    def _broadcasts(self, operand: Node, node: Node, whole: bool = False) -> bool:
        """Whether an operand can be read beside a tile of the node's values."""
        if operand.shape is None or operand.dtype not in FLOATS or node.shape is None:
            return False
        if operand.shape == node.shape or _count(operand.shape) == 1:
            return True
        rank = len(node.shape)
        padded = (1,) * (rank - len(operand.shape)) + operand.shape
        if whole or rank in (2, 4, 5):
            return all(a in (1, b) for a, b in zip(padded, node.shape, strict=True))
        return padded == (1,) * (rank - 1) + node.shape[-1:]

    def _followers(self, anchor: Node) -> Iterator[Node]:
        names = [node.name for node in self.graph.nodes]
        for node in self.graph.nodes[names.index(anchor.name) + 1 :]:
            if node.kind == "call" and base_name(node) not in _IGNORED:
                yield node

    def _leaving(self, nodes: Iterable[Node]) -> list[Node]:
        members = {node.name: node for node in nodes}
        return [
            node
            for node in members.values()
            if node.name in self.graph.outputs
            or any(
                user.name not in members and base_name(user) not in _IGNORED
                for user in self.graph.users(node.name)
            )
        ]

    # Anchors.

    def _source(self, argument: Argument) -> Node:
        """The node of an argument that has to exist already."""
        if not isinstance(argument, Ref) or not self._ready(argument.node):
            raise Unsupported(f"{argument!r} is no value that exists already")
        return self.graph.node(argument.node)

    def _gated_product(self, node: Node) -> GatedProduct | None:
        """Two products of one left factor whose results meet in one value, such as silu(gate) * value."""
        if base_name(node) not in ("linear", "matmul", "mm"):
            return None
        pair = self._halves_of(node) or self._twin_of(node)
        if pair is None:
            return None
        products, inner, left, right = pair
        if not all(isinstance(p.args[1], Ref) and self._ready(p.args[1].node) for p in products):
            return None
        a, weights = self._source(node.args[0]), tuple(self._source(p.args[1]) for p in products)
        biases = tuple(
            self._source(p.args[2]) for p in products if len(p.args) > 2 and p.args[2] is not None
        )
        if any(len(w.shape or ()) != 2 or w.dtype != a.dtype for w in weights) or len(
            biases
        ) not in (0, len(products)):
            return None
        if a.dtype not in FLOATS or len(a.shape or ()) < 2:
            return None
        try:
            region = self._epilogue(
                [*products, *inner, *(n for n in (left, right) if n not in products)]
            )
        except Unsupported:
            return None
        return GatedProduct(a, weights, biases, base_name(node) == "linear", left, right, region)

    def _halves_of(self, node: Node) -> tuple[list[Node], list[Node], Node, Node] | None:
        """The two halves along the last dimension, where all that happens to a product is that it is cut into them."""
        users = self.graph.users(node.name)
        if (
            len(users) != 1
            or base_name(users[0]) not in ("chunk", "split")
            or node.name in self.graph.outputs
        ):
            return None
        parts, last = self.graph.users(users[0].name), len(node.shape or ()) - 1
        dim = keyword(users[0], 2, "dim", 0)
        if len(parts) != 2 or [part.args[1] for part in parts] != [0, 1] or not _is_last(dim, last):
            return None
        if (
            parts[0].shape != parts[1].shape
            or 2 * (parts[0].shape or (0,))[-1] != (node.shape or (0,))[-1]
        ):
            return None
        return [node], [users[0]], parts[0], parts[1]

    def _twin_of(self, node: Node) -> tuple[list[Node], list[Node], Node, Node] | None:
        """Another product of the same left factor with a weight of the same shape."""
        for other in self._followers(node):
            same = (
                other.op == node.op
                and other.shape == node.shape
                and len(other.args) == len(node.args)
            )
            if same and other.args[0] == node.args[0] and other.name not in self.available:
                return [node, other], [], node, other
        return None

    def _product(self, node: Node) -> Product | None:
        name = base_name(node)
        if name not in ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm"):
            return None
        bias: Node | None = None
        arguments = list(node.args)
        if name in ("addmm", "baddbmm"):
            if node.kwargs:
                raise Unsupported(f"{node.op} with {sorted(node.kwargs)}")
            bias = self._source(arguments.pop(0))
        elif name == "linear" and len(arguments) > 2 and arguments[2] is not None:
            bias = self._source(arguments[2])
        a, b = self._source(arguments[0]), self._source(arguments[1])
        if a.dtype not in FLOATS or a.dtype != b.dtype or a.shape is None or b.shape is None:
            raise Unsupported(f"a product of {a.dtype} and {b.dtype}")
        if bias is not None and not self._broadcasts(bias, node):
            raise Unsupported(f"a bias of {bias.shape}")
        if len(b.shape) == 2 and len(a.shape) >= 2:
            template: Literal["gemm", "batched_gemm"] = "gemm"
        elif len(a.shape) >= 3 and a.shape[:-2] == b.shape[:-2]:
            template = "batched_gemm"
        else:
            raise Unsupported(f"a product of {a.shape} and {b.shape}")
        return Product(template, a, b, name == "linear", bias, self._epilogue([node]))

    def _convolution(self, node: Node) -> Convolution | None:
        name = base_name(node)
        positions = _CONVOLUTIONS.get(
            "convolution" if name == "convolution" else name.rstrip("123d")
        )
        if positions is None or node.shape is None or len(node.shape) not in (3, 4, 5):
            return None
        dimensions = len(node.shape) - 2
        values = {
            key: keyword(node, position, key, 0 if "padding" in key else 1)
            for key, position in positions.items()
        }
        transposed = name.startswith("conv_transpose") or values.pop("transposed", False) is True
        groups = values.pop("groups")
        number(groups)
        x, weight = self._source(node.args[0]), self._source(node.args[1])
        if isinstance(values["padding"], str):
            values["padding"] = _same_padding(values, weight)
        sizes = {key: _options(value, dimensions) for key, value in values.items()}
        bias = (
            self._source(node.args[2]) if len(node.args) > 2 and node.args[2] is not None else None
        )
        if x.dtype not in FLOATS or x.dtype != weight.dtype or len(x.shape or ()) != dimensions + 2:
            raise Unsupported(f"a convolution of {x.dtype} {x.shape}")
        step = Convolution(
            x=x,
            weight=weight,
            bias=bias,
            stride=sizes["stride"],
            padding=sizes["padding"],
            dilation=sizes["dilation"],
            groups=groups,
            transposed=transposed,
            output_padding=sizes.get("output_padding", (0,) * dimensions),
            region=Region((node,), (node,)),
        )
        tokens = self._tokens_of(node) if step.template == "patch_convolution" else []
        return replace(
            step, region=self._epilogue([node, *tokens], whole=bool(tokens)), tokens=bool(tokens)
        )

    def _tokens_of(self, node: Node) -> list[Node]:
        """The two views that make an image (batch, channels, height, width) tokens (batch, pixels, channels), if they do."""
        batch, channels, *image = node.shape or ()
        pixels = math.prod(image)
        flat = self._only_view(node)
        tokens = self._only_view(flat) if flat else None
        if len(image) != 2 or not flat or not tokens or flat.shape != (batch, channels, pixels):
            return []
        turned = tokens.shape == (batch, pixels, channels) and (tokens.stride or ())[-1:] == (
            pixels,
        )
        return [flat, tokens] if turned else []

    def _only_view(self, node: Node) -> Node | None:
        """The view that a value has as its only user."""
        users = self.graph.users(node.name)
        alone = len(users) == 1 and node.name not in self.graph.outputs and is_view(users[0])
        return users[0] if alone else None

    def _attention(self, node: Node) -> Attention | None:
        if base_name(node) == "scaled_dot_product_attention":
            return self._scaled_dot_product(node)
        if base_name(node) in ("matmul", "bmm"):
            return self._spelled_out_attention(node)
        return None

    def _scaled_dot_product(self, node: Node) -> Attention:
        q, k, v = (self._source(argument) for argument in node.args[:3])
        mask = keyword(node, 3, "attn_mask", None)
        dropout = keyword(node, 4, "dropout_p", 0.0)
        causal = keyword(node, 5, "is_causal", False)
        scale = keyword(node, 6, "scale", None)
        if dropout != 0.0:
            raise Unsupported("attention with dropout")
        region = Region((node,), (node,))
        if mask is None:
            return self._checked(Attention(q, k, v, scale, False, bool(causal), region))
        given = self._source(mask)
        use: MaskUse = "kept" if given.dtype == "bool" else "added"
        return self._checked(Attention(q, k, v, scale, False, bool(causal), region, given, use))

    def _spelled_out_attention(self, node: Node) -> Attention | None:
        """q @ k^T, a scale, a mask, softmax and @ v, nothing of it wanted elsewhere."""
        chain, scale, divides = [node], None, False
        mask: tuple[Node, MaskUse] | None = None
        while True:
            users = [u for u in self.graph.users(chain[-1].name) if base_name(u) not in _IGNORED]
            if len(users) != 1 or chain[-1].name in self.graph.outputs:
                return None
            user = users[0]
            kind = base_name(user)
            scores = Ref(node=chain[-1].name)
            if not any(map(_is_softmax, chain)) and (found := self._mask(user, scores)):
                if mask is not None:
                    return None
                mask = found
            elif (
                kind in ("mul", "div")
                and scale is None
                and mask is None
                and not any(map(_is_softmax, chain))
            ):
                scale, divides = user.args[1], kind == "div"
                if isinstance(scale, Ref) or user.args[0] != scores:
                    return None
            elif _is_softmax(user) and not any(map(_is_softmax, chain)):
                if number(user.args[1]) not in (-1, len(user.shape or ()) - 1):
                    return None
            elif kind in ("matmul", "bmm") and _is_softmax(chain[-1]):
                return self._whole_attention([*chain, user], scale, divides, mask)
            elif not (kind in ("dropout", "contiguous") and _is_identity(user)):
                return None
            chain.append(user)

    def _mask(self, node: Node, scores: Ref) -> tuple[Node, MaskUse] | None:
        """The tensor with which an operation masks scores, and how; None if it is something else."""
        name, arguments = base_name(node), list(node.args)
        use: MaskUse = "added"
        if name == "add" and not node.kwargs and scores in arguments and len(arguments) == 2:
            arguments.remove(scores)
            mask = arguments[0]
        elif name == "masked_fill" and arguments[0] == scores and _is_lowest(arguments[2]):
            mask, use = arguments[1], "dropped"
        elif name == "where" and arguments[1] == scores and _is_lowest(arguments[2]):
            mask, use = arguments[0], "kept"
        else:
            return None
        if not isinstance(mask, Ref):
            return None
        made = self.graph.node(mask.node)
        turned = base_name(made) in ("bitwise_not", "logical_not")
        if turned or (base_name(made) == "eq" and made.args[1:] == (0,)):
            mask, use = made.args[0], "kept" if use == "dropped" else "dropped"
        if not self._ready(mask.node) or len(self.graph.node(mask.node).shape or ()) > 4:
            return None
        return self.graph.node(mask.node), use

    def _whole_attention(
        self,
        chain: list[Node],
        scale: Argument,
        divides: bool,
        mask: tuple[Node, MaskUse] | None,
    ) -> Attention | None:
        first, last = chain[0], chain[-1]
        if last.args[0] != Ref(node=chain[-2].name) or len(first.shape or ()) not in (3, 4):
            return None
        key = first.args[1]
        turned = self.graph.node(key.node) if isinstance(key, Ref) else None
        if (
            turned is None
            or not isinstance(last.args[1], Ref)
            or not self._ready(last.args[1].node)
        ):
            return None
        q, k, v = self._source(first.args[0]), self._source(key), self._source(last.args[1])
        region = Region(tuple(chain), (last,))
        step = Attention(q, k, v, 1.0 if scale is None else scale, divides, False, region)
        if mask is None:
            return self._checked(step)
        step = self._checked(replace(step, mask=mask[0], mask_use=mask[1]))
        for member in chain:
            for name in member.inputs:
                compared = mask[0].name in self.graph.node(name).inputs
                if compared and self.graph.users(name) == (member,):
                    self.available.add(name)  # the kernel compares by itself
        return step

    def _checked(self, step: Attention) -> Attention:
        shapes = [node.shape for node in (step.q, step.k, step.v)]
        if any(shape is None or len(shape) not in (3, 4) or shape[-1] > 4096 for shape in shapes):
            raise Unsupported(f"attention of {shapes}")
        batches = {shape[:-3] for shape in shapes if shape}
        heads = [shape[-3] for shape in shapes if shape]
        if len(batches) != 1 or heads[1] != heads[2] or heads[0] % heads[1]:
            raise Unsupported(f"attention of {shapes}")
        if step.q.dtype not in FLOATS or any(n.dtype != step.q.dtype for n in (step.k, step.v)):
            raise Unsupported(f"attention of {step.q.dtype}, {step.k.dtype} and {step.v.dtype}")
        if max((step.q.shape or (0,))[-1], (step.v.shape or (0,))[-1]) > 256:
            raise Unsupported("attention with more than 256 features a head")
        return step

    # Everything else: elementwise operations and reductions over the last dimension.

    def _rows(self, node: Node) -> Rows | None:
        shape = self._row_shape(node)
        if shape is None or len(shape) < 1:
            return None
        region: list[Node] = []
        for candidate in [node, *self._followers(node)]:
            if candidate.name not in self.available and self._joins_rows(candidate, region, shape):
                region.append(candidate)
        if not region or region[0] is not node:
            return None
        if any(leaving.dtype not in FLOATS for leaving in self._leaving(region)):
            raise Unsupported("a comparison leaves a kernel")
        reduces = any(base_name(member) in _ROW_OPERATIONS for member in region)
        if reduces and shape[-1] > MAX_ROW:
            raise Unsupported(f"rows of {shape[-1]} numbers")
        return Rows(shape, reduces, Region(tuple(region), tuple(self._leaving(region))))

    def _row_shape(self, node: Node) -> tuple[int, ...] | None:
        if base_name(node) in _ROW_OPERATIONS:
            return self.graph.node(node.inputs[0]).shape
        shapes = [self.graph.node(name).shape or () for name in node.inputs]
        return max([node.shape or (), *shapes], key=_count) if node.shape is not None else None

    def _joins_rows(self, node: Node, region: list[Node], shape: tuple[int, ...]) -> bool:
        members = {member.name for member in region}
        read = {name for member in region for name in member.inputs}
        inside = [name for name in node.inputs if name in members]
        if region and not inside and not read.intersection(node.inputs):
            return False
        if not all(name in members or self._ready(name) for name in node.inputs):
            return False
        if _is_row_unsqueeze(node, shape) and inside:
            return True
        operands = [self.graph.node(name) for name in node.inputs]
        outside = [operand for operand in operands if operand.name not in members]
        known = node.dtype in FLOATS or node.dtype == "bool"
        if is_view(node) or not known or any(o.dtype not in FLOATS for o in outside):
            return False
        if base_name(node) in _ROW_OPERATIONS:
            return reduces_rows(node, shape, operands)
        if expression(node, lambda _: "x") is None or node.shape is None:
            return False
        return node.shape in row_shapes(shape) and all(
            fits_row(operand, node.shape, shape) for operand in operands
        )


def row_shapes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The shapes of values that a kernel over rows may hold: whole rows, and one number a row."""
    return (shape, (*shape[:-1], 1), shape[:-1])


def fits_row(operand: Node, node_shape: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    found = operand.shape or ()
    if _count(found) == 1:
        return True
    if node_shape != shape:
        return found == node_shape
    leading_ones = (1,) * (len(shape) - 1)
    return found in (shape, (*shape[:-1], 1), shape[-1:], (*leading_ones, shape[-1]))


def reduces_rows(node: Node, shape: tuple[int, ...], operands: list[Node]) -> bool:
    """Whether a reduction or normalisation is over exactly the last dimension of `shape`."""
    if operands[0].shape != shape:
        return False
    name, last = base_name(node), len(shape) - 1
    if name in ("layer_norm", "rms_norm"):
        vectors = all(operand.shape == shape[-1:] for operand in operands[1:])
        return len(node.args[1]) == 1 and vectors
    if len(node.args) < 2 or node.kwargs.get("dtype") is not None:
        return False
    if name in ("softmax", "_softmax", "log_softmax"):
        return number(node.args[1]) in (-1, last)
    if name == "linalg_vector_norm":
        dim = node.args[2] if len(node.args) > 2 else None
        return number(node.args[1]) == 2 and _is_last(dim, last)
    if name == "var" and number(node.kwargs.get("correction", 1)) not in (0, 1):
        return False
    return _is_last(node.args[1], last)


def _is_last(argument: Argument, last: int) -> bool:
    """Whether a dimension, or a list of dimensions, is the last one alone."""
    dims = argument if isinstance(argument, list) else [argument]
    return len(dims) == 1 and dims[0] is not None and number(dims[0]) in (-1, last)


def _is_row_unsqueeze(node: Node, shape: tuple[int, ...]) -> bool:
    return base_name(node) == "unsqueeze" and node.shape == (*shape[:-1], 1)


def _is_softmax(node: Node) -> bool:
    return base_name(node) in ("softmax", "_softmax")


def _is_lowest(argument: Argument) -> bool:
    """Minus infinity, or a number so low that a softmax makes nothing of it."""
    if isinstance(argument, Symbol):
        return argument.symbol == 'float("-inf")'
    return isinstance(argument, int | float) and argument <= -1e9


def _is_identity(node: Node) -> bool:
    return base_name(node) == "contiguous" or node.args[2] is False or node.args[1] == 0.0


def _same_padding(values: dict[str, Argument], weight: Node) -> Argument:
    """The numbers that padding "same" or "valid" stands for."""
    taps = (weight.shape or ())[2:]
    dilation = [int(number(d)) for d in _options(values["dilation"], len(taps))]
    reach = [d * (k - 1) for d, k in zip(dilation, taps, strict=True)]
    if values["padding"] == "valid":
        return 0
    if any(r % 2 for r in reach):
        raise Unsupported("a padding that differs between the two sides")
    return [r // 2 for r in reach]


def _options(argument: Argument, dimensions: int) -> tuple[Argument, ...]:
    """Stride, padding or dilation, one number per dimension."""
    values = tuple(argument) if isinstance(argument, list) else (argument,)
    for value in values:
        number(value)
    return values * dimensions if len(values) == 1 else values


def _width(node: Node) -> int:
    return {"float32": 4, "float64": 8}.get(node.dtype or "", 2)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
