"""Read a candidate's source: its Triton kernels, where they are launched, and the spans of text that edits replace.

Analysis is by the standard library's syntax tree, after the bounds on submitted source; edits are splices of the text, so
whatever is not edited stays as it was written, comments included.
"""

import ast
from dataclasses import dataclass, field

from gpu_runner.core.source import Problem, parse


class Unreadable(ValueError):
    """The source breaks a bound or does not parse."""


@dataclass(frozen=True)
class Edit:
    """Replace characters `start` to `end` of the source."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Change:
    """The edits of one rewrite, what it does in one line, and the gain that experience suggests (a ratio)."""

    edits: list[Edit]
    move: str
    gain: float


@dataclass
class Kernel:
    """A function under `triton.jit`."""

    node: ast.FunctionDef
    constexprs: frozenset[str]
    autotuned: bool
    uses_dot: bool

    @property
    def name(self):
        return self.node.name

    @property
    def parameters(self):
        return [argument.arg for argument in self.node.args.args]


@dataclass
class Launch:
    """`kernel[grid](...)`; `arguments` maps the kernel's parameters and the options to the expressions passed."""

    kernel: Kernel
    call: ast.Call
    grid: ast.expr
    scope: ast.AST
    arguments: dict[str, ast.expr] = field(default_factory=dict)


class Reading:
    """The kernels and launches of one source, with character positions."""

    def __init__(self, source):
        tree = parse(source)
        if isinstance(tree, Problem):
            raise Unreadable(tree.message)
        self.source, self.tree = source, tree
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = source.splitlines(keepends=True)
        self.kernels = {kernel.name: kernel for kernel in map(_kernel, _functions(tree)) if kernel}
        self.launches = list(self._launches())

    def position(self, line, column):
        """The character index of a place given as `ast` gives it: line from 1, column in bytes."""
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def start(self, node):
        return self.position(node.lineno, node.col_offset)

    def end(self, node):
        return self.position(node.end_lineno, node.end_col_offset)

    def text(self, node):
        return self.source[self.start(node) : self.end(node)]

    def replace(self, node, text):
        return Edit(self.start(node), self.end(node), text)

    def lines_of(self, node):
        """The span of whole lines that a statement takes, its decorators included."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return self._starts[first - 1], self._starts[node.end_lineno]

    def _launches(self):
        scopes = [self.tree, *_functions(self.tree)]
        for scope in scopes:
            for node in _own_nodes(scope):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
                    continue
                target = node.func.value
                if isinstance(target, ast.Name) and target.id in self.kernels:
                    yield _launch(self.kernels[target.id], node, scope)

    def resolve(self, expression, scope):
        """The expression that a name stands for: its last assignment before it, in `scope` or else the module."""
        if not isinstance(expression, ast.Name):
            return expression
        for place in (scope, self.tree):
            found = [
                node
                for node in _own_nodes(place)
                if isinstance(node, ast.Assign)
                and [t.id for t in node.targets if isinstance(t, ast.Name)] == [expression.id]
                and (place is self.tree or node.lineno < expression.lineno)
            ]
            if found:
                return max(found, key=lambda node: node.lineno).value
        return expression


def applied(source, edits):
    """The source with edits made from the last to the first; they must not overlap."""
    previous = len(source)
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        if edit.end > previous:
            raise ValueError("edits overlap")
        source = source[: edit.start] + edit.text + source[edit.end :]
        previous = edit.start
    return source


def names_in(node):
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def is_call_of(node, *names):
    """Whether a node is a call of a function by its last name: tl.load and load both are `load`."""
    return isinstance(node, ast.Call) and last_name(node.func) in names


def last_name(node):
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def derived_from_program_id(kernel):
    """The names in a kernel whose values follow from the program's place in the grid."""
    derived = set()
    for _ in range(3):
        for node in ast.walk(kernel.node):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            if mentions_program_id(node.value) or names_in(node.value) & derived:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                derived |= {n for target in targets for n in names_in(target)}
    return derived


def mentions_program_id(node):
    return any(is_call_of(child, "program_id") for child in ast.walk(node))


def _functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _own_nodes(scope):
    """All nodes of a scope without those of the functions and classes in it (lambdas belong to it)."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        yield node
        pending += ast.iter_child_nodes(node)


def _kernel(function):
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    words = [last_name(decorator) for decorator in decorators]
    if "jit" not in words:
        return None
    constexprs = frozenset(
        argument.arg
        for argument in function.args.args
        if argument.annotation is not None and last_name(argument.annotation) == "constexpr"
    )
    uses_dot = any(is_call_of(node, "dot") for node in ast.walk(function))
    return Kernel(function, constexprs, bool({"autotune", "heuristics"} & set(words)), uses_dot)


def _launch(kernel, call, scope):
    launch = Launch(kernel, call, call.func.slice, scope)
    plain = [a for a in call.args if not isinstance(a, ast.Starred)]
    if len(plain) == len(call.args):
        launch.arguments.update(zip(kernel.parameters, call.args, strict=False))
    launch.arguments.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    return launch
