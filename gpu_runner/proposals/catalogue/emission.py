"""Write the module that carries out a plan: one Triton kernel and host function per step, and a `ModelNew` that calls them.

The constructor is the reference's own, so parameters keep their names; sizes come from the tensors at run time.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpu_runner.core.graph import Argument, Constructor, Graph, Node, Ref, Symbol, attribute_text
from gpu_runner.proposals.catalogue.along import Along, along_call, along_function
from gpu_runner.proposals.catalogue.kept import kept_text
from gpu_runner.proposals.catalogue.naming import function_name, result_name, words
from gpu_runner.proposals.catalogue.plan import (
    Attention,
    Convolution,
    GatedProduct,
    Kept,
    Product,
    Rows,
    Step,
    Unsupported,
    View,
    is_view,
    keyword,
    number,
    row_shapes,
)
from gpu_runner.proposals.catalogue.pointwise import base_name, expression, literal
from gpu_runner.proposals.catalogue.reductions import reduction
from gpu_runner.proposals.catalogue.render import Operand, Reach, fill, render, render_attention
from gpu_runner.proposals.catalogue.tiles import (
    attention_launch,
    convolution_launch,
    gated_launch,
    gemm_launch,
    gemm_template,
)

_TAKEN = frozenset(
    "acc rows cols row col left right half depth inside in_rows in_cols a b x y M N K B H W O OH OW self torch"
    " triton tl nn F grid out stride padding dilation groups image channels filters pixels group tap c h w kh kw"
    " weight k v q scale C O phase patches places step blocks tiles memory_format output_padding"
    " and or not in is if for while def class return lambda None True False".split()
)


@dataclass(frozen=True)
class Precisions:
    """The `input_precision` of float32 products that the task's policy permits."""

    product: str
    convolution: str


def emit(graph: Graph, steps: Sequence[Step], precisions: Precisions, title: str) -> str:
    """The candidate's source.

    Raises:
        Unsupported: a step turns out to need what its template does not have.
    """
    return _Module(graph, precisions).source(steps, title)


@dataclass
class _Kernel:
    """Collects what the statements of one kernel read from outside of it."""

    graph: Graph
    reach: Callable[[Node], Reach]
    host: Callable[[Argument], str]
    names: dict[str, str] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    def value(self, argument: Argument) -> str:
        """The text of an operand inside the kernel; an outside one is registered on the way."""
        if isinstance(argument, Ref):
            if argument.node not in self.names:
                self._register(argument.node)
            return self.names[argument.node]
        if isinstance(argument, Symbol) and argument.value is not None:
            return self._scalar(argument)
        return literal(argument)

    def _register(self, name: str) -> None:
        node = self.graph.node(name)
        local = self._local(node.path.split(".")[-1] if node.path else name)
        self.names[name] = local
        self.operands[local] = Operand(local, self.reach(node))
        self.passed[local] = self.host(Ref(node=name))
        self.nodes[local] = node

    def _scalar(self, symbol: Symbol) -> str:
        text = self.host(symbol)
        for local, passed in self.passed.items():
            if passed == text:
                return local
        local = self._local(re.sub(r"\W+", "_", text.split(".")[-1]).strip("_"))
        self.operands[local] = Operand(local, Reach.NUMBER)
        self.passed[local] = text
        return local

    def _local(self, name: str) -> str:
        """A name of its own for a value in the kernel."""
        used = {*self.names.values(), *self.operands}
        name = f"{name}_in" if name in _TAKEN or not name.isidentifier() else name
        while name in used:
            name += "_2"
        return name

    def statement(self, node: Node, target: str | None = None) -> list[str]:
        """What computes an elementwise operation; nothing where it only gives a value another name."""
        text = expression(node, self.value)
        if text is None:
            raise Unsupported(node.op)
        if target is None and text in self.names.values():
            self.names[node.name] = text
            return []
        if text == target:
            return []
        return [f"{target or self.result(node)} = {text}"]

    def result(self, node: Node) -> str:
        self.names[node.name] = self._local(node.name)
        return self.names[node.name]


