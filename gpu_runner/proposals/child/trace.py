"""Trace a task's reference into a graph without its memory: fake tensors at full size, exported operation by operation.

The request is `{"source": str, "probe_source": str | None}` and the answer a `core.graph.Graph` as a dictionary. With
a probe, the reference is traced at both sizes; numbers that differ between the two are explained by an expression that
gives both (a size of an input or parameter, an attribute of the module, or simple arithmetic on two of these).
"""

import ast
import inspect
import math
import types

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpu_runner.core.graph import (
    MAX_NODES,
    Constructor,
    Graph,
    Node,
    Ref,
    Symbol,
    attribute_text,
)
from gpu_runner.core.source import Problem, parse

_LEFT_OUT = frozenset(
    "get_inputs get_init_inputs get_input_sets TOLERANCE PRECISION INPLACE".split()
)


def trace(request):
    """The graph of a reference; an empty one with a reason where it cannot be exported."""
    problem = parse(request["source"])
    if isinstance(problem, Problem):
        return Graph(reason=problem.message).model_dump(mode="json")
    try:
        full = _Trace(request["source"])
        probe = _probe_of(request.get("probe_source"), full)
        graph = _Converter(full, probe).graph()
    except Exception as error:  # noqa: BLE001 - whatever submitted code raises is the reason
        return Graph(reason=f"{type(error).__name__}: {error}"[:1000]).model_dump(mode="json")
    return graph.model_dump(mode="json")


class _Trace:
    """One export of one source: the module, its inputs by name, and the exported program."""

    def __init__(self, source):
        module = types.ModuleType("reference")
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            exec(compile(source, "reference.py", "exec"), module.__dict__)
            self.tf32_matmul = bool(torch.backends.cuda.matmul.allow_tf32)
            self.tf32_convolution = bool(torch.backends.cudnn.allow_tf32)
            self.module = _module_of(module)
            inputs = tuple(module.get_inputs())
            self.program = torch.export.export(self.module, inputs, strict=False)
        self.source = source
        self.parameters = _forward_parameters(self.module, len(inputs))
        self.inputs = dict(zip(self.parameters, inputs, strict=False))
        self.nodes = list(self.program.graph.nodes)
        if len(self.nodes) > MAX_NODES:
            raise ValueError(
                f"the graph has {len(self.nodes)} operations; at most {MAX_NODES} are kept"
            )


def _module_of(namespace):
    if hasattr(namespace, "Model"):
        arguments = namespace.get_init_inputs() if hasattr(namespace, "get_init_inputs") else []
        return namespace.Model(*arguments)
    reference = namespace.reference

    class Model(torch.nn.Module):
        forward = staticmethod(reference)

    return Model()


