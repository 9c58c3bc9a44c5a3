"""Rewrite one of inductor's kernels as a plain Triton function that a person would want to read.

What the runtime would supply becomes parameters (block sizes, numbers that depend on the size) or plain `tl`
(`triton_helpers`, `tl_math`). Then the usual clean-up: copies and constants propagated, casts to the type that a value
has already dropped, dead code removed, values that are used once written where they are used, and names given.
"""

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gpu_runner.proposals.child.compiler_capture import Refused
from gpu_runner.proposals.child.compiler_helpers import HELPERS, NATIVE
from gpu_runner.proposals.child.compiler_layout import break_addresses, function_text
from gpu_runner.proposals.child.compiler_names import KernelNames
from gpu_runner.proposals.child.compiler_program import Kernel
from gpu_runner.proposals.child.compiler_scans import combining_function, plain_scan
from gpu_runner.proposals.child.compiler_statements import (
    is_none,
    is_true,
    targets,
    walk,
)
from gpu_runner.proposals.child.compiler_text import (
    Names,
    Rename,
    Replace,
    Rewrite,
    expression,
    is_number,
    loads,
    same,
    simplify_sizes,
    size_name,
)
from gpu_runner.proposals.child.compiler_tidy import inlined, propagate, without_dead

_ELEMENTS = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "int1",
}
_INTEGERS = {"int64", "int32", "int16", "int8", "uint8", "index"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of the emitted kernel. `source` is an index into the launch's arguments, or host code."""

    name: str
    source: int | ast.expr


@dataclass
class PlainKernel:
    """The emitted function: `text` without its helpers, and how it is launched.

    `extents` gives the number of elements along each block parameter as host code with the launch's arguments as
    `_0`, `_1`, ...; `axes` are the block parameters that the grid runs over, in the grid's order.
    `reads_along_rows`: whether a reduction's neighbouring columns are neighbours in memory.
    """

    name: str
    text: str
    parameters: list[Parameter]
    kind: str
    axes: list[str]
    blocks: dict[str, str]
    reads_along_rows: bool = True
    helpers: dict[str, str] = field(default_factory=dict)
    needs_libdevice: bool = False


def placeholder(index: int) -> str:
    return f"_{index}"


class KernelRewriter:
    """Rewrites one kernel.

    Args:
        wishes: for every argument that is no constexpr, the name it would like.
        host: for every argument, the host's expression; equal ones become one parameter.
        floats: stand-in values of size-dependent constants, as text, and the host's expression of each.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        wishes: Sequence[str],
        host: Sequence[str],
        floats: Mapping[str, str],
    ) -> None:
        self.kernel, self.name, self.floats = kernel, name, floats
        signature = kernel.signature
        self.arguments = kernel.arguments
        self.wishes = dict(zip(self.arguments, wishes, strict=True))
        self.host = dict(zip(self.arguments, host, strict=True))
        self.pointers = {a for a in self.arguments if signature[a].startswith("*")}
        self.sizes = [a for a in self.arguments if a not in self.pointers]
        self.body = copy.deepcopy(kernel.tree.body)
        self.types: dict[str, str] = {}
        self.zero_outside: set[str] = set()
        self.below: dict[str, ast.expr] = {}
        self.naturals: set[str] = set(self.sizes)
        self.extra: dict[str, ast.expr] = {}
        self.helpers: dict[str, str] = {}
        self.needs_libdevice = False
        self.axes = self._axes()

    # Structure ------------------------------------------------------------------------------------------------------

    def _axes(self) -> list[str]:
        """The prefixes of inductor's axes, outermost first: y, x, r0_."""
        prefixes: list[str] = [
            str(prefix) for prefix in ("z", "y", "x", "r0_") if prefix in self.kernel.size_hints
        ]
        if "r1_" in self.kernel.size_hints or "z" in prefixes:
            raise Refused("a kernel has more axes than are handled")
        return prefixes

    def _axis_names(self) -> dict[str, str]:
        """Rows and columns for two axes, offsets for one."""
        if len(self.axes) == 1:
            return {self.axes[0]: ""}
        return dict(zip(self.axes[-2:], ("row", "col"), strict=True)) | (
            {"y": "outer"} if len(self.axes) == 3 else {}
        )

    def rewrite(self) -> PlainKernel:
        self.body = [Rewrite(_without_sign_bits).visit(node) for node in self.body]
        self._merge_equal_arguments()
        self._separate_loops()
        self._fixed_numbers()
        self._swap_grid_axes()
        self.body = self._statements(self.body)
        propagate(self.body, self._rule)
        self._hoist_numbers()
        for _ in range(3):
            self.body = inlined(without_dead(self.body))
        return self._named()

    def _merge_equal_arguments(self) -> None:
        """Two sizes that are the same number at every launch become one; the more telling name wins."""
        merged: dict[str, ast.expr] = {}
        first: dict[str, str] = {}
        for argument in sorted(self.sizes, key=lambda a: not a.endswith("numel")):
            if argument == "xnumel" and self.host[argument] == "1":
                continue
            known = first.setdefault(self.host[argument], argument)
            if known != argument:
                merged[argument] = ast.Name(known, ast.Load())
        self.body = [Replace(merged).visit(node) for node in self.body]

    def _separate_loops(self) -> None:
        """Names that every loop sets anew get one name per loop, so that all but accumulators are set once."""
        for number, loop in enumerate(node for node in self.body if isinstance(node, ast.For)):
            written: set[str] = set()
            carried: set[str] = set()
            for node in loop.body:
                carried |= set(loads(node)) - written
                written |= set(targets(node))
            own = {name: f"{name}__{number}" for name in written - carried}
            own |= {name: f"{name}__{number}" for name in targets(loop)}
            renamed = Rename(own).visit(loop)
            renamed.target = Rename(own).visit(loop.target)

    def _fixed_numbers(self) -> None:
        """Numbers that inductor writes into the body: block sizes become parameters, fixed extents constants."""
        values: dict[str, ast.expr] = {"rnumel": ast.Name("r0_numel", ast.Load())}
        kept = []
        for node in self.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id="RBLOCK")):
                    values["RBLOCK"] = ast.Name("R0_BLOCK", ast.Load())
                case ast.AnnAssign(target=ast.Name()):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value) if (
                    name.endswith("numel")
                ):
                    values[name] = value
                case ast.Assign(targets=[ast.Name(id="rnumel")]):
                    pass
                case _:
                    kept.append(node)
        if isinstance(values.get("r0_numel"), ast.Constant):
            values["rnumel"] = values["r0_numel"]
        self.body = [Replace(values).visit(node) for node in kept]
        self.fixed = values

    # Statements -----------------------------------------------------------------------------------------------------

    def _statements(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [new for node in nodes if (new := self._statement(node)) is not None]

    def _statement(self, node: ast.stmt) -> ast.stmt | None:
        match node:
            case ast.For():
                start = node.target
                assert isinstance(start, ast.Name)
                self.types[start.id] = "index"
                node.iter = Rewrite(self._rule).visit(node.iter)
                node.body = self._statements(node.body)
                return node
            case ast.Expr(value=ast.Call() as call):
                if ast.unparse(call.func) in ("tl.device_assert", "tl.debug_barrier"):
                    return None
                node.value = Rewrite(self._rule).visit(node.value)
                return node
            case ast.Assign(targets=[target]):
                return self._assignment(node, target)
        raise Refused(f"a kernel has the line {ast.unparse(node)[:80]}")

    def _assignment(self, node: ast.Assign, target: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Tuple) and len(target.elts) == 1:
            node.targets = [target.elts[0]]
            return self._assignment(node, target.elts[0])
        node.value = simplify_sizes(Rewrite(self._rule).visit(node.value))
        if isinstance(target, ast.Name):
            self.types[target.id] = self._type(node.value)
            self._bounds(target.id, node.value)
            if not target.id.startswith("_tmp") and self._is_zero_outside(node.value):
                self.zero_outside.add(target.id)
        elif isinstance(target, ast.Tuple):
            self._element_types(target, node.value)
        return node

    def _element_types(self, target: ast.Tuple, value: ast.expr) -> None:
        """Functions with several results return the types of their first arguments, or of those of a pair."""
        given = value.args if isinstance(value, ast.Call) else []
        if given and isinstance(given[0], ast.Tuple):
            given = given[0].elts
        for element, argument in zip(target.elts, given, strict=False):
            assert isinstance(element, ast.Name)
            self.types[element.id] = self._type(argument)

    def _bounds(self, name: str, value: ast.expr) -> None:
        """Remember which indices cannot be negative and which are below a size."""
        if name.startswith(("xindex", "yindex", "r0_index")) or self._is_natural(value):
            self.naturals.add(name)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
            self.below[name] = value.right

    def _is_natural(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.naturals
            case ast.Constant(value=int() as value):
                return value >= 0
            case ast.BinOp(op=ast.Add() | ast.Mult() | ast.FloorDiv() | ast.Mod()):
                return self._is_natural(node.left) and self._is_natural(node.right)
        return False

    def _type(self, node: ast.expr) -> str:
        """The dtype of an expression: "index" for sizes and indices, "number" for constants, "" if not known."""
        match node:
            case ast.Name(id=name):
                if name in self.types:
                    return self.types[name]
                return "index" if name in self.sizes or name.endswith("BLOCK") else ""
            case ast.Constant():
                return "number"
            case ast.UnaryOp(operand=operand):
                return self._type(operand)
            case ast.Compare():
                return "int1"
            case ast.BinOp(left=left, right=right):
                return _common(self._type(left), self._type(right))
            case ast.Subscript(value=value):
                return self._type(value)
            case ast.Call(func=ast.Attribute(attr="to"), args=[dtype]):
                return ast.unparse(dtype).removeprefix("tl.")
            case ast.Call(func=function, args=arguments):
                return self._result(ast.unparse(function), arguments)
        return ""

    def _result(self, function: str, arguments: Sequence[ast.expr]) -> str:
        if function == "tl.load":
            pointer = next((n for n in loads(arguments[0]) if n in self.pointers), "")
            return _ELEMENTS.get(self.kernel.signature.get(pointer, "").removeprefix("*"), "")
        if function in ("tl.full", "tl.zeros"):
            return ast.unparse(arguments[-1]).removeprefix("tl.")
        if function == "tl.where":
            return _common(self._type(arguments[1]), self._type(arguments[2]))
        if function in ("tl.arange", "tl.program_id", "tl.num_programs"):
            return "index"
        if function == "float":
            return "number"
        return self._type(arguments[0]) if arguments else ""

    # Rules on expressions -------------------------------------------------------------------------------------------

    def _rule(self, node: ast.expr) -> ast.expr | None:
        match node:
            case ast.Constant(value=float() as value) if repr(value) in self.floats:
                path = self.floats[repr(value)]
                return self._number(path.split(".")[-1], expression(f"self.{path}"))
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=None)):
                return value
            case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]) if is_number(
                right, 0
            ) and self._is_natural(left):
                return ast.Constant(True)
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[right]) if (
                name in self.below and same(self.below[name], right)
            ):
                return ast.Constant(True)
            case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
                if is_true(left):
                    return right
                return left if is_true(right) else None
            case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[dtype], keywords=[]):
                return self._cast(value, ast.unparse(dtype).removeprefix("tl."))
            case ast.Call(func=function):
                return self._call(node, ast.unparse(function))
        return None

    def _cast(self, value: ast.expr, dtype: str) -> ast.expr | None:
        has = self._type(value)
        if has == dtype or (has == "number" and dtype not in _INTEGERS):
            return value
        if has == "index" and not any(isinstance(n, ast.Call) for n in ast.walk(value)):
            return value
        return None

    def _call(self, node: ast.Call, function: str) -> ast.expr | None:
        module, _, name = function.rpartition(".")
        if function == "tl.full":
            return self._full(node)
        if function == "tl.zeros" and isinstance(node.args[0], ast.List):
            return ast.Call(node.func, [_as_tuple(node.args[0]), *node.args[1:]], [])
        if name == "broadcast_to" and module != "tl":
            return self._single_index(node)
        if function == "tl.broadcast_to":
            return node.args[0] if self._type(node.args[0]) not in ("number", "index") else None
        if function in ("tl.load", "tl.store"):
            return self._access(node, function)
        if function == "tl.where":
            return self._where(node)
        if function == "tl.range":
            return ast.Call(ast.Name("range", ast.Load()), node.args, [])
        if function == "tl.associative_scan":
            return self._scan(node)
        if module == "triton_helpers":
            return self._helper(node, name)
        if module in ("libdevice", "tl_math"):
            return self._math(node, name)
        return None

    def _full(self, node: ast.Call) -> ast.expr | None:
        shape, value, dtype = node.args
        if not isinstance(shape, ast.List):
            return None
        if all(is_number(size, 1) for size in shape.elts):
            return value
        if isinstance(value, ast.Constant) and value.value is True:
            return value
        size = _as_tuple(shape)
        if is_number(value, 0):
            return ast.Call(expression("tl.zeros"), [size, dtype], [])
        return ast.Call(expression("tl.full"), [size, value, dtype], [])

    def _single_index(self, node: ast.Call) -> ast.expr | None:
        """The address of a result that is one number: the row, of which there is one."""
        assert isinstance(node.func, ast.Attribute)
        if is_number(node.func.value, 0):
            return ast.Name("xindex", ast.Load())
        return None

    def _access(self, node: ast.Call, function: str) -> ast.expr:
        """Loads and stores with the mask by name and without what is implied."""
        first = 1 if function == "tl.load" else 2
        arguments = list(node.args[:first])
        arguments[0] = simplify_sizes(arguments[0])
        mask = next((k.value for k in node.keywords if k.arg == "mask"), None)
        if len(node.args) > first:
            mask = node.args[first]
        keywords = []
        if function == "tl.store" and self.host.get("xnumel") == "1":
            mask = _first_row(mask)
        if mask is not None and not is_none(mask) and not is_true(mask):
            keywords = [ast.keyword("mask", mask)]
            keywords += [k for k in node.keywords if k.arg == "other"]
        if self.kernel.kind == "reduction":
            # "evict_last" is left out: with symbolic sizes it is also chosen for what is read only once.
            keywords += [
                k
                for k in node.keywords
                if k.arg == "eviction_policy" and same(k.value, ast.Constant("evict_first"))
            ]
        return ast.Call(node.func, arguments, keywords)

    def _where(self, node: ast.Call) -> ast.expr | None:
        """Rows beyond the end compute nonsense that nobody stores; only columns must be masked in a reduction."""
        condition, value, other = node.args
        masks = set(loads(condition))
        if not masks or not all(name.split("__")[0] in _MASKS for name in masks):
            return None
        columns = [name for name in sorted(masks) if name.startswith("r0_mask")]
        if not columns or (is_number(other, 0) and self._is_zero_outside(value)):
            return value
        return ast.Call(node.func, [ast.Name(columns[0], ast.Load()), value, other], [])

    def _is_zero_outside(self, value: ast.expr) -> bool:
        """Whether a value is 0 beyond the last column because it was loaded so."""
        match value:
            case ast.Name(id=name):
                return name in self.zero_outside
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._is_zero_outside(left) and self._is_zero_outside(right)
            case ast.Call(func=ast.Attribute(value=inner, attr="to")):
                return self._is_zero_outside(inner)
            case ast.Call(func=function, keywords=keywords) if ast.unparse(function) == "tl.load":
                given = {k.arg: k.value for k in keywords}
                masked = "mask" in given and any(
                    name.startswith("r0_mask") for name in loads(given["mask"])
                )
                return masked and "other" in given and is_number(given["other"], 0)
        return False

    def _scan(self, node: ast.Call) -> ast.expr | None:
        values, axis, function = node.args
        named = (h for h in self.kernel.helpers if h.name == ast.unparse(function))
        combine = next(named, None)
        if combine is None:
            return None
        assert isinstance(values, ast.Tuple)
        plain = plain_scan(combine) if len(values.elts) == 1 else None
        if plain is not None:
            return ast.Call(expression(plain), [values.elts[0], axis], [])
        dtypes = [self._type(value) for value in values.elts]
        name = f"combine_{_scan_word(self.kernel.operations)}"
        self.helpers[name] = combining_function(copy.deepcopy(combine), name, dtypes, self._rule)
        scanned = values.elts[0] if len(values.elts) == 1 else values
        return ast.Call(node.func, [scanned, axis, ast.Name(name, ast.Load())], [])

    def _helper(self, node: ast.Call, name: str) -> ast.expr:
        if name in ("maximum", "minimum"):
            a, b = node.args
            if self._type(a) == "number":
                a, b = b, a
            nan = [ast.keyword("propagate_nan", expression("tl.PropagateNan.ALL"))]
            return ast.Call(expression(f"tl.{name}"), [a, b], nan)
        if name in ("max2", "min2"):
            return ast.Call(expression(f"tl.{name[:3]}"), node.args, [])
        if name == "any":
            value = ast.Call(ast.Attribute(node.args[0], "to"), [expression("tl.int32")], [])
            return ast.Call(expression("tl.max"), [value, node.args[1]], [])
        if name == "promote_to_tensor":
            return node.args[0]
        if name in ("div_floor_integer", "remainder_integer"):
            operator = ast.FloorDiv() if name == "div_floor_integer" else ast.Mod()
            return ast.BinOp(node.args[0], operator, node.args[1])
        if name == "bucketize_binary_search" and not is_none(node.args[8]):
            raise Refused("a kernel searches bounds that another tensor sorts")
        if name in ("max_with_index", "min_with_index"):
            combine = self._defined(f"{name[:3]}imum_with_index")
            pair = ast.Tuple(node.args[:2], ast.Load())
            return ast.Call(expression("tl.reduce"), [pair, node.args[2], combine], [])
        return ast.Call(self._defined(name), node.args[: HELPERS[name].arguments], [])

    def _defined(self, name: str) -> ast.expr:
        """The function of the emitted module that stands for one of the compiler's helpers."""
        if name not in HELPERS:
            raise Refused(f"a kernel needs the compiler's helper {name}")
        helper = HELPERS[name]
        for needed in helper.needs:
            self.helpers[needed] = HELPERS[needed].text
        self.helpers[helper.name] = helper.text
        return ast.Name(helper.name, ast.Load())

    def _math(self, node: ast.Call, name: str) -> ast.expr:
        if name in NATIVE:
            return ast.Call(expression(f"tl.{NATIVE[name]}"), node.args, [])
        self.needs_libdevice = True
        return ast.Call(expression(f"libdevice.{name}"), node.args, [])

    # Numbers that the host computes -----------------------------------------------------------------------------------

    def _number(self, wish: str, host: ast.expr) -> ast.expr:
        """A new scalar parameter with the host's value."""
        for name, known in self.extra.items():
            if same(known, host):
                return ast.Name(name, ast.Load())
        name = Names([*self.arguments, *self.extra]).new(wish)
        self.extra[name] = host
        self.types[name] = "float32"
        return ast.Name(name, ast.Load())

    def _hoist_numbers(self) -> None:
        """Functions and quotients of sizes alone, such as 1 / sqrt(head_dim), are computed once on the host."""
        values: dict[str, ast.expr] = {}
        for node in walk(self.body):
            if not isinstance(node, ast.Assign | ast.Expr):
                continue
            node.value = Replace(values).visit(node.value)
            names = targets(node)
            if len(names) == 1 and self._is_size_function(node.value):
                values[names[0]] = node.value
            else:
                node.value = self._hoisted(node.value)

    def _hoisted(self, node: ast.expr) -> ast.expr:
        if self._is_size_function(node):
            host = _on_host(node, self.arguments)
            text = ast.unparse(Replace(self._host_values()).visit(copy.deepcopy(host)))
            for argument, known in self.host.items():
                if known == text:
                    return ast.Name(argument, ast.Load())
            is_quotient = isinstance(host, ast.BinOp) and isinstance(host.op, ast.FloorDiv)
            return self._number(size_name(text) if is_quotient else "factor", host)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self._hoisted(value))
            elif isinstance(value, list):
                items = [self._hoisted(v) if isinstance(v, ast.expr) else v for v in value]
                setattr(node, name, items)
            elif isinstance(value, ast.keyword):
                value.value = self._hoisted(value.value)
        return node

    def _host_values(self) -> dict[str, ast.expr]:
        return {
            placeholder(i): expression(self.host[name])
            for i, name in enumerate(self.arguments)
            if self.host[name]
        }

    def _is_size_function(self, node: ast.expr) -> bool:
        names = [n for n in loads(node) if n not in _MODULES]
        if not names or not all(name in self.sizes for name in names):
            return False
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            return True
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        return any(ast.unparse(c.func).split(".")[0] in _MODULES for c in calls)

    # Names ----------------------------------------------------------------------------------------------------------

    def _named(self) -> PlainKernel:
        used = {name for node in self.body for name in loads(node)}
        names = Names(["tl", "range", "libdevice", "float"])
        chosen = KernelNames(
            self.body, self._axis_names(), self.wishes, self.host, self.pointers, self._type
        )
        new: dict[str, str] = {}
        parameters: list[Parameter] = []
        for argument in [a for a in self.arguments if a in used]:
            new[argument] = names.new(chosen.of_parameter(argument))
            parameters.append(Parameter(new[argument], self.arguments.index(argument)))
        for extra, host in self.extra.items():
            if extra in used:
                new[extra] = names.new(extra)
                parameters.append(Parameter(new[extra], host))
        chosen.add_structure(names, new)
        chosen.add_values(names, new)
        body = [Rename(new).visit(node) for node in self.body]
        break_addresses(body)
        blocks = {new[f"{a.upper()}BLOCK"]: f"{a}numel" for a in self.axes}
        return PlainKernel(
            name=self.name,
            text=function_text(
                self.name, self.kernel.operations, [p.name for p in parameters], list(blocks), body
            ),
            parameters=parameters,
            kind=self.kernel.kind,
            axes=[new[f"{a.upper()}BLOCK"] for a in self.axes if not a.startswith("r")],
            blocks={block: self._extent(axis) for block, axis in blocks.items()},
            reads_along_rows=reads_along(body, "cols"),
            helpers=self.helpers,
            needs_libdevice=self.needs_libdevice
            and "libdevice." in ast.unparse(ast.Module(body, [])),
        )

    def _extent(self, axis: str) -> str:
        """The number of elements along an axis: a constant or a reference to the launch's argument."""
        value = self.fixed.get(axis)
        if isinstance(value, ast.Constant):
            return str(value.value)
        return placeholder(self.arguments.index(axis))

    def _swap_grid_axes(self) -> None:
        """The axis with the most blocks runs along the grid's first dimension, the only one without a low limit."""
        if "y" not in self.axes:
            return
        order = {"y": 0, "x": 1}

        def swapped(node: ast.expr) -> ast.expr | None:
            text = ast.unparse(node)
            if text.startswith("tl.program_id(1) + tl.program_id(2)"):
                return expression("tl.program_id(0)")
            return None

        for node in walk(self.body):
            if not isinstance(node, ast.Assign):
                continue
            for axis, place in order.items():
                if targets(node)[0].split("__")[0] in (f"{axis}index", f"{axis}offset"):
                    node.value = Rewrite(swapped).visit(node.value)
                    node.value = Rewrite(partial(_program_id, place=place)).visit(node.value)