class _Module:
    def __init__(self, graph: Graph, precisions: Precisions) -> None:
        self.graph = graph
        self.precisions = precisions
        self.functions: list[str] = []
        self.function_names: set[str] = set()
        self.forward: list[str] = []
        self.variables: dict[str, str] = {}
        for node in graph.nodes:
            if node.kind == "input":
                self.variables[node.name] = node.path
            elif node.kind in ("parameter", "buffer"):
                self.variables[node.name] = attribute_text(node.path)

    def source(self, steps: Sequence[Step], title: str) -> str:
        for step in steps:
            if isinstance(step, View):
                self._view(step.node)
            elif isinstance(step, Kept):
                self.forward.append(f"{self._variable(step.node)} = {self._kept(step.node)}")
            elif isinstance(step, Along):
                self._along(step)
            elif isinstance(step, Product):
                self._product(step)
            elif isinstance(step, GatedProduct):
                self._gated_product(step)
            elif isinstance(step, Convolution):
                self._convolution(step)
            elif isinstance(step, Attention):
                self._attention(step)
            else:
                self._rows(step)
        constructor = self.graph.constructor or Constructor()
        return "\n".join(
            [
                f'"""{title}"""\n',
                _imports(constructor),
                *(f"\n\n{text}" for text in self.functions),
                "\n" + self._class(constructor),
            ]
        ).replace("\n\n\n\n", "\n\n\n")

    def _class(self, constructor: Constructor) -> str:
        lines = [f"class ModelNew({constructor.bases}):"]
        if constructor.body:
            lines += [_indented(constructor.body, 1), ""]
        parameters = ", ".join(["self", *constructor.forward_parameters])
        lines += [f"    def forward({parameters}):"]
        lines += [f"        {line}" for line in [*self.forward, f"return {self._outputs()}"]]
        return "\n".join(lines) + "\n"

    def _outputs(self) -> str:
        texts = ["None" if name is None else self._text(name) for name in self.graph.outputs]
        form = self.graph.output_form
        if form == "tensor" and len(texts) == 1:
            return texts[0]
        if form == "list":
            return f"[{', '.join(texts)}]"
        if form == "tuple":
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        raise Unsupported("outputs in a form other than a tensor, tuple or list")

    # Names and expressions of the host.

    def _text(self, name: str) -> str:
        return self.variables[name]

    def _host(self, argument: Argument) -> str:
        if isinstance(argument, Ref):
            return self._text(argument.node)
        if isinstance(argument, Symbol):
            if not argument.symbol:
                raise Unsupported(
                    f"{argument.value} follows from the sizes in a way that is not understood"
                )
            return argument.symbol
        return repr(argument)

    def _variable(self, node: Node) -> str:
        name = result_name(node, self.graph)
        while name in self.function_names or name in self.variables.values() or name in _TAKEN:
            name += "_"
        self.variables[node.name] = name
        return name

    def _function_name(self, nodes: Sequence[Node]) -> str:
        return self._unique(function_name(nodes))

    def _unique(self, name: str) -> str:
        taken = {*self.function_names, *self.variables.values()}
        stem, count = name, 2
        while name in taken:
            name, count = f"{stem}_{count}", count + 1
        self.function_names.add(name)
        return name

    # Steps.

    def _view(self, node: Node) -> None:
        source = self._host(node.args[0])
        if node.kind == "item":
            self.variables[node.name] = f"{source}[{node.args[1]}]"
            return
        text = _view_text(node, source, self._host)
        users = [
            user
            for user in self.graph.users(node.name)
            if base_name(user) != "_assert_tensor_metadata"
        ]
        if len(users) <= 1 and len(text) < 60 and node.name not in self.graph.outputs:
            self.variables[node.name] = text
        else:
            variable = self._variable(node)
            self.forward.append(f"{variable} = {text}")

    def _kept(self, node: Node) -> str:
        device = next(n.path for n in self.graph.nodes if n.kind == "input" and n.shape is not None)
        return kept_text(node, self._host, f"{device}.device")

    def _along(self, step: Along) -> None:
        name = self._function_name([step.node])
        self._add_function(along_function(step, name))
        x = self._text(step.x.name)
        if not x.isidentifier():
            self.forward.append(f"{step.x.name} = {x}")
            x = step.x.name
        self.forward += along_call(step, name, x, self._variable(step.node))

    def _product(self, step: Product) -> None:
        anchor = step.region.nodes[0]
        shape = anchor.shape or ()
        batched = step.template == "batched_gemm"
        rank = 3 if batched else 2
        kernel = _Kernel(self.graph, lambda node: _reach(node, shape), self._host)
        statements = self._epilogue(kernel, step.region.nodes, step.bias, anchor)
        name = self._function_name(step.region.nodes)
        columns = shape[-1]
        a, b = self._text(step.a.name), self._text(step.b.name)
        if batched and len(shape) > 3:
            a, b = f"{a}.flatten(0, -3)", f"{b}.flatten(0, -3)"
        elif not batched and len(shape) > 2:
            a = f"{a}.flatten(0, -2)"
        if step.b_transposed:
            b = f"{b}.t()"
        launch = gemm_launch(
            math.prod(shape[:-1]) if not batched else shape[-2],
            columns,
            (step.a.shape or (1,))[-1],
            anchor.dtype or "float32",
            self.precisions.product,
        )
        self._add_function(
            render(
                "batched_gemm" if batched else gemm_template(launch, step.a.dtype or "float32"),
                name=name,
                operands=list(kernel.operands.values()),
                statements=statements,
                precision=self.precisions.product,
                dtype=step.a.dtype or "float32",
                reorders=_is_worth_a_copy(step),
                launch=launch,
                out_dtype=_out_dtype(step.a, step.region.outputs[0]),
                docstring=_docstring(
                    step.region.nodes,
                    "The product of a (M, K) and b (K, N)"
                    if not batched
                    else "The products a[i] @ b[i]",
                ),
            )
        )
        operands = [self._flattened(kernel, local, rank, len(shape)) for local in kernel.operands]
        call = f"{name}({', '.join([a, b, *operands])})"
        if len(shape) > rank:
            call += f".unflatten(0, {self._text(step.a.name)}.shape[:-{2 if batched else 1}])"
        self._assign(step.region.outputs[0], call)

    def _gated_product(self, step: GatedProduct) -> None:
        shape = step.left.shape or ()
        kernel = _Kernel(self.graph, lambda node: _reach(node, shape), self._host)
        kernel.names |= {step.left.name: "left", step.right.name: "right"}
        statements = []
        texts = [self._text(node.name) for node in step.biases]
        if step.biases:
            kernel.operands |= {n: Operand(n, Reach.CHANNEL) for n in ("bias_left", "bias_right")}
            statements = ["left += bias_left", "right += bias_right"]
        passed_biases = [f"*{texts[0]}.chunk(2)"] if len(texts) == 1 else texts
        nodes = step.region.nodes
        computed = nodes[nodes.index(step.right) + 1 :]
        for node in computed:
            statements += kernel.statement(node, "acc" if node is computed[-1] else None)
        name = self._function_name([nodes[0], *computed])
        launch = gated_launch(
            math.prod(shape[:-1]),
            shape[-1],
            (step.a.shape or (1,))[-1],
            step.a.dtype or "float32",
            self.precisions.product,
        )
        self._add_function(
            render(
                "gated_gemm",
                name=name,
                operands=list(kernel.operands.values()),
                statements=statements,
                precision=self.precisions.product,
                dtype=step.a.dtype or "float32",
                reorders=math.prod(shape[:-1]) >= 256,
                launch=launch,
                out_dtype=_out_dtype(step.a, step.region.outputs[0]),
                docstring=_docstring(
                    [nodes[0], *computed], "The products of a (M, K) with b_left and b_right (K, N)"
                ),
            )
        )
        flat = len(shape) > 2
        a = f"{self._text(step.a.name)}.flatten(0, -2)" if flat else self._text(step.a.name)
        weights = [self._text(w.name) + ".t()" * step.b_transposed for w in step.weights]
        if len(weights) == 1:
            weights = [f"*{weights[0]}.chunk(2, dim=1)"]
        operands = [self._flattened(kernel, local, 2, len(shape)) for local in kernel.passed]
        call = f"{name}({', '.join([a, *weights, *passed_biases, *operands])})"
        if flat:
            call += f".unflatten(0, {self._text(step.a.name)}.shape[:-1])"
        self._assign(step.region.outputs[0], call)

    def _flattened(self, kernel: _Kernel, local: str, rank: int, full_rank: int) -> str:
        """An operand as the host function takes it; a full one loses the dimensions that the product flattens."""
        text = kernel.passed[local]
        if kernel.operands[local].reach is not Reach.FULL or full_rank == rank:
            return text
        return f"{text}.flatten(0, {-rank})"

    def _epilogue(
        self, kernel: _Kernel, nodes: Sequence[Node], bias: Node | None, anchor: Node
    ) -> list[str]:
        kernel.names[anchor.name] = "acc"
        statements = []
        if bias is not None:
            statements.append(f"acc += {kernel.value(Ref(node=bias.name))}")
        for node in nodes[1:]:
            statements += kernel.statement(node, "acc" if node is nodes[-1] else None)
        return statements

    def _convolution(self, step: Convolution) -> None:
        anchor = step.region.nodes[0]
        shape = anchor.shape or ()
        # The bias is a vector over channels, whatever the general rule makes of its shape.
        kernel = _Kernel(
            self.graph,
            lambda node: Reach.CHANNEL if node is step.bias else _pixel_reach(node, step),
            self._host,
        )
        kernel.names |= {node.name: "acc" for node in step.region.nodes if is_view(node)}
        nodes = [node for node in step.region.nodes if not is_view(node)]
        statements = self._epilogue(kernel, nodes, step.bias, anchor)
        template = step.template
        missing = (5 if template == "convolution_3d" else 4) - len(shape)
        groups = int(number(step.groups))
        launch = convolution_launch(
            template,
            math.prod(shape) // shape[1],
            shape[1] // groups,
            math.prod((step.weight.shape or ())[2:]) * (step.x.shape or (1, 1))[1] // groups,
            anchor.dtype or "float32",
            self.precisions.convolution,
        )
        name = self._function_name(step.region.nodes)
        self._add_function(
            render(
                template,
                name=name,
                operands=list(kernel.operands.values()),
                statements=statements,
                precision=self.precisions.convolution,
                dtype=step.x.dtype or "float32",
                launch=launch,
                out_dtype=_out_dtype(step.x, step.region.outputs[0]),
                docstring=_docstring(step.region.nodes, "Convolution of x (batch, channels, ...)"),
            )
        )
        full = {local for local, operand in kernel.operands.items() if operand.reach is Reach.FULL}
        dimension = ".unsqueeze(2)" * missing
        x, weight = self._text(step.x.name), self._text(step.weight.name)
        image = f".mT.unflatten(-1, ({x}.shape[2] // {weight}.shape[2], -1))"
        as_image = image if step.tokens else dimension
        arguments = [
            x + dimension,
            weight + dimension,
            *(text + as_image * (local in full) for local, text in kernel.passed.items()),
            *self._options(step, missing),
        ]
        call = _called(name, arguments) + ".squeeze(2)" * missing
        call += ".flatten(2).transpose(1, 2)" * step.tokens
        self._assign(step.region.outputs[0], call)

    def _options(self, step: Convolution, missing: int) -> list[str]:
        """What a template's host function needs to know beside its tensors; `missing` dimensions come first."""
        if step.template == "patch_convolution":
            return ["memory_format=torch.channels_last"] * step.tokens
        options = {
            "stride": (*(1,) * missing, *step.stride),
            "padding": (*(0,) * missing, *step.padding),
            "dilation": (*(1,) * missing, *step.dilation),
            "output_padding": (*(0,) * missing, *step.output_padding),
        }
        if step.template == "transposed_convolution":
            del options["dilation"]
        if not step.transposed:
            del options["output_padding"]
        texts = [f"{name}=({', '.join(map(self._host, o))})" for name, o in options.items()]
        turned = ["transposed=True"] * (step.transposed and step.template == "convolution_3d")
        return [*texts, *turned, f"groups={self._host(step.groups)}"]

    def _attention(self, step: Attention) -> None:
        name = self._unique("attention")
        depth = max((step.q.shape or (1,))[-1], (step.v.shape or (1,))[-1])
        precision = self.precisions.product
        launch = attention_launch(depth, step.q.dtype or "float32", precision)
        dtype = step.q.dtype or "float32"
        self._add_function(
            render_attention(
                name=name,
                causal=step.causal,
                mask="no" if step.mask is None else step.mask_use,
                precision=precision,
                dtype=dtype,
                launch=launch,
            )
        )
        q, k, v = (self._text(node.name) for node in (step.q, step.k, step.v))
        if len(step.region.nodes) > 1:  # spelled out: the second factor is already k^T
            k = (
                k.removesuffix(".transpose(-2, -1)")
                if k.endswith(".transpose(-2, -1)")
                else f"{k}.transpose(-2, -1)"
            )
        flat = len(step.q.shape or ()) == 3
        if flat:
            q, k, v = (f"{text}.unsqueeze(1)" for text in (q, k, v))
        if step.scale is None:
            scale = f"{self._text(step.q.name)}.shape[-1] ** -0.5"
        else:
            scale = self._host(step.scale)
            scale = f"1.0 / {scale}" if step.divides else scale
        mask = ""
        if step.mask is not None:
            text = self._text(step.mask.name)
            lies_flat = flat and len(step.mask.shape or ()) == 3
            mask = f", {text}.unsqueeze(1)" if lies_flat else f", {text}"
        call = f"{name}({q}, {k}, {v}, {scale}{mask})"
        self._assign(step.region.outputs[0], f"{call}.squeeze(1)" if flat else call)

    def _rows(self, step: Rows) -> None:
        shape = step.shape
        kernel = _Kernel(self.graph, lambda node: _row_reach(node, shape), self._host)
        statements: list[str] = []
        for node in step.region.nodes:
            if base_name(node) == "unsqueeze":
                kernel.names[node.name] = kernel.value(node.args[0])
                continue
            lines = reduction(node, kernel.value, kernel.result)
            statements += lines if lines is not None else kernel.statement(node)
        name = self._function_name(step.region.nodes)
        self._add_function(self._rows_function(step, name, kernel, statements))
        call = f"{name}({', '.join(kernel.passed.values())})"
        outputs = step.region.outputs
        if len(outputs) == 1:
            self._assign(outputs[0], call)
        else:
            self.forward.append(f"{', '.join(self._variable(node) for node in outputs)} = {call}")

    def _rows_function(self, step: Rows, name: str, kernel: _Kernel, statements: list[str]) -> str:
        lead = next((k for k, o in kernel.operands.items() if o.reach is Reach.FULL), None)
        if lead is None:
            raise Unsupported("no operand has the whole shape")
        results = self._result_names(step.region.outputs)
        kernel_arguments, loads, host, passed = [], [], [], []
        flat = len(step.shape) != 2
        if flat or any(node.shape == (*step.shape[:-1], 1) for node in step.region.outputs):
            host.append(f"shape = {lead}.shape")
        for local, operand in kernel.operands.items():
            if operand.reach is Reach.NUMBER:
                kernel_arguments.append(f"{local},")
                passed.append(local)
                continue
            kernel_arguments.append(f"{local}_ptr,")
            passed.append(local)
            loads += _row_load(local, operand)
            if operand.reach is Reach.FULL:
                host += _row_host(local, kernel.nodes[local], flat)
                kernel_arguments.append(f"stride_{local},")
                passed.append(f"{local}.stride(0)")
            elif operand.reach is Reach.ROW:
                host.append(f"{local} = {local}.reshape(-1)")
        host.append(f"M, N = {lead}.shape")
        stores, returned = [], []
        for node in step.region.outputs:
            local, out = kernel.names[node.name], results[node.name]
            whole = node.shape == step.shape
            size = "(M, N)" if whole else "M"
            host.append(
                f"{out} = torch.empty({size}, device={lead}.device, dtype=torch.{node.dtype})"
            )
            kernel_arguments.append(f"{out}_ptr,")
            passed.append(out)
            if whole:
                stores.append(
                    f"tl.store({out}_ptr + rows[:, None] * N + cols[None, :], {local}, mask=inside)"
                )
            else:
                stores.append(f"tl.store({out}_ptr + rows[:, None], {local}, mask=in_rows)")
            returned.append(_row_result(out, node, step.shape, flat))
        launch = _rows_launch(step)
        return fill(
            "rows" if step.reduces else "elementwise",
            name=name,
            signature=", ".join(kernel.operands),
            sections={
                "arguments": kernel_arguments,
                "epilogue": [*loads, *statements, *stores],
                "docstring": [f'"""{_docstring(step.region.nodes, None)}"""'],
                "operands": host,
                "passed": [", ".join(passed) + ","],
                "return": [f"return {', '.join(returned)}"],
            },
            launch=launch,
        )

    def _result_names(self, outputs: Sequence[Node]) -> dict[str, str]:
        if len(outputs) == 1:
            return {outputs[0].name: "out"}
        return {node.name: f"{node.name}_out" for node in outputs}

    def _add_function(self, text: str) -> None:
        self.functions.append(text)

    def _assign(self, node: Node, text: str) -> None:
        if self.graph.outputs == (node.name,) and self.graph.output_form == "tensor":
            self.variables[node.name] = text
        else:
            self.forward.append(f"{self._variable(node)} = {text}")


