"""Write the module: kernels, the model's constructor, and a `forward` that allocates, launches and calls."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_runner.proposals.catalogue import function_for
from gpu_runner.proposals.catalogue.selections import sort_function, top_k_function
from gpu_runner.proposals.catalogue.tiles import convolution_template
from gpu_runner.proposals.child.compiler_capture import Captured, Refused
from gpu_runner.proposals.child.compiler_class import model_shell, reserved_names
from gpu_runner.proposals.child.compiler_kernels import KernelRewriter, PlainKernel, placeholder
from gpu_runner.proposals.child.compiler_launch import block_sizes
from gpu_runner.proposals.child.compiler_program import (
    Alias,
    Allocate,
    Define,
    Launch,
    LibraryCall,
    Pick,
    Program,
    Step,
)
from gpu_runner.proposals.child.compiler_sizes import Expression
from gpu_runner.proposals.child.compiler_text import (
    LINE,
    Replace,
    expression,
    layout,
    same,
    simplify_sizes,
    size_name,
    unparse,
)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the forward: its name there, and size and stride as texts (None: not known)."""

    name: str
    size: tuple[str, ...] | None
    stride: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Policy:
    """Who multiplies matrices, and how exactly."""

    own_kernels: bool
    matmul: str = "ieee"
    convolution: str = "ieee"


def emit(source: str, captured: Captured, program: Program, policy: Policy, title: str) -> str:
    """The candidate's source.

    Raises:
        Refused: the program does something that the candidate may not or cannot do.
    """
    return _Module(source, captured, program, policy, title).text()


