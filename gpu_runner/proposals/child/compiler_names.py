"""Names for what a rewritten kernel computes: after the tensors it reads and writes, the axes, and what reductions give."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence, Set

from gpu_runner.proposals.child.compiler_statements import REDUCTIONS, calls_one_of, targets, walk
from gpu_runner.proposals.child.compiler_text import Names, loads

_FUNCTIONS = {"tl.rsqrt": "inverse_std", "tl.exp": "exponential", "tl.log": "logarithm"}


class KernelNames:
    """Chooses names for one kernel.

    Args:
        axes: the prefix of each of inductor's axes and the word for it.
        wishes: for every argument, the name it would like.
        host: for every argument, the host's expression.
        type_of: the dtype of an expression, as `KernelRewriter` knows it.
    """

    def __init__(
        self,
        body: Sequence[ast.stmt],
        axes: Mapping[str, str],
        wishes: Mapping[str, str],
        host: Mapping[str, str],
        pointers: Set[str],
        type_of: Callable[[ast.expr], str],
    ) -> None:
        self.body, self.axes, self.wishes, self.host = body, axes, wishes, host
        self.pointers, self.type_of = pointers, type_of

    def of_parameter(self, argument: str) -> str:
        wish = self.wishes[argument]
        if argument in self.pointers:
            return f"{wish}_ptr"
        wish = re.sub(r"^(numel|n_rows|n_cols)_\d+$", r"\1", wish)
        if not argument.endswith("numel") or (wish.isidentifier() and wish in self.host.values()):
            return wish
        if len(self.axes) == 1:
            return "numel"
        return {"row": "n_rows", "col": "n_cols", "outer": "n_outer"}[
            self.axes[argument.removesuffix("numel")]
        ]

    def add_structure(self, names: Names, new: dict[str, str]) -> None:
        """Indices, masks and block sizes."""
        for axis, word in self.axes.items():
            block = f"BLOCK_{word.upper()}S" if word and word != "outer" else "BLOCK"
            new[f"{axis.upper()}BLOCK"] = names.new("BLOCK_OUTER" if word == "outer" else block)
            index = {"": "offsets", "outer": "outers"}.get(word, f"{word}s")
            index_name, mask_name = names.new(index), names.new(f"{word}_mask" if word else "mask")
            for name in {n for node in walk(self.body) for n in [*targets(node), *loads(node)]}:
                stem = name.split("__")[0]
                if stem in (f"{axis}index", f"{axis}base" if axis == "" else f"{axis}index"):
                    new[name] = index_name
                elif stem == f"{axis}mask":
                    new[name] = mask_name
                elif stem == f"{axis}offset":
                    new[name] = "start"
                elif stem == f"{axis}base":
                    new[name] = "lanes"

    def add_values(self, names: Names, new: dict[str, str]) -> None:
        stored = {
            node.value.args[1].id: loads(node.value.args[0])[0]
            for node in walk(self.body)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.args[1], ast.Name)
        }
        accumulated = self._accumulated()
        used = {name for node in self.body for name in loads(node)}
        for node in walk(self.body):
            for name in targets(node):
                if name in new or not isinstance(node, ast.Assign):
                    continue
                if name not in used:
                    new[name] = "_"
                    continue
                if name in accumulated:
                    wish = accumulated[name]
                elif name in stored and not calls_one_of(node.value, REDUCTIONS):
                    wish = self.wishes[stored[name]]
                else:
                    wish = self._of_value(name, node.value, new)
                new[name] = names.new(wish)

    def _accumulated(self) -> dict[str, str]:
        """Names for what loops gather, by the reduction that is made of it afterwards."""
        found = {}
        for node in walk(self.body):
            if isinstance(node, ast.Assign):
                for call in (n for n in ast.walk(node.value) if isinstance(n, ast.Call)):
                    word = REDUCTIONS.get(ast.unparse(call.func))
                    if word and call.args and isinstance(call.args[0], ast.Name):
                        name = call.args[0].id
                        if name.startswith("_tmp"):
                            found[name] = f"lane_{word}"
        for name in {t for node in walk(self.body) for t in targets(node)}:
            for suffix in ("_mean", "_m2", "_weight"):
                if name.split("__")[0].removesuffix("_next").endswith(suffix):
                    word = "count" if suffix == "_weight" else suffix[1:]
                    found[name] = ("new_" if "_next" in name else "lane_") + word
        return found

    def _of_value(self, name: str, value: ast.expr, new: Mapping[str, str]) -> str:
        if name[0] in "xyr" and self.type_of(value) == "index":
            return "i"
        match value:
            case ast.Call(func=function) if ast.unparse(function) == "tl.load":
                pointer = next(n for n in loads(value) if n in self.pointers)
                return self.wishes[pointer]
            case ast.Call(func=ast.Attribute(value=inner, attr="to")):
                return self._of_value(name, inner, new)
            case ast.BinOp(left=ast.Name(id=left), op=ast.Div(), right=right) if new.get(
                left, ""
            ).startswith("total") and self.type_of(right) in ("index", "number"):
                return "mean"
            case ast.BinOp(op=ast.Sub(), right=ast.Name(id=right)) if new.get(right) == "mean":
                return "centered"
        for call, word in (REDUCTIONS | _FUNCTIONS).items():
            if calls_one_of(value, {call: word}):
                return word
        return "mask" if self.type_of(value) == "int1" else "t"