def _is_worth_a_copy(step: Product) -> bool:
    """Whether b is used by enough rows that laying it out anew costs little beside the product."""
    shape = step.region.nodes[0].shape or (1,)
    rows = shape[-2] if step.template == "batched_gemm" else math.prod(shape[:-1])
    return rows >= 256


def _called(name: str, arguments: Sequence[str]) -> str:
    """A call in `forward`; one argument a line where they do not fit in one."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= 110:
        return line
    return "\n".join(
        [f"{name}(", *(f"            {argument}," for argument in arguments), "        )"]
    )


def _view_text(node: Node, source: str, host: Callable[[Argument], str]) -> str:
    name = base_name(node)
    arguments = list(node.args[1:])
    if name in ("view", "_unsafe_view", "reshape"):
        return f"{source}.reshape({', '.join(_sizes(arguments[0], host))})"
    if name == "expand":
        return f"{source}.expand({', '.join(_sizes(arguments[0], host))})"
    if name == "slice":
        return _slice_text(node, source, host)
    if node.kwargs and name != "contiguous":
        raise Unsupported(f"{node.op} with {sorted(node.kwargs)}")
    if name in ("numpy_T", "mT"):
        return f"{source}.{name.removeprefix('numpy_')}"
    texts = [f"({', '.join(map(host, a))})" if isinstance(a, list) else host(a) for a in arguments]
    return f"{source}.{name}({', '.join(texts)})"


def _sizes(sizes: list[Argument], host: Callable[[Argument], str]) -> list[str]:
    """The sizes of a view; one that is not understood may be left to torch as -1."""
    unknown = [size for size in sizes if isinstance(size, Symbol) and not size.symbol]
    if len(unknown) == 1 and -1 not in sizes:
        return ["-1" if size is unknown[0] else host(size) for size in sizes]
    return [host(size) for size in sizes]


def _slice_text(node: Node, source: str, host: Callable[[Argument], str]) -> str:
    dim = int(number(keyword(node, 1, "dim", 0)))
    start, end, step = (
        keyword(node, i, k, d) for i, k, d in ((2, "start", None), (3, "end", None), (4, "step", 1))
    )
    if dim < 0:
        raise Unsupported("a slice from the last dimensions")
    ends = isinstance(end, int) and end > 2**62
    bounds = (
        f"{'' if start in (None, 0) else host(start)}:{'' if end is None or ends else host(end)}"
    )
    if step != 1:
        bounds += f":{host(step)}"
    return f"{source}[{':, ' * dim}{bounds}]"


def _imports(constructor: Constructor) -> str:
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import triton",
        "import triton.language as tl",
    ]
    rest = [line for line in constructor.preamble.splitlines() if line not in lines]
    helpers = [line for line in rest if not line.startswith(("import ", "from "))]
    imports = [line for line in rest if line.startswith(("import ", "from "))]
    text = "\n".join([*imports, *lines])
    return text + ("\n\n" + "\n".join(helpers) if helpers else "")


def _indented(text: str, levels: int) -> str:
    return "\n".join("    " * levels + line if line else "" for line in text.splitlines())


def _docstring(nodes: Sequence[Node], anchor: str | None) -> str:
    said = words(nodes)
    if anchor is not None:
        after = ", ".join(said[1:])
        return f"{anchor}, then {after} in registers." if after else f"{anchor}."
    return f"In one pass: {', '.join(said)}."


def _out_dtype(source: Node, result: Node) -> str | None:
    return None if source.dtype == result.dtype else f"torch.{result.dtype}"


def _reach(node: Node, shape: tuple[int, ...]) -> Reach:
    found = node.shape or ()
    if math.prod(found) == 1:
        return Reach.SCALAR
    vector = math.prod(found) == found[-1] == shape[-1]
    return Reach.CHANNEL if vector and (node.stride or (1,))[-1] == 1 else Reach.FULL


def _pixel_reach(node: Node, step: Convolution) -> Reach:
    if step.tokens:
        return _reach(node, step.region.nodes[2].shape or ())
    return _image_reach(node, step.region.nodes[0].shape or ())


def _image_reach(node: Node, shape: tuple[int, ...]) -> Reach:
    found, channels = node.shape or (), 1 - len(shape)
    if math.prod(found) == 1:
        return Reach.SCALAR
    vector = len(found) >= -channels and found[channels] == shape[1] == math.prod(found)
    if vector:
        return Reach.CHANNEL
    if found != shape and len(shape) == 3:
        raise Unsupported(f"an operand of {found} beside {shape}")
    return Reach.FULL


def _row_reach(node: Node, shape: tuple[int, ...]) -> Reach:
    found = node.shape or ()
    if math.prod(found) == 1:
        return Reach.SCALAR
    if found == shape:
        return Reach.FULL
    if found in row_shapes(shape):
        return Reach.ROW
    if (node.stride or (1,))[-1] != 1:
        raise Unsupported("a vector with gaps")
    return Reach.CHANNEL


def _row_load(local: str, operand: Operand) -> list[str]:
    where, mask = {
        Reach.FULL: (f" + rows[:, None] * stride_{local} + cols[None, :]", "inside"),
        Reach.CHANNEL: (" + cols[None, :]", "in_cols"),
        Reach.ROW: (" + rows[:, None]", "in_rows"),
        Reach.SCALAR: ("", ""),
    }[operand.reach]
    masked = f", mask={mask}, other=0.0" if mask else ""
    return [f"{local} = tl.load({local}_ptr{where}{masked}).to(tl.float32)"]


def _row_host(local: str, node: Node, flat: bool) -> list[str]:
    gaps = node.stride is not None and node.stride[-1] != 1
    text = local + (".contiguous()" if gaps else "")
    if flat:
        text += f".reshape(-1, {local}.shape[-1])"
    return [f"{local} = {text}"] if text != local else []


def _row_result(out: str, node: Node, shape: tuple[int, ...], flat: bool) -> str:
    if node.shape == shape:
        return f"{out}.reshape(shape)" if flat else out
    if node.shape == shape[:-1]:
        return f"{out}.reshape(shape[:-1])" if flat else out
    return f"{out}.reshape(*shape[:-1], 1)"


def _rows_launch(step: Rows) -> dict[str, int]:
    columns = step.shape[-1]
    block = 1 << max(0, columns - 1).bit_length()
    if not step.reduces:
        block = min(block, 1024)
        return {"BLOCK_N": block, "BLOCK_M": max(1, 1024 // block), "num_warps": 4}
    rows = max(1, 1024 // block)
    return {"BLOCK_M": rows, "num_warps": min(16, max(1, rows * block // 512))}
