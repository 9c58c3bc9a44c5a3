"""Read inductor's program into kernels and steps.

The program is Python text: kernels as strings in calls of `async_compile.triton`, and a method `call` that allocates,
launches and calls libraries. What the emitted module needs of it is little, and all of it is kept here as syntax trees
over inductor's own names (`arg0_1`, `buf3`, `s44`); `compiler_emit` gives them better ones.
"""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from gpu_runner.proposals.child.compiler_capture import Refused


@dataclass
class Kernel:
    """One Triton kernel as inductor wrote it. `kind`: pointwise, reduction or persistent_reduction."""

    name: str
    tree: ast.FunctionDef
    helpers: list[ast.FunctionDef]
    kind: str
    size_hints: dict[str, int]
    signature: dict[str, str]
    operations: list[str]

    @property
    def arguments(self) -> list[str]:
        """The parameters that a launch passes by position: all but the block sizes."""
        return [a.arg for a in self.tree.args.args if a.annotation is None]


@dataclass
class Allocate:
    name: str
    size: list[ast.expr]
    stride: list[ast.expr]
    dtype: str


@dataclass
class Launch:
    """`arguments` are those of the kernel that are no constexpr, in order."""

    kernel: str
    arguments: list[ast.expr]


@dataclass
class LibraryCall:
    """`out`: the buffer that the call fills or names."""

    operation: str
    arguments: list[ast.expr]
    keywords: dict[str, ast.expr]
    out: str
    operations: list[str] = field(default_factory=list)


@dataclass
class Define:
    """A number of the program: a size or a product of sizes."""

    name: str
    value: ast.expr


@dataclass
class Alias:
    name: str
    value: ast.expr


@dataclass
class Pick:
    """One of the several results of a library call, which is named `call`."""

    name: str
    call: str
    index: int


Step = Allocate | Launch | LibraryCall | Define | Alias | Pick


@dataclass
class Program:
    kernels: dict[str, Kernel]
    arguments: list[str]
    steps: list[Step]
    outputs: list[ast.expr]


_OPERATIONS = re.compile(
    r"# Topologically Sorted Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]"
)


def read_program(text: str) -> Program:
    """The kernels and steps of a program.

    Raises:
        Refused: it does something that a plain module cannot repeat.
    """
    tree = ast.parse(text)
    comments = _comments(text)
    kernels = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _called(node.value) == "async_compile.triton":
            kernel = _read_kernel(node.value, comments.get(node.lineno, []))
            kernels[kernel.name] = kernel
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"
    )
    return _read_call(call, kernels, comments)


def _comments(text: str) -> dict[int, list[str]]:
    """The names of the operations that a comment announces, by the line of the next statement (from 1)."""
    found: dict[int, list[str]] = {}
    pending: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if match := _OPERATIONS.match(stripped):
            names = match[1] or match[2].replace("aten.", "")
            pending = [name.strip() for name in names.split(",") if name.strip()]
        elif pending and stripped and not stripped.startswith("#"):
            found[number] = pending
            if not re.match(r"\w+_[xyr]\w*numel = |\w*stream\w* = ", stripped):
                pending = []
    return found


def _called(node: ast.expr) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _read_kernel(call: ast.expr, operations: list[str]) -> Kernel:
    assert isinstance(call, ast.Call)
    name, text = (argument.value for argument in call.args[:2])  # type: ignore[attr-defined]
    module = ast.parse(text)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    tree = next(function for function in functions if function.name == name)
    heuristics = next(
        node for node in tree.decorator_list if _called(node).startswith("triton_heuristics.")
    )
    assert isinstance(heuristics, ast.Call)
    keywords = {keyword.arg: keyword.value for keyword in heuristics.keywords}
    kind = _called(heuristics).removeprefix("triton_heuristics.")
    if kind not in ("pointwise", "reduction", "persistent_reduction"):
        raise Refused(f"the compiler chose a {kind.replace('_', ' ')}, which needs its runtime")
    return Kernel(
        name=name,
        tree=tree,
        helpers=[function for function in functions if function is not tree],
        kind=kind,
        size_hints=ast.literal_eval(keywords["size_hints"]),
        signature=_signature(keywords["triton_meta"]),
        operations=operations,
    )