def _forward_parameters(module, count):
    names = [
        name
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return tuple(names[:count]) if len(names) >= count else tuple(f"x{i}" for i in range(count))


def _probe_of(source, full):
    """The trace at probe size, or None where it is missing or not the same sequence of operations."""
    if not source or source == full.source:
        return None
    try:
        probe = _Trace(source)
    except Exception:  # noqa: BLE001 - the full size alone still gives a graph
        return None
    same = [(n.op, str(n.target)) for n in probe.nodes] == [
        (n.op, str(n.target)) for n in full.nodes
    ]
    return probe if same else None


class _Vocabulary:
    """Expressions with their values at both sizes, simplest first."""

    def __init__(self, full, probe):
        self.attributes = list(self._attributes(full, probe))
        self.singles = [*self._sizes(full, probe), *self.attributes]

    def _sizes(self, full, probe):
        for name, tensor in full.inputs.items():
            if isinstance(tensor, torch.Tensor):
                for i, size in enumerate(tensor.shape):
                    yield f"{name}.shape[{i}]", int(size), int(probe.inputs[name].shape[i])
        others = dict(probe.module.named_parameters())
        for path, tensor in full.module.named_parameters():
            for i, size in enumerate(tensor.shape):
                yield f"{attribute_text(path)}.shape[{i}]", int(size), int(others[path].shape[i])

    def _attributes(self, full, probe):
        for (path, module), (_, other) in zip(
            full.module.named_modules(), probe.module.named_modules(), strict=False
        ):
            for key, value in vars(module).items():
                if key.startswith("_") or key == "training" or isinstance(value, bool):
                    continue
                if isinstance(value, int | float) and isinstance(vars(other).get(key), int | float):
                    name = attribute_text(f"{path}.{key}" if path else key)
                    yield name, value, vars(other)[key]

    def explain(self, full, probe):
        """An expression whose values are `full` and `probe`, or None.

        A number that is the same at both sizes can only be an attribute: arithmetic that happens to give it says nothing.
        """
        for text, a, b in self.attributes if full == probe else self._expressions(full):
            if type(a) is type(full) and _equal(a, full) and _equal(b, probe):
                return text
        return None

    def _expressions(self, full):
        real = isinstance(full, float)
        yield from self.singles
        if real:
            for text, a, b in self.singles:
                if a > 0 and b > 0:
                    yield f"{text} ** -0.5", a**-0.5, b**-0.5
                    yield f"{text} ** 0.5", a**0.5, b**0.5
                    yield f"1 / {text}", 1 / a, 1 / b
        whole = [(t, a, b) for t, a, b in self.singles if isinstance(a, int) and a > 0 and b > 0]
        for i, (left, a, b) in enumerate(whole):
            for right, c, d in whole[i:]:
                yield f"{left} * {right}", a * c, b * d
            for right, c, d in whole:
                if a % c == 0 and b % d == 0:
                    yield f"{left} // {right}", a // c, b // d
                    if real:
                        yield f"({left} // {right}) ** -0.5", (a // c) ** -0.5, (b // d) ** -0.5
            for factor in (2, 3, 4, 8):
                yield f"{factor} * {left}", factor * a, factor * b
                if a % factor == 0 and b % factor == 0:
                    yield f"{left} // {factor}", a // factor, b // factor


def _equal(a, b):
    return a == b or (isinstance(b, float) and math.isclose(a, b, rel_tol=1e-12))


class _Converter:
    """From an exported program, and the same at probe size, to our graph."""

    def __init__(self, full, probe):
        self.full, self.probe = full, probe
        self.vocabulary = _Vocabulary(full, probe) if probe else None
        signature = full.program.graph_signature
        self.paths = {
            **{name: ("parameter", path) for name, path in signature.inputs_to_parameters.items()},
            **{name: ("buffer", path) for name, path in signature.inputs_to_buffers.items()},
            **{
                name: ("constant", path)
                for name, path in signature.inputs_to_lifted_tensor_constants.items()
            },
        }

    def graph(self):
        nodes, outputs, form = [], (), "tensor"
        arguments = iter(self.full.parameters)
        probes = self.probe.nodes if self.probe else self.full.nodes
        for node, probe in zip(self.full.nodes, probes, strict=True):
            if node.op == "placeholder":
                nodes.append(self._placeholder(node, arguments))
            elif node.op == "call_function":
                nodes.append(self._call(node, probe))
            elif node.op == "output":
                outputs, form = self._outputs(node)
            else:
                raise ValueError(f"an operation of kind {node.op}")
        return Graph(
            nodes=tuple(nodes),
            outputs=outputs,
            output_form=form,
            mutated=tuple(self._mutated()),
            constructor=constructor_of(self.full.source, self.full.parameters),
            tf32_matmul=self.full.tf32_matmul,
            tf32_convolution=self.full.tf32_convolution,
        )

    def _placeholder(self, node, arguments):
        kind, path = self.paths.get(node.name, ("input", ""))
        if kind == "input":
            path = next(arguments, node.name)
        return Node(name=node.name, kind=kind, path=path, **_described(node))

    def _call(self, node, probe):
        op = str(node.target)
        kind = "call"
        if op == "<built-in function getitem>":
            op, kind = "", "item"
        elif not isinstance(node.target, torch._ops.OpOverload):
            raise ValueError(f"a call of {op}")
        return Node(
            name=node.name,
            kind=kind,
            op=op,
            args=tuple(self._argument(a, b) for a, b in zip(node.args, probe.args, strict=True)),
            kwargs={
                key: self._argument(value, probe.kwargs.get(key))
                for key, value in node.kwargs.items()
                if key not in ("device", "pin_memory", "layout")
            },
            **_described(node),
        )

    def _argument(self, value, probe):
        if isinstance(value, torch.fx.Node):
            return Ref(node=value.name)
        if isinstance(value, list | tuple):
            others = probe if isinstance(probe, list | tuple) else value
            return [self._argument(a, b) for a, b in zip(value, others, strict=True)]
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, float) and not math.isfinite(value):
            return Symbol(symbol=f'float("{value}")', value=None)
        if isinstance(value, int | float):
            return self._number(value, probe)
        return str(value).removeprefix("torch.")

    def _number(self, value, probe):
        if self.vocabulary is None or (value == probe and isinstance(value, int)):
            return value
        text = self.vocabulary.explain(value, probe)
        if text is None:
            if value != probe:
                return Symbol(symbol="", value=value)
            return value
        return Symbol(symbol=text, value=value)

    def _outputs(self, node):
        signature = self.full.program.graph_signature
        user = set(signature.user_outputs)
        names = tuple(
            argument.name if isinstance(argument, torch.fx.Node) else None
            for argument in node.args[0]
            if not isinstance(argument, torch.fx.Node) or argument.name in user
        )
        spec = self.full.program.call_spec.out_spec
        form = {None: "other", tuple: "tuple", list: "list"}.get(spec.type, "other")
        if spec.type is None or spec.is_leaf():
            form = "tensor"
        return names, form

    def _mutated(self):
        for node in self.full.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.op != "call_function" or schema is None:
                continue
            for argument, value in zip(schema.arguments, node.args, strict=False):
                written = argument.alias_info is not None and argument.alias_info.is_write
                if written and isinstance(value, torch.fx.Node):
                    yield value.name


def _described(node):
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return {}
    return {
        "shape": tuple(int(size) for size in value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "stride": tuple(int(step) for step in value.stride()),
    }


def constructor_of(source, forward_parameters=()):
    """The reference's imports, the helpers its constructor uses, and its class without `forward`."""
    tree = ast.parse(source)
    statements = {name: node for node in tree.body for name in _bound(node)}
    model = statements.get("Model")
    if not isinstance(model, ast.ClassDef):
        return Constructor(forward_parameters=tuple(forward_parameters))
    kept = [
        node
        for node in model.body
        if not (isinstance(node, ast.FunctionDef) and node.name == "forward")
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    wanted = _reachable([*kept, *model.bases], statements)
    preamble = [
        ast.get_source_segment(source, node)
        for node in tree.body
        if node is not model
        and not _LEFT_OUT.intersection(_bound(node))
        and (
            (isinstance(node, ast.Import | ast.ImportFrom) and wanted.intersection(_bound(node)))
            or any(node is statements.get(name) for name in wanted)
        )
    ]
    body = "\n\n".join(_segment(source, node) for node in kept)
    return Constructor(
        preamble="\n".join(line for line in preamble if line),
        bases=", ".join(ast.unparse(base) for base in model.bases),
        body=body.replace("super(Model, self)", "super()"),
        forward_parameters=tuple(forward_parameters),
    )


def _segment(source, node):
    """A statement's text with its decorators, without the indentation of its class."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    return "\n".join(line[node.col_offset :] if line.strip() else "" for line in lines)


def _bound(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return set()


def _reachable(roots, statements):
    """The module-level names that some statements use, directly or through others."""
    found, pending = set(), list(roots)
    while pending:
        root = pending.pop()
        local = {node.arg for node in ast.walk(root) if isinstance(node, ast.arg)}
        for node in ast.walk(root):
            if not isinstance(node, ast.Name) or node.id in local:
                continue
            if node.id in statements and node.id not in found:
                found.add(node.id)
                pending.append(statements[node.id])
    return found
