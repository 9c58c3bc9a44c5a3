"""Have inductor write its Triton program for a task, without a GPU and without the task's memory.

The task is built under fake tensors, traced with symbolic sizes and lowered by inductor up to the point where it would
load the code; a driver that stands in for the device answers what code generation asks. Decisions that inductor takes
on static sizes (persistent reductions) are taken on the full size instead, so that one program fits every size.
"""

import os
import tempfile
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from gpu_runner.core.probe import sizes, with_assignments
from gpu_runner.proposals.child.compiler_functions import (
    convolution,
    decompositions,
    fusing_bytes,
    symbolic_functions,
)
from gpu_runner.proposals.child.compiler_recurrent import symbolic_recurrence
from gpu_runner.proposals.child.compiler_sizes import Expression, Sizes, told_apart


class Refused(Exception):
    """No program for this task; the message says why, for people."""


@dataclass(frozen=True)
class Variant:
    """One way of compiling. `persistent_limit`: longest row that one program keeps on the chip as a whole."""

    name: str
    move: str
    persistent_limit: int = 32768
    split_reductions: bool = False


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("default", "the compiler's fusion, rows kept on the chip as a whole"),
        Variant("looped", "the compiler's fusion, reductions in a loop", persistent_limit=0),
        Variant("split", "the compiler's fusion, long reductions split", split_reductions=True),
    )
}


@dataclass(frozen=True)
class Attribute:
    """A number that a module of the model carries and that depends on the size, such as `blocks.0.n_heads`."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass
class Built:
    """A task's model and inputs as fake tensors, and the module-level integers they came from."""

    namespace: dict[str, Any]
    model: nn.Module
    inputs: list[Any]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by their path; a tied one once."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}


@dataclass
class Captured:
    """Inductor's program for a task and what its arguments are.

    `arguments` are in the order of the program's: the name of a size, `self.PATH` for parameters and buffers, or
    `input:N` for the N-th input. `symbols` maps inductor's names of sizes to ours. `floats` maps the stand-in values
    of float attributes that depend on the size, as they stand in the program, to the attributes' paths. `output` is what
    the model returns, with `_0`, `_1` and so on for the program's outputs.
    """

    program: str
    arguments: list[str]
    symbols: dict[str, str]
    sizes: Sizes
    shapes: dict[str, tuple[int | Expression, ...]]
    dtypes: dict[str, str]
    attributes: dict[str, str] = field(default_factory=dict)
    floats: dict[str, str] = field(default_factory=dict)
    matmul_tf32: bool = False
    convolution_tf32: bool = False
    output: str = "_0"


def build(source: str, assignments: dict[str, int]) -> Built:
    """Run a task's source with other module-level integers and build its model and inputs, all without memory."""
    module = types.ModuleType("task")
    text = with_assignments(source, assignments) if assignments else source
    exec(compile(text, "task.py", "exec"), module.__dict__)
    names = module.__dict__
    if "Model" not in names:
        raise Refused("the task is a function, not a module")
    model = names["Model"](*names.get("get_init_inputs", list)())
    return Built(names, model, list(names["get_inputs"]()))


def capture(source: str, probe: dict[str, int] | None, variant: Variant) -> Captured:
    """Inductor's program for the task in `source`.

    Args:
        probe: the module-level integers of the probe task; None if it is the full task.

    Raises:
        Refused: the task cannot be compiled into a program of plain launches.
    """
    with without_devices():
        return _captured(source, probe, variant)


def _captured(source: str, probe: dict[str, int] | None, variant: Variant) -> Captured:
    from torch._subclasses import FakeTensorMode

    full = {size.key: size.value for size in sizes(source)}
    small = full | (probe or {})
    assignments = [full, small]
    with FakeTensorMode():
        builds = [build(source, {}), build(source, probe or {})]
        third = told_apart(full, small)
        if third is not None and (other := _try_build(source, third)) is not None:
            assignments.append(third)
            builds.append(other)
    return _Capture(builds, Sizes.of(*assignments), variant).run()


def _try_build(source: str, assignments: dict[str, int]) -> Built | None:
    """A build whose forward runs too; None where these sizes do not go together."""
    try:
        built = build(source, assignments)
        with torch.no_grad():
            built.model(*built.inputs)
    except (RuntimeError, ValueError, TypeError, AssertionError):
        return None
    return built