def _signature(meta: ast.expr) -> dict[str, str]:
    assert isinstance(meta, ast.Dict)
    for key, value in zip(meta.keys, meta.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "signature":
            return ast.literal_eval(value)
    raise Refused("the compiler's kernel has no signature")


def _read_call(
    function: ast.FunctionDef, kernels: dict[str, Kernel], comments: dict[int, list[str]]
) -> Program:
    arguments: list[str] = []
    steps: list[Step] = []
    outputs: list[ast.expr] = []
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                arguments = [ast.unparse(name) for name in names]
            case ast.Assign(targets=[ast.List(elts=names)], value=ast.Name(id="args")):
                arguments = [ast.unparse(name) for name in names]
            case ast.Return(value=ast.Tuple(elts=elements)):
                outputs = list(elements)
            case ast.Delete() | ast.With():
                if isinstance(node, ast.With):
                    raise Refused("the compiler's program switches devices")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if _called(value) == "get_raw_stream":
                    continue
                steps.append(_read_assignment(name, value, comments.get(node.lineno, [])))
            case ast.Expr(value=ast.Call() as call):
                step = _read_statement(call, kernels, comments.get(node.lineno, []))
                if step is not None:
                    steps.append(step)
            case _:
                raise Refused(f"the compiler's program has the line {ast.unparse(node)[:80]}")
    return Program(kernels, arguments, steps, outputs)


def _read_assignment(name: str, value: ast.expr, operations: list[str]) -> Step:
    called = _called(value)
    if called.startswith("empty_strided"):
        assert isinstance(value, ast.Call)
        size, stride, dtype = value.args[:3]
        return Allocate(name, _elements(size), _elements(stride), ast.unparse(dtype))
    if called == "reinterpret_tensor" or (
        isinstance(value, ast.Name) and value.id.startswith("buf")
    ):
        return Alias(name, value)
    if called.startswith(("extern_kernels.", "torch.ops.")):
        assert isinstance(value, ast.Call)
        return _library_call(value, name, operations)
    match value:
        case ast.Subscript(value=ast.Name(id=call), slice=ast.Constant(value=int(index))):
            return Pick(name, call, index)
    if any(isinstance(node, ast.Call) for node in ast.walk(value)) and called not in ("max", "min"):
        raise Refused(f"the compiler's program calls {called or ast.unparse(value)[:60]}")
    return Define(name, value)


def _read_statement(
    call: ast.Call, kernels: dict[str, Kernel], operations: list[str]
) -> Step | None:
    called = _called(call)
    if called in ("args.clear",) or called.startswith(("assert_size_stride", "assert_alignment")):
        return None
    if called.endswith(".run") and called.removesuffix(".run") in kernels:
        return Launch(called.removesuffix(".run"), call.args)
    if called.startswith("extern_kernels."):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        out = keywords.get("out")
        if isinstance(out, ast.Name):
            return _library_call(call, out.id, operations)
    raise Refused(f"the compiler's program calls {called}")


def _library_call(call: ast.Call, out: str, operations: list[str]) -> LibraryCall:
    operation = _called(call).removeprefix("extern_kernels.").removeprefix("torch.ops.")
    operation = operation.removeprefix("aten.").removesuffix(".default")
    keywords: dict[str, Any] = {k.arg: k.value for k in call.keywords if k.arg and k.arg != "out"}
    return LibraryCall(operation, call.args, keywords, out, operations)


def _elements(node: ast.expr) -> list[ast.expr]:
    assert isinstance(node, ast.Tuple)
    return list(node.elts)