_MODULES = {"libdevice", "tl", "triton"}
_MASKS = {"xmask", "ymask", "r0_mask"}


def reads_along(nodes: Sequence[ast.stmt], index: str) -> bool:
    """Whether a load's address has the index as a term of its own, so with stride 1."""
    reads = [
        call
        for node in walk(nodes)
        if isinstance(node, ast.Assign)
        for call in ast.walk(node.value)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.load"
    ]
    return any(index in _sum_terms(call.args[0]) for call in reads)


def _sum_terms(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_sum_terms(node.left), *_sum_terms(node.right)]
    return [ast.unparse(node)]


def _first_row(mask: ast.expr | None) -> ast.expr:
    """The mask of a store where there is one row: of that row, and of its columns if it had a mask of them."""
    first = expression("xindex < 1")
    if mask is None or not any(name.startswith("r0_mask") for name in loads(mask)):
        return first
    if any(same(part, first) for part in ast.walk(mask)):
        return mask
    return ast.BinOp(mask, ast.BitAnd(), first)


def _scan_word(operations: Sequence[str]) -> str:
    """The operation of a kernel that scans, as a part of a name."""
    scans = [name for name in operations if "cum" in name or "scan" in name]
    return re.sub(r"_\d+$", "", scans[-1]) if scans else "parts"