class _Capture:
    def __init__(self, builds: Sequence[Built], sizes: Sizes, variant: Variant) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.full, *self.others = builds
        self.sizes, self.variant = sizes, variant
        self.env = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        self.symint: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int | Expression, ...]] = {}
        self.floats: dict[str, str] = {}

    def run(self) -> Captured:
        integers, floats = self._attributes()
        given = [_given(built) for built in (self.full, *self.others)]
        fakes = {name: self._fake(name, [one[name] for one in given]) for name in given[0]}
        for attribute in integers:
            self._size_attribute(attribute)
        for attribute in floats:
            self._stand_in(attribute)
        names = [*self.symint, *fakes]
        arguments = [*self.symint.values(), *fakes.values()]
        graph = self._trace(names, arguments)
        self._refuse_effects(graph)
        program = self._program(graph, arguments)
        self._refuse_fixed_sizes()
        return Captured(
            program=program,
            arguments=names,
            symbols={str(symint.node.expr): name for name, symint in self.symint.items()},
            sizes=self.sizes,
            shapes=self.shapes,
            dtypes={
                name: str(fake.dtype).removeprefix("torch.")
                for name, fake in fakes.items()
                if isinstance(fake, torch.Tensor)
            },
            attributes={a.path: self._attribute_text(a) for a in integers},
            floats=self.floats,
            matmul_tf32=torch.backends.cuda.matmul.allow_tf32,
            convolution_tf32=torch.backends.cudnn.allow_tf32,
            output=_returned(self.output, count()),
        )

    # Sizes ----------------------------------------------------------------------------------------------------------

    def _symbol(self, name: str) -> Any:
        """The symbolic integer of a size, made at its first use."""
        if name not in self.symint:
            from torch._dynamo.source import ConstantSource
            from torch.fx.experimental.symbolic_shapes import DimDynamic
            from torch.utils._sympy.value_ranges import ValueRanges

            source = ConstantSource(name)
            value = self.sizes.symbols[name][0]
            symbol = self.env.create_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
            # Torch may ask whether a size is at least its value; at the end of its range that would fix it.
            self.env.var_to_range[symbol] = ValueRanges(2, value + 1)
            self.symint[name] = self.env.create_symintnode(symbol, hint=value, source=source)
        return self.symint[name]

    def _symbolic(self, expression: Expression) -> Any:
        names = {name: self._symbol(name) for name in self.sizes.symbols if name in expression.text}
        return eval(expression.text, {"__builtins__": {}}, names)

    def _dimension(self, values: Sequence[int], fallback: str) -> tuple[Any, int | Expression]:
        expression = self.sizes.expression(values, fallback)
        if expression is None:
            return values[0], values[0]
        return self._symbolic(expression), expression

    def _fake(self, name: str, at_every_size: Sequence[Any]) -> Any:
        """A fake tensor with symbolic sizes for a parameter, buffer or input; other inputs must be constants."""
        full = at_every_size[0]
        if not isinstance(full, torch.Tensor):
            if any(value != full for value in at_every_size):
                raise Refused(f"{name} is no tensor and differs between full and probe size")
            return full
        plain = name.replace("self.", "").replace("input:", "input").replace(".", "_")
        dimensions = [
            self._dimension(values, f"{plain}_size{axis}")
            for axis, values in enumerate(zip(*(t.shape for t in at_every_size), strict=True))
        ]
        self.shapes[name] = tuple(description for _, description in dimensions)
        with self.mode:
            fake = torch.empty([size for size, _ in dimensions], dtype=full.dtype, device="cpu")
            order = sorted(range(full.dim()), key=lambda axis: -full.stride(axis))
            if full.is_contiguous():
                return fake
            if not full.permute(order).is_contiguous():
                raise Refused(f"{name} is neither contiguous nor a permutation of it")
            back = sorted(range(full.dim()), key=order.__getitem__)
            permuted = torch.empty([dimensions[axis][0] for axis in order], dtype=full.dtype)
            return permuted.permute(back)

    # Attributes -----------------------------------------------------------------------------------------------------

    def _attributes(self) -> tuple[list[Attribute], list[Attribute]]:
        """Integer (or tuple) and float attributes of modules that differ between full and probe size."""
        integers, floats = [], []
        others = [dict(built.model.named_modules()) for built in self.others]
        for path, module in self.full.model.named_modules():
            for name, value in vars(module).items():
                if name.startswith("_") or not (isinstance(value, float) or _is_size(value)):
                    continue
                values = [value, *(vars(modules[path]).get(name) for modules in others)]
                if len(set(map(type, values))) > 1 or all(v == value for v in values):
                    continue
                if isinstance(value, float):
                    floats.append(Attribute(path, name, value))
                else:
                    integers.append(Attribute(path, name, values))
        return integers, floats

    def _size_attribute(self, attribute: Attribute) -> None:
        module = self.full.model.get_submodule(attribute.module)
        fallback = attribute.path.replace(".", "_")
        if isinstance(attribute.value[0], int):
            symbolic = self._dimension(attribute.value, fallback)[0]
        else:
            symbolic = tuple(
                self._dimension(values, f"{fallback}{place}")[0]
                for place, values in enumerate(zip(*attribute.value, strict=True))
            )
        setattr(module, attribute.name, symbolic)

    def _attribute_text(self, attribute: Attribute) -> str:
        if not isinstance(attribute.value[0], int):
            return ""
        expression = self.sizes.expression(attribute.value, attribute.path.replace(".", "_"))
        return expression.text if expression else ""

    def _stand_in(self, attribute: Attribute) -> None:
        """Give a float attribute a value that can be recognised in the program."""
        module = self.full.model.get_submodule(attribute.module)
        stand_in = attribute.value * (1 + 1e-7 * (len(self.floats) + 1))
        self.floats[repr(stand_in)] = attribute.path
        setattr(module, attribute.name, stand_in)

    # Tracing and lowering -------------------------------------------------------------------------------------------

    def _trace(self, names: list[str], arguments: list[Any]) -> torch.fx.GraphModule:
        from torch.fx.experimental.proxy_tensor import make_fx

        def forward(*values: Any) -> Any:
            given = dict(zip(names, values, strict=True))
            state = {n.removeprefix("self."): v for n, v in given.items() if n.startswith("self.")}
            inputs = [value for name, value in given.items() if name.startswith("input:")]
            self.output = torch.func.functional_call(self.full.model, state, tuple(inputs))
            return self.output

        with torch.no_grad(), self.mode, symbolic_functions(), symbolic_recurrence():
            return make_fx(forward, tracing_mode="real", pre_dispatch=True)(*arguments)

    def _refuse_effects(self, graph: torch.fx.GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                raise Refused(f"uses a tensor that is neither input, parameter nor buffer: {node}")
            target = node.target
            if not isinstance(target, torch._ops.OpOverload):
                continue
            if torch.Tag.nondeterministic_seeded in target.tags and not _is_off(node):
                raise Refused(f"draws random numbers ({target})")

    def _refuse_fixed_sizes(self) -> None:
        """A size that torch replaced by a number while it traced would stand in the program for every size."""
        for name, symint in self.symint.items():
            if self.env.replace(symint.node._expr).is_number:
                raise Refused(
                    f"the size {name} is fixed at {self.sizes.symbols[name][0]} in what is traced"
                )

    def _program(self, graph: torch.fx.GraphModule, arguments: list[Any]) -> str:
        from torch._inductor.compile_fx import compile_fx

        with _code_generation_only(self.variant) as programs:
            try:
                with torch.no_grad():
                    compile_fx(graph, arguments)
            except _Stop:
                pass
        if not programs:
            raise Refused("there is nothing to compute")
        return programs[0]


def _given(built: Built) -> dict[str, Any]:
    """What the forward is given, by `self.PATH` for parameters and buffers and `input:N` for inputs."""
    state = {f"self.{path}": tensor for path, tensor in built.tensors.items()}
    return state | {f"input:{place}": value for place, value in enumerate(built.inputs)}


def _returned(value: Any, places: Iterator[int]) -> str:
    """What a model returns as an expression over its leaves, numbered as the program returns them."""
    match value:
        case dict():
            items = [f"{key!r}: {_returned(item, places)}" for key, item in value.items()]
            return f"{{{', '.join(items)}}}"
        case list():
            return f"[{', '.join(_returned(item, places) for item in value)}]"
        case tuple():
            return f"({''.join(f'{_returned(item, places)}, ' for item in value)})"
    place = next(places)
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if not isinstance(value, torch.Tensor):
        raise Refused(f"the model returns a {type(value).__name__}")
    return f"_{place}"


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(type(item) is int for item in value)
    return type(value) is int


def _is_off(node: torch.fx.Node) -> bool:
    """Dropout or noise that does nothing, in evaluation mode or with probability 0."""
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    share = next((given[name] for name in ("p", "dropout", "dropout_p") if name in given), None)
    return share == 0 or False in (given.get("train"), given.get("training"))


@contextmanager
def without_devices() -> Iterator[None]:
    """Torch sees no GPU, whether there is one or not, so that the program is the same and none is touched."""
    with (
        patch.object(torch.cuda, "is_available", lambda: False),
        patch.object(torch.cuda, "device_count", lambda: 0),
    ):
        yield


# Inductor without a device ------------------------------------------------------------------------------------------


class _Stop(BaseException):
    """Ends a compilation once its program is written."""


class _NoDevice:
    """What inductor asks of Triton's driver while it generates code."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> None:
        return None


def _at_full_size(sizes: Any, expression: Any) -> int:
    """The value of a symbolic size; torch 2.11 has another name for the question."""
    ask = getattr(sizes, "optimization_hint", None) or sizes.size_hint
    return ask(expression)


def _is_longer_at_full_size(left: Any, right: Any) -> bool:
    """Whether one stride is at least another; asked of symbols, torch may fail on quotients of them."""
    from torch._inductor.virtualized import V

    sizes = V.graph.sizevars
    return bool(_at_full_size(sizes, left) >= _at_full_size(sizes, right))


def _without_scaled_softmax(joint_graph: Any) -> None:
    """Forget the rewriting of `softmax(x * scale)` that guards against an infinite scale: it hides the softmax."""
    unwanted = (joint_graph.mul_softmax_pattern, joint_graph.div_softmax_pattern)
    for patterns in joint_graph.pass_patterns:
        for entries in patterns.patterns.values():
            entries[:] = [e for e in entries if getattr(e, "handler", None) not in unwanted]


@contextmanager
def _code_generation_only(variant: Variant) -> Iterator[list[str]]:
    """Inductor writes Triton for fake CPU tensors and stops before loading it; the programs gather in the list."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor"))
    import triton
    from torch._inductor import config, decomposition, lowering
    from torch._inductor.choices import InductorChoices
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.fx_passes import fuse_attention, joint_graph
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import Layout, Sort
    from torch._inductor.virtualized import V

    triton.runtime.driver.set_active(_NoDevice())
    programs: list[str] = []
    generate = GraphLowering.codegen

    def stop_after(self: GraphLowering) -> Any:
        wrapper, *_ = generate(self)
        programs.append(getattr(wrapper, "value", wrapper))
        raise _Stop

    def persistent(features: Any, cooperative_reduction: bool) -> bool:
        inner = features.get_reduction_hint().name == "INNER"
        limit = variant.persistent_limit if inner else min(64, variant.persistent_limit)
        return _at_full_size(V.graph.sizevars, features.reduction_numel) <= limit

    def persistent_block(rnumel: Any) -> int:
        return 1 << (_at_full_size(V.graph.sizevars, rnumel) - 1).bit_length()

    settings = {
        "cpu_backend": "triton",
        "force_disable_caches": True,
        "compile_threads": 1,
        "allow_buffer_reuse": False,
        "inplace_buffers": False,
        "split_reductions": variant.split_reductions,
        "layout_optimization": False,
        "comprehensive_padding": False,
        "triton.max_tiles": 2,
    }
    with ExitStack() as stack:
        stack.enter_context(config.patch(settings))
        stack.enter_context(patch.object(GraphLowering, "codegen", stop_after))
        block = staticmethod(persistent_block)
        stack.enter_context(patch.object(TritonKernel, "_get_persistent_RBLOCK", block))
        choices = "should_use_persistent_reduction"
        stack.enter_context(patch.object(InductorChoices, choices, staticmethod(persistent)))
        stack.enter_context(patch.object(lowering, "use_two_step_variance", lambda *a, **k: False))
        longer = staticmethod(_is_longer_at_full_size)
        stack.enter_context(patch.object(Layout, "_stride_expr_ge_or_false", longer))
        _without_scaled_softmax(joint_graph)
        # Attention written out stays written out: the compiler's own call for it belongs to a library.
        stack.enter_context(patch.object(fuse_attention, "_sfdp_init", lambda *a, **k: None))
        own = {torch.ops.aten.convolution.default: convolution}
        for cat in (torch.ops.aten.cat, torch.ops.aten.cat.default):
            own[cat] = fusing_bytes(lowering.lowerings[cat])
        stack.enter_context(patch.dict(lowering.lowerings, own))
        stack.enter_context(patch.dict(decomposition.decompositions, decompositions()))
        # A sort stays a library's call: the compiler's own needs its runtime.
        stack.enter_context(patch.object(Sort, "create", lambda *_, **__: (None, None)))
        limits = "needs_fallback_due_to_atomic_add_limitations"
        stack.enter_context(patch.object(lowering, limits, lambda dtype: dtype is torch.bool))
        yield programs