class _Module:
    def __init__(
        self, source: str, captured: Captured, program: Program, policy: Policy, title: str
    ) -> None:
        self.shell = model_shell(source)
        self.captured, self.program, self.policy, self.title = captured, program, policy, title
        self.names = reserved_names(self.shell)
        self.module_names = reserved_names(self.shell)
        self.tensors: dict[str, Tensor] = {}
        self.values: dict[str, ast.expr] = {}
        self.kernels: dict[str, PlainKernel] = {}
        self.functions: dict[str, str] = {}
        self.function_names: dict[tuple[object, ...], str] = {}
        self.lines: list[str] = []
        self.full: dict[str, int] = {}
        self.probe: dict[str, int] = {}
        self.products: dict[str, str] = {}
        self.used_sizes: set[str] = set()
        self.extents: dict[str, str] = {}

    def text(self) -> str:
        self._bind_arguments()
        self._name_buffers()
        for step in self.program.steps:
            self._emit(step)
        output = self._outputs()
        return self._module(output)

    # Arguments ------------------------------------------------------------------------------------------------------

    def _bind_arguments(self) -> None:
        self.inputs = self.shell.arguments
        for names in (self.names, self.module_names):
            names.taken |= set(self.inputs)
        self.grid = self.names.new("grid")
        sizes = {name: self.names.new(name) for name in self.captured.sizes.symbols}
        self.size_names = sizes
        for name, values in self.captured.sizes.symbols.items():
            self.full[sizes[name]], self.probe[sizes[name]] = values[:2]
        for name, product in self.captured.sizes.products.items():
            self.size_names[name] = self.names.new(name)
            self.products[self.size_names[name]] = self._dimension(product)
            self.full[self.size_names[name]], self.probe[self.size_names[name]] = product.values[:2]
        for argument, meaning in zip(self.program.arguments, self.captured.arguments, strict=True):
            if meaning in sizes:
                self.values[argument] = ast.Name(sizes[meaning], ast.Load())
            elif meaning in self.captured.shapes:
                self.tensors[argument] = self._given(meaning)
        for symbol, name in self.captured.symbols.items():
            self.values.setdefault(symbol, ast.Name(sizes[name], ast.Load()))

    def _given(self, meaning: str) -> Tensor:
        size = tuple(self._dimension(d) for d in self.captured.shapes[meaning])
        name = meaning
        if meaning.startswith("input:"):
            name = self.inputs[int(meaning.removeprefix("input:"))]
        else:
            name = _indexed(meaning)
        return Tensor(name, size, _contiguous(size), self.captured.dtypes[meaning])

    def _dimension(self, dimension: int | Expression) -> str:
        if isinstance(dimension, int):
            return str(dimension)
        for name, product in self.captured.sizes.products.items():
            if product.text == dimension.text and self.size_names[name] in self.products:
                return self.size_names[name]
        names = {old: ast.Name(new, ast.Load()) for old, new in self.size_names.items()}
        return ast.unparse(Replace(names).visit(expression(dimension.text)))

    def _name_buffers(self) -> None:
        """Buffers are called after the operation whose result they hold."""
        wishes: dict[str, str] = {}
        wholes: dict[str, str] = {}
        for step in self.program.steps:
            if isinstance(step, Alias):
                wholes[step.name] = _buffer_of(step.value)
            elif isinstance(step, LibraryCall):
                telling = _telling(step.operations)
                wishes[step.out] = telling[-1] if telling else step.operation
            elif isinstance(step, Launch):
                kernel = self.program.kernels[step.kernel]
                results = [n for n in self._written(step) if n.startswith("buf")]
                for place, name in enumerate(results):
                    while name in wholes:
                        name = wholes[name]
                    last = (_telling(kernel.operations) or ["values"])[-1]
                    wishes[name] = last if place == len(results) - 1 else f"{last}_part"
        for output in self.program.outputs:
            names = [n.id for n in ast.walk(output) if isinstance(n, ast.Name)]
            for name in names:
                if name in wishes:
                    wishes[name] = "output"
        self.buffer_names = {
            name: self.names.new(re.sub(r"_\d+$", "", wish)) for name, wish in wishes.items()
        }

    def _written(self, launch: Launch) -> list[str]:
        kernel = self.program.kernels[launch.kernel]
        written = []
        for parameter, argument in zip(kernel.arguments, launch.arguments, strict=True):
            if parameter.startswith(("out_ptr", "in_out_ptr")):
                written.append(_buffer_of(argument))
        return written

    # Numbers --------------------------------------------------------------------------------------------------------

    def _size(self, node: ast.expr) -> str:
        """A size of the program as host code."""
        value = simplify_sizes(Replace(self.values).visit(_copied(node)))
        for name in (n.id for n in ast.walk(value) if isinstance(n, ast.Name)):
            if name not in self.full and name not in self.tensors and name != "max":
                raise Refused(f"the program uses {name}, which is no size of the task")
            self.used_sizes.add(name)
        text = ast.unparse(value)
        for name, product in self.products.items():
            for factor in range(1, 9):
                if "*" in text and self._always_equal(text, f"{factor} * {product}"):
                    self.used_sizes.add(name)
                    return name if factor == 1 else f"{factor} * {name}"
        return text

    def _evaluate(self, text: str, at: Mapping[str, int]) -> int:
        return eval(text, {"__builtins__": {}, "max": max}, dict(at))

    def _equal(self, a: str, b: str) -> bool:
        """Whether two sizes are the same number at full and at probe size."""
        return all(self._evaluate(a, at) == self._evaluate(b, at) for at in (self.full, self.probe))

    def _always_equal(self, a: str, b: str) -> bool:
        """Whether two sizes are the same number at other sizes too."""
        return self._equal(a, b) and all(
            self._evaluate(a, at) == self._evaluate(b, at)
            for at in map(self._other_sizes, (0, 3, 7))
        )

    def _other_sizes(self, shift: int) -> dict[str, int]:
        sizes = {name: 11 * place + shift for place, name in enumerate(self.full, 2)}
        return sizes | {name: self._evaluate(p, sizes) for name, p in self.products.items()}

    def _same_size(self, size: Sequence[str], other: Sequence[str]) -> bool:
        return len(size) == len(other) and all(map(self._equal, size, other))

    def _same_layout(
        self, size: Sequence[str], stride: Sequence[str], other: Sequence[str]
    ) -> bool:
        """Whether two strides address a tensor of this size alike; those of dimensions of 1 do not matter."""
        return all(
            self._equal(a, b)
            for n, a, b in zip(size, stride, other, strict=True)
            if not self._equal(n, "1")
        )

    # Tensors --------------------------------------------------------------------------------------------------------

    def _tensor(self, node: ast.expr) -> Tensor:
        """The tensor that an expression of the program denotes; views become host code."""
        match node:
            case ast.Name(id=name) if name in self.tensors:
                return self.tensors[name]
            case ast.Call(
                func=ast.Name(id="reinterpret_tensor"), args=[base, size, stride, offset]
            ):
                shape = tuple(self._size(e) for e in size.elts)  # type: ignore[attr-defined]
                steps = tuple(self._size(e) for e in stride.elts)  # type: ignore[attr-defined]
                return self._view(self._tensor(base), shape, steps, self._size(offset))
        raise Refused(f"the program uses {ast.unparse(node)[:60]} as a tensor")

    def _view(
        self, base: Tensor, size: tuple[str, ...], stride: tuple[str, ...], offset: str
    ) -> Tensor:
        if self._equal(offset, "0") and base.size is not None and base.stride is not None:
            if self._same_size(base.size, size) and self._same_layout(size, base.stride, stride):
                return Tensor(base.name, size, stride, base.dtype)
            whole = self._equal(_product(base.size), _product(size))
            if whole and self._same_layout(base.size, base.stride, _contiguous(base.size)):
                text = self._view_text(base, size, stride)
                if text is not None:
                    return Tensor(text, size, stride, base.dtype)
        if base.size is not None and base.stride is not None:
            text = self._slice_text(base, size, stride, offset)
            if text is not None:
                return Tensor(text, size, stride, base.dtype)
        text = f"{base.name}.as_strided({_tuple(size)}, {_tuple(stride)}, {offset})"
        if self._equal(offset, "0"):
            text = f"{base.name}.as_strided({_tuple(size)}, {_tuple(stride)})"
        return Tensor(text, size, stride, base.dtype)

    def _slice_text(
        self, base: Tensor, size: tuple[str, ...], stride: tuple[str, ...], offset: str
    ) -> str | None:
        """A part of a tensor along one dimension, or one row of it."""
        assert base.size is not None
        assert base.stride is not None
        if len(size) != len(base.size) or not self._same_layout(size, base.stride, stride):
            return None
        cut = [
            axis
            for axis, (a, b) in enumerate(zip(base.size, size, strict=True))
            if not self._equal(a, b)
        ]
        if len(cut) != 1:
            return None
        step = base.stride[cut[0]]
        start = offset if step == "1" else _quotient(offset, step)
        return None if start is None else f"{base.name}.narrow({cut[0]}, {start}, {size[cut[0]]})"

    def _view_text(
        self, base: Tensor, size: tuple[str, ...], stride: tuple[str, ...]
    ) -> str | None:
        """A contiguous tensor seen in another shape, or with its last two dimensions swapped."""
        if self._same_layout(size, stride, _contiguous(size)):
            return f"{base.name}.view({', '.join(size)})"
        if len(size) < 2:
            return None
        swapped = (*size[:-2], size[-1], size[-2])
        steps = _contiguous(swapped)
        if not self._same_layout(size, stride, (*steps[:-2], steps[-1], steps[-2])):
            return None
        assert base.size is not None
        start = (
            base.name
            if self._same_size(base.size, swapped)
            else f"{base.name}.view({', '.join(swapped)})"
        )
        return f"{start}.t()" if len(size) == 2 else f"{start}.transpose(-2, -1)"

    # Steps ----------------------------------------------------------------------------------------------------------

    def _emit(self, step: Step) -> None:
        match step:
            case Define(name=name, value=value):
                self.values[name] = simplify_sizes(Replace(self.values).visit(_copied(value)))
            case Allocate():
                self._allocate(step)
            case Alias(name=name, value=value):
                self.tensors[name] = self._tensor(value)
            case LibraryCall():
                self._library_call(step)
            case Pick():
                self._pick(step)
            case Launch():
                self._launch(step)

    def _allocate(self, step: Allocate) -> None:
        if step.name not in self.buffer_names:
            return
        size = tuple(self._size(e) for e in step.size)
        stride = tuple(self._size(e) for e in step.stride)
        dtype = step.dtype.removeprefix("torch.")
        self.tensors[step.name] = Tensor(self.buffer_names[step.name], size, stride, dtype)
        if not any(isinstance(s, LibraryCall) and s.out == step.name for s in self.program.steps):
            self.lines.append(
                f"{self.buffer_names[step.name]} = {self._empty(size, stride, dtype)}"
            )

    def _empty(self, size: tuple[str, ...], stride: tuple[str, ...], dtype: str) -> str:
        device = f"device={self._device()}, dtype=torch.{dtype}"
        if not self._same_layout(size, stride, _contiguous(size)):
            return f"torch.empty_strided({_tuple(size)}, {_tuple(stride)}, {device})"
        for tensor in self.tensors.values():
            alike = tensor.name in self.inputs and tensor.dtype == dtype
            if alike and size and tensor.size is not None and self._same_size(tensor.size, size):
                return f"torch.empty_like({tensor.name})"
        return f"torch.empty({_tuple(size)}, {device})"

    def _device(self) -> str:
        names = [t.name for t in self.tensors.values()]
        given = next((n for n in names if n in self.inputs), None) or next(iter(names), None)
        if given is None:
            raise Refused("the model has neither inputs nor parameters")
        return f"{given}.device"

    # Library calls --------------------------------------------------------------------------------------------------

    def _library_call(self, step: LibraryCall) -> None:
        known = self.tensors.get(step.out)
        name = self.buffer_names[step.out]
        operation = step.operation.split(".")[0]
        if operation in _PICKED:
            self._several(operation, name, step)
            return
        if operation == "convolution":
            text, size = self._convolution(step)
        elif operation in ("mm", "addmm", "bmm", "baddbmm"):
            text, size = self._matmul(operation, step)
        else:
            raise Refused(
                f"the compiler leaves {operation} to a library, for which there is no kernel"
            )
        if known is None:
            dtype = self._tensor(step.arguments[0]).dtype
            stride = None if size is None else _contiguous(size)
            self.tensors[step.out] = Tensor(name, size, stride, dtype)
        elif not self._same_layout(
            known.size or (), known.stride or (), _contiguous(known.size or ())
        ):
            raise Refused("a product is written to a padded buffer")
        self.lines.append(f"{name} = {text}")

    def _several(self, operation: str, name: str, step: LibraryCall) -> None:
        """A call with several results, each of which gets its tensor when the program picks it."""
        x = self._tensor(step.arguments[0])
        if x.size is None:
            raise Refused(f"{operation} of a tensor of unknown size")
        given = dict(zip(_PICKED[operation], step.arguments[1:], strict=False)) | step.keywords
        options = {key: self._size(value) for key, value in given.items()}
        size = list(x.size)
        if operation == "topk":
            size[int(options.get("dim", "-1"))] = options["k"]
        if self.policy.own_kernels:
            function = self._selection(operation, x, options)
        else:
            function = f"torch.{operation}"
        kept = [f"{key}={value}" for key, value in options.items() if value != _USUAL.get(key)]
        self.lines.append(f"{name} = {function}({', '.join([x.name, *kept])})")
        self.tensors[step.out] = Tensor(name, tuple(size), _contiguous(size), x.dtype)

    def _selection(self, operation: str, x: Tensor, options: dict[str, str]) -> str:
        """The name of a Triton function; the options that are fixed in its text are taken from `options`."""
        assert x.size is not None
        length = self._evaluate(x.size[int(options.get("dim", "-1"))], self.full)
        order = options.pop("largest" if operation == "topk" else "descending", None)
        for promised in ("sorted", "stable"):
            options.pop(promised, None)
        key = (operation, length, order, x.dtype)
        if key not in self.function_names:
            name = self._module_name("top_k" if operation == "topk" else "sorted_order")
            if operation == "topk":
                text = top_k_function(name, x.dtype, length, largest=order != "False")
            else:
                text = sort_function(name, x.dtype, descending=order == "True")
            if text is None:
                raise Refused(f"there is no kernel for {operation} of {x.dtype}")
            self.function_names[key] = name
            self.functions[name] = text.strip()
        return self.function_names[key]

    def _pick(self, step: Pick) -> None:
        whole = self.tensors[step.call]
        operation = self._operation_of(step.call)
        if operation not in _PICKED:
            raise Refused(f"the program picks a result of {operation}")
        part = f"[{step.index}]" if self.policy.own_kernels else _RESULTS[step.index]
        dtype = "int64" if step.index else whole.dtype
        self.tensors[step.name] = replace(whole, name=f"{whole.name}{part}", dtype=dtype)

    def _operation_of(self, out: str) -> str:
        calls = [s for s in self.program.steps if isinstance(s, LibraryCall) and s.out == out]
        return calls[0].operation.split(".")[0] if calls else out

    def _matmul(self, operation: str, step: LibraryCall) -> tuple[str, tuple[str, ...] | None]:
        tensors = [self._tensor(argument) for argument in step.arguments]
        a, b = tensors[-2:]
        scalars = {
            key: float(ast.literal_eval(step.keywords[key]))
            for key in ("alpha", "beta")
            if key in step.keywords
        }
        arguments = ", ".join(tensor.name for tensor in tensors)
        if not self.policy.own_kernels:
            extra = "".join(f", {key}={value}" for key, value in scalars.items() if value != 1)
            return f"torch.{operation}({arguments}{extra})", None
        assert a.size is not None
        assert b.size is not None
        sizes = [self._evaluate(text, self.full) for text in (a.size[-2], b.size[-1], a.size[-1])]
        function = self._function(
            operation,
            tuple(sizes),
            dtype=a.dtype,
            precision=self.policy.matmul if a.dtype == "float32" else "ieee",
            **scalars,
        )
        return f"{function}({arguments})", None

    def _convolution(self, step: LibraryCall) -> tuple[str, tuple[str, ...] | None]:
        x, weight = (self._tensor(argument) for argument in step.arguments[:2])
        given = dict(zip(_CONVOLUTION, step.arguments, strict=False)) | step.keywords
        bias = given["bias"]
        has_bias = not (isinstance(bias, ast.Constant) and bias.value is None)
        bias_text = self._tensor(bias).name if has_bias else "None"
        values = {key: self._option(given[key]) for key in _CONVOLUTION[3:]}
        if x.size is None or weight.size is None:
            raise Refused("a convolution of unknown size")
        size = self._convolved(x.size, weight.size, values)
        if not self.policy.own_kernels:
            return self._torch_convolution(x, weight, bias_text, values), size
        transposed = bool(values["transposed"])
        groups = self._evaluate(str(values["groups"]), self.full)
        outer, inner, *taps = (self._evaluate(t, self.full) for t in weight.size)
        filters, in_channels = (inner, outer // groups) if transposed else (outer // groups, inner)
        pixels = _product((x.size[0], *(size or x.size)[2:]))
        depth = in_channels
        for tap in taps:
            depth *= tap
        function = self._function(
            "convolution",
            (self._evaluate(pixels, self.full), filters, depth),
            dtype=x.dtype,
            precision=self.policy.convolution if x.dtype == "float32" else "ieee",
            bias=has_bias,
            template=convolution_template(
                (outer, inner, *taps),
                groups=groups,
                transposed=transposed,
                **{key: self._numbers(values[key], len(taps)) for key in _CONVOLUTION[3:6]},
            ),
        )
        options = [
            _tuple([str(v) for v in values[key]])
            if isinstance(values[key], list | tuple)
            else str(values[key])
            for key in _CONVOLUTION[3:]
        ]
        return f"{function}({x.name}, {weight.name}, {bias_text}, {', '.join(options)})", size

    def _numbers(self, option: Any, dimensions: int) -> list[int]:
        """What a convolution's option is at the full size, one number per dimension."""
        values = option if isinstance(option, list | tuple) else [option]
        numbers = [self._evaluate(str(value), self.full) for value in values]
        return numbers * dimensions if len(numbers) == 1 else numbers

    def _option(self, node: ast.expr) -> Any:
        """A convolution's option: a number, a list of them, or text where it depends on the size."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self._option(element) for element in node.elts]
        try:
            return ast.literal_eval(node)
        except ValueError:
            return self._size(node)

    def _convolved(
        self, x: tuple[str, ...], weight: tuple[str, ...], values: Mapping[str, Any]
    ) -> tuple[str, ...] | None:
        """The size of a convolution's result; None where a transposed one depends on the size."""
        spatial = []
        for axis, (length, taps) in enumerate(zip(x[2:], weight[2:], strict=True)):
            stride, padding, dilation, extra = (
                values[key][axis if len(values[key]) > 1 else 0]
                for key in ("stride", "padding", "dilation", "output_padding")
            )
            is_fixed = taps.isdigit() and str not in map(type, (stride, padding, dilation, extra))
            if values["transposed"] and not is_fixed:
                return None
            if not is_fixed:
                spatial.append(_windows(length, taps, str(stride), str(padding), str(dilation)))
                continue
            reach = dilation * (int(taps) - 1)
            if values["transposed"]:
                spatial.append(_stretched(length, stride, reach + extra + 1 - 2 * padding - stride))
            else:
                spatial.append(_shifted(length, 2 * padding - reach - stride, stride))
        channels = weight[0]
        if values["transposed"]:
            groups = str(values["groups"])
            channels = weight[1] if groups == "1" else _product((groups, weight[1]))
        return (x[0], channels, *spatial)

    def _torch_convolution(
        self, x: Tensor, weight: Tensor, bias: str, values: Mapping[str, Any]
    ) -> str:
        assert x.size is not None
        dimensions = len(x.size) - 2
        options = []
        for key, usual in (("stride", 1), ("padding", 0), ("output_padding", 0), ("groups", 1)):
            value = values[key]
            if isinstance(value, list | tuple):
                value = value[0] if len(set(value)) == 1 else _tuple([str(v) for v in value])
            if value != usual:
                options.append(f"{key}={value}")
        dilation = values["dilation"]
        if isinstance(dilation, list | tuple) and any(d != 1 for d in dilation):
            options.append(f"dilation={tuple(dilation)}")
        name = f"conv_transpose{dimensions}d" if values["transposed"] else f"conv{dimensions}d"
        arguments = ", ".join([x.name, weight.name, *([bias] if bias != "None" else []), *options])
        return f"nn.functional.{name}({arguments})"

    def _module_name(self, wish: str) -> str:
        """A name for a function of the module that no variable of the forward has."""
        name = self.module_names.new(wish)
        while name in self.names.taken:
            name = self.module_names.new(wish)
        self.names.taken.add(name)
        return name

    def _function(self, operation: str, sizes: tuple[int, ...], **options: object) -> str:
        """The name of a Triton function for a library call, defined once for equal calls."""
        key = (operation, sizes, *sorted(options.items()))
        if key not in self.function_names:
            wish = "conv" if operation == "convolution" else operation
            name = self._module_name(wish)
            function = function_for(operation, name=name, sizes=sizes, **options)  # type: ignore[arg-type]
            if function is None:
                raise Refused(f"there is no kernel for {operation}")
            self.function_names[key] = name
            self.functions[name] = function.text.strip()
        return self.function_names[key]

    # Launches -------------------------------------------------------------------------------------------------------

    def _launch(self, step: Launch) -> None:
        source = self.program.kernels[step.kernel]
        tensors = {
            parameter: self._tensor(argument)
            for parameter, argument in zip(source.arguments, step.arguments, strict=True)
            if source.signature[parameter].startswith("*")
        }
        host, raw, wishes = [], [], []
        for parameter, argument in zip(source.arguments, step.arguments, strict=True):
            if parameter in tensors:
                raw.append("")
                host.append(tensors[parameter].name)
                wishes.append(_short(host[-1]))
                continue
            raw.append(self._size(argument))
            results = [t for p, t in tensors.items() if p.startswith("out")]
            is_extent = parameter.endswith("numel")
            host.append(
                self._by_layout(raw[-1], [*results, *tensors.values()], strides=not is_extent)
            )
            if is_extent and not host[-1].isalnum():
                host[-1] = self._extent(parameter, host[-1], source.kind)
            wishes.append(size_name(host[-1]))
        if step.kernel not in self.kernels:
            name = self._module_name(_kernel_name(source.operations))
            floats = self.captured.floats
            rewriter = KernelRewriter(source, name, wishes, host, floats)
            self.kernels[step.kernel] = rewriter.rewrite()
        self._launch_lines(self.kernels[step.kernel], host, raw)

    def _by_layout(self, text: str, tensors: Sequence[Tensor], *, strides: bool) -> str:
        """A product of sizes as the number of elements or, unless it says how far a loop goes, the stride of a tensor."""
        if "*" not in text:
            return text
        dense = [
            (tensor.name, tensor.size)
            for tensor in tensors
            if tensor.size and tensor.stride
            if self._same_layout(tensor.size, tensor.stride, _contiguous(tensor.size))
        ]
        for name, size in dense:
            if self._always_equal(_product(size), text):
                return f"{name}.numel()"
        for name, size in dense if strides else []:
            for axis, stride in enumerate(_contiguous(size)):
                if self._always_equal(stride, text):
                    return f"{name}.stride({axis})"
        return text

    def _extent(self, parameter: str, text: str, kind: str) -> str:
        """A name for the number of elements along an axis, unless it is one already."""
        if text.isidentifier():
            return text
        if text not in self.extents:
            words = {
                "r0_": "n_cols",
                "y": "n_rows",
                "x": "numel" if kind == "pointwise" else "n_rows",
            }
            name = self.names.new(words[parameter.removesuffix("numel")])
            self.extents[text] = name
            self.lines.append(f"{name} = {text}")
        return self.extents[text]

    def _launch_lines(self, kernel: PlainKernel, host: Sequence[str], raw: Sequence[str]) -> None:
        extents = {block: _filled(extent, host) for block, extent in kernel.blocks.items()}
        sizes = {block: _filled(extent, raw) for block, extent in kernel.blocks.items()}
        at_full = {block: self._evaluate(text, self.full) for block, text in sizes.items()}
        arguments = [
            host[p.source] if isinstance(p.source, int) else _filled(ast.unparse(p.source), host)
            for p in kernel.parameters
        ]
        options = block_sizes(kernel, at_full)
        for block, extent in extents.items():
            if options[block] == "whole":
                options[block] = f"triton.next_power_of_2({extent})"
        keywords = [f"{key}={value}" for key, value in options.items()]
        call = f"({', '.join([*arguments, *keywords])})"
        if all(extents[axis] == "1" for axis in kernel.axes):
            self.lines.append(f"{kernel.name}[({'1, ' * len(kernel.axes)})]{call}")
            return
        grid = ", ".join(
            "1" if extents[axis] == "1" else f'triton.cdiv({extents[axis]}, META["{axis}"])'
            for axis in kernel.axes
        )
        comma = "," if len(kernel.axes) == 1 else ""
        self.lines.append(f"{self.grid} = lambda META: ({grid}{comma})")
        self.lines.append(f"{kernel.name}[{self.grid}]{call}")

    # The module -----------------------------------------------------------------------------------------------------

    def _outputs(self) -> str:
        wanted = expression(self.captured.output)
        places = {name.id for name in ast.walk(wanted) if isinstance(name, ast.Name)}
        tensors = {
            placeholder(place): expression(self._tensor(output).name)
            for place, output in enumerate(self.program.outputs)
            if placeholder(place) in places
        }
        return unparse(Replace(tensors).visit(wanted))

    def _module(self, output: str) -> str:
        body = [*self._size_lines(), *self.lines, f"return {output}"]
        body = self._with_common_sizes(body)
        head = f"def forward(self, {', '.join(self._signature())}):"
        forward = [head, *(line for text in body for line in _laid_out(text, 8))]
        model = "\n".join([*self.shell.model, "", f"    {forward[0]}", *forward[1:]])
        if len(self.shell.model) > 1 and self.shell.model[-1].strip() == "pass":
            model = "\n".join([*self.shell.model[:-1], f"    {forward[0]}", *forward[1:]])
        if len(self.shell.model) == 1:
            model = "\n".join([*self.shell.model, f"    {forward[0]}", *forward[1:]])
        helpers: dict[str, str] = {}
        for kernel in self.kernels.values():
            helpers |= kernel.helpers
        parts = [
            *self.shell.support,
            *(text.strip() for text in helpers.values()),
            *self.functions.values(),
            *(kernel.text for kernel in self.kernels.values()),
            model,
        ]
        text = "\n\n\n".join(parts)
        return f'"""{self.title}"""\n\n{self._imports(text)}\n\n\n{text}\n'

    def _signature(self) -> list[str]:
        defaults = self.shell.defaults
        return [f"{n}={defaults[n]}" if n in defaults else n for n in self.shell.arguments]

    def _imports(self, text: str) -> str:
        lines = dict.fromkeys(self.shell.imports)
        for line in ("import torch", "import triton", "import triton.language as tl"):
            lines.setdefault(line)
        if re.search(r"\bnn\.", text) and not any(re.search(r"\bnn$", line) for line in lines):
            lines.setdefault("import torch.nn as nn")
        if "math." in text:
            lines.setdefault("import math")
        if "libdevice." in text:
            lines.setdefault("from triton.language.extra import libdevice")
        standard = [line for line in lines if line == "import math"]
        third = sorted(
            (line for line in lines if line not in standard),
            key=lambda line: (line.startswith("from"), line.replace("import ", "")),
        )
        return "\n".join([*standard, *([""] if standard else []), *third])

    def _size_lines(self) -> list[str]:
        """Every size that the forward uses, from the shape of an input or parameter or from an attribute."""
        wanted = {name for name in self.used_sizes if name in self.full}
        text = "\n".join(self.lines)
        wanted = {name for name in wanted if re.search(rf"\b{name}\b", text)}
        lines: list[str] = []
        for tensor in self.tensors.values():
            if not wanted or tensor.size is None or not _is_given(tensor.name, self.inputs):
                continue
            found = [d if d in wanted else "_" for d in tensor.size]
            found = [d if d not in found[:i] else "_" for i, d in enumerate(found)]
            if set(found) <= {"_"}:
                continue
            wanted -= set(found)
            lines.append(_unpacked(found, tensor.name))
        for path, text in self.captured.attributes.items():
            name = self.size_names.get(text, "")
            if name in wanted:
                lines.append(f"{name} = self.{_indexed(path)}")
                wanted.discard(name)
        known = {name for line in lines for name in re.findall(r"\w+", line.partition(" = ")[0])}
        while line := next(filter(None, (self._solved(n, known) for n in sorted(wanted))), None):
            name = line.partition(" = ")[0]
            lines.append(line)
            wanted.discard(name)
            known.add(name)
        if wanted:
            raise Refused(f"{', '.join(sorted(wanted))} cannot be read from the tensors' shapes")
        return lines

    def _solved(self, name: str, known: set[str]) -> str | None:
        """A size that stands in no shape alone, from a dimension that is a known multiple of it, a part of it or shifted."""
        for tensor in self.tensors.values():
            if tensor.size is None or not _is_given(tensor.name, self.inputs):
                continue
            for axis, text in enumerate(tensor.size):
                shape = f"{tensor.name}.shape[{axis}]"
                text = self.products.get(text, text)
                if match := re.fullmatch(rf"(\w+) \* {name}|{name} \* (\w+)", text):
                    factor = match[1] or match[2]
                    if factor in known or factor.isdigit():
                        return f"{name} = {shape} // {factor}"
                match = re.fullmatch(rf"{name} // (\w+)", text)
                if match and (match[1] in known or match[1].isdigit()):
                    return f"{name} = {shape} * {match[1]}"
                if match := re.fullmatch(rf"{name} ([+-]) (\d+)", text):
                    return f"{name} = {shape} {'-' if match[1] == '+' else '+'} {match[2]}"
        return None

    def _with_common_sizes(self, body: list[str]) -> list[str]:
        """A quotient of sizes that several lines use gets a name before the first."""
        trees = [ast.parse(line.removeprefix("return ")).body[0] for line in body]
        uses: dict[str, list[int]] = {}
        for place, tree in enumerate(trees):
            for node in ast.walk(tree):
                quotient = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
                if quotient and _is_of_sizes(node, self.full):
                    uses.setdefault(ast.unparse(node), []).append(place)
        named = {text: places for text, places in uses.items() if len(places) >= 3}
        before: dict[int, list[str]] = {}
        for text, places in named.items():
            name = self.names.new(size_name(text))
            rule = _Substitute(expression(text), name)
            for place in set(places):
                trees[place] = rule.visit(trees[place])
                start = "return " if body[place].startswith("return ") else ""
                body[place] = start + unparse(trees[place])
            before.setdefault(places[0], []).append(f"{name} = {text}")
        return [new for i, line in enumerate(body) for new in (*before.get(i, ()), line)]


_PICKED: Final = {
    "topk": ("k", "dim", "largest", "sorted"),
    "sort": ("dim", "descending"),
}
"""Library calls that return values and their places, with their parameters after the first."""
_RESULTS: Final = (".values", ".indices")
_USUAL: Final = {
    "dim": "-1",
    "largest": "True",
    "sorted": "True",
    "descending": "False",
    "stable": "False",
}
"""What their parameters are unless they are given."""

_CONVOLUTION = (
    "x",
    "weight",
    "bias",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
)


_BORING = frozenset(
    "view reshape permute transpose unbind to clone t contiguous unsqueeze squeeze expand arange float"
    " split chunk getitem flatten".split()
)


class _Substitute(ast.NodeTransformer):
    """Puts a name in the place of every equal expression."""

    def __init__(self, whole: ast.expr, name: str) -> None:
        self.whole, self.name = whole, name

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return ast.Name(self.name, ast.Load()) if same(node, self.whole) else node


def _copied(node: ast.expr) -> ast.expr:
    return expression(ast.unparse(node))


def _product(sizes: Sequence[str]) -> str:
    return " * ".join(f"({size})" if " " in size else size for size in sizes) or "1"


def _contiguous(size: Sequence[str]) -> tuple[str, ...]:
    return tuple(_product(size[axis + 1 :]) for axis in range(len(size)))


def _tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _quotient(text: str, divisor: str) -> str | None:
    """`text` divided by one of its factors, or 0."""
    if text in ("0", divisor):
        return "0" if text == "0" else "1"
    factor = text.removesuffix(f" * {divisor}")
    return factor if factor.isidentifier() or factor.isdigit() else None


def _shifted(length: str, shrink: int, stride: int) -> str:
    """`(length + shrink) // stride + 1`, simplified."""
    if stride == 1:
        shift = shrink + 1
        if shift == 0:
            return length
        return f"{length} + {shift}" if shift > 0 else f"{length} - {-shift}"
    inner = length if shrink == 0 else f"({length} {'+' if shrink > 0 else '-'} {abs(shrink)})"
    return f"{inner} // {stride} + 1"


def _windows(length: str, taps: str, stride: str, padding: str, dilation: str) -> str:
    """How many windows of size-dependent geometry lie in a padded length."""
    padded = length if padding == "0" else f"{length} + 2 * {padding}"
    reach = f"({taps} - 1)" if dilation == "1" else f"{dilation} * ({taps} - 1)"
    if padding == "0" and dilation == "1" and taps == stride:
        return f"{length} // {stride}"
    return f"({padded} - {reach} - 1) // {stride} + 1"


def _stretched(length: str, stride: int, shift: int) -> str:
    """`stride * length + shift`, simplified."""
    text = length if stride == 1 else _product((str(stride), length))
    if shift == 0:
        return text
    return f"{text} + {shift}" if shift > 0 else f"{text} - {-shift}"


def _indexed(path: str) -> str:
    """`layers.0.weight` as Python writes it."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)


def _filled(text: str, host: Sequence[str]) -> str:
    """Host code over a launch's arguments with their expressions put in."""
    places = {placeholder(i): expression(value) for i, value in enumerate(host) if value}
    return unparse(Replace(places).visit(expression(text)))


def _short(name: str) -> str:
    """A kernel's name for a tensor: `self.blocks[0].norm.weight` is `norm_weight`."""
    base = re.sub(r"\.(view|t|transpose|as_strided|narrow)\(.*", "", name)
    parts = [part for part in re.split(r"[.\[\]]+", base.removeprefix("self.")) if part]
    words = [part for part in parts if not part.isdigit()] or parts
    return "_".join(words[-2:])


def _telling(operations: Sequence[str]) -> list[str]:
    """The operations without those that only move or convert, unless there are no others."""
    names = list(dict.fromkeys(re.sub(r"_\d+$", "", name) for name in operations))
    return [name for name in names if name not in _BORING] or names


def _kernel_name(operations: Sequence[str]) -> str:
    telling = _telling(operations)
    text = "_".join(telling[:1] + telling[-3:] if len(telling) > 4 else telling)
    return f"{text or 'elementwise'}_kernel"


def _buffer_of(node: ast.expr) -> str:
    """The buffer that a view of the program shows, through views of views."""
    match node:
        case ast.Call(args=[base, *_]):
            return _buffer_of(base)
    return ast.unparse(node)


def _is_given(name: str, inputs: Sequence[str]) -> bool:
    return name in inputs or name.startswith("self.")


def _unpacked(names: list[str], tensor: str) -> str:
    if sum(name != "_" for name in names) == 1:
        axis = next(i for i, name in enumerate(names) if name != "_")
        return f"{names[axis]} = {tensor}.shape[{axis}]"
    return f"{', '.join(names)} = {tensor}.shape"


def _is_of_sizes(node: ast.AST, sizes: Mapping[str, int]) -> bool:
    return all(
        isinstance(child, ast.BinOp | ast.operator | ast.Constant | ast.expr_context)
        or (isinstance(child, ast.Name) and child.id in sizes)
        for child in ast.walk(node)
    )


def _laid_out(text: str, indent: int) -> list[str]:
    node = ast.parse(text).body[0] if not text.startswith("return") else None
    if len(text) + indent <= LINE or node is None:
        return [" " * indent + text]
    return layout(node, indent)