def _without_sign_bits(node: ast.expr) -> ast.expr | None:
    """`signbit(x) != 0 if x.dtype is tl.float32 else x < 0` as `x < 0`; it stands in remainders."""
    match node:
        case ast.IfExp(test=test, orelse=orelse) if ".dtype is tl.float32" in ast.unparse(test):
            return orelse
    return None


def _as_tuple(shape: ast.List) -> ast.Tuple:
    return ast.Tuple(shape.elts, ast.Load())


def _common(a: str, b: str) -> str:
    if a == b:
        return a
    for one, other in ((a, b), (b, a)):
        if one == "number" or (one == "index" and other):
            return other
        if one == "int1" or (one in _INTEGERS and other.startswith(("float", "bfloat"))):
            return other
    return ""


def _program_id(node: ast.expr, place: int) -> ast.expr | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.program_id":
        return expression(f"tl.program_id({place})")
    return None


def _on_host(node: ast.expr, arguments: Sequence[str]) -> ast.expr:
    """A function of sizes as host code, over the launch's arguments as `_0`, `_1`, ..."""

    def rule(part: ast.expr) -> ast.expr | None:
        match part:
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                return value
            case ast.Call(func=function, args=values):
                name = ast.unparse(function).split(".")[-1]
                if name == "pow":
                    return ast.BinOp(values[0], ast.Pow(), values[1])
                if name in ("div_rn", "truediv"):
                    return ast.BinOp(values[0], ast.Div(), values[1])
                if name == "floor" and isinstance(values[0], ast.BinOp):
                    return ast.BinOp(values[0].left, ast.FloorDiv(), values[0].right)
                if name in ("sqrt", "log", "exp"):
                    return ast.Call(expression(f"math.{name}"), values, [])
                if name == "rsqrt":
                    return ast.BinOp(values[0], ast.Pow(), expression("-0.5"))
                raise Refused(f"a constant of the kernel is the function {name} of a size")
        return None

    places = {name: ast.Name(placeholder(i), ast.Load()) for i, name in enumerate(arguments)}
    return Replace(places).visit(Rewrite(rule).visit(copy.deepcopy(node)))
