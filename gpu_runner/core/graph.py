"""A task's dataflow as JSON: what the reference computes, in ATen's words, whatever it is called in the source.

Nodes stand in an order in which they can be computed. Arguments are plain JSON; a reference to another node is a `Ref`,
and a number that follows from the sizes of the inputs or from an attribute of the module is a `Symbol`, so that code
made from the graph can be right at other sizes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_NODES: Final = 1_000
MAX_ARGUMENTS: Final = 200
_MAX_DEPTH: Final = 4


class Ref(BaseModel):
    """An argument that is another node's value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str = Field(max_length=200)


class Symbol(BaseModel):
    """A constant with the Python expression that gives it inside `forward`, such as `x.shape[0]` or `self.eps`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    symbol: str = Field(max_length=200)
    value: int | float | None


Argument = Any
"""None, bool, int, float, str, Ref, Symbol, or a list of these."""


class Node(BaseModel):
    """One value. `op` is an ATen overload for a `call` ("aten.linear.default"), and empty for the other kinds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=200)
    kind: Literal["input", "parameter", "buffer", "constant", "call", "item"]
    op: str = Field(default="", max_length=200)
    args: Annotated[tuple[Argument, ...], Field(max_length=MAX_ARGUMENTS)] = ()
    kwargs: dict[str, Argument] = {}
    shape: tuple[int, ...] | None = Field(default=None, description="None: no single tensor")
    dtype: str | None = None
    stride: tuple[int, ...] | None = None
    path: str = Field(
        default="",
        max_length=300,
        description="of a parameter, buffer or constant below the module; of an input, its name in forward",
    )

    @field_validator("args", "kwargs", mode="before")
    @classmethod
    def _typed(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): _argument(item, 0) for key, item in value.items()}
        return tuple(_argument(item, 0) for item in value)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all nodes that this one reads, in the order of its arguments."""
        return tuple(_references([*self.args, *self.kwargs.values()]))


class Constructor(BaseModel):
    """What a candidate needs of the reference's text to be constructed like it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preamble: str = Field(default="", description="imports and helpers that the constructor uses")
    bases: str = "nn.Module"
    body: str = Field(
        default="", description="of the class without forward, unindented; may be empty"
    )
    forward_parameters: tuple[str, ...] = ()


class Graph(BaseModel):
    """Empty where the reference could not be traced; `reason` then says why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Annotated[tuple[Node, ...], Field(max_length=MAX_NODES)] = ()
    outputs: tuple[str | None, ...] = ()
    output_form: Literal["tensor", "tuple", "list", "other"] = "tensor"
    mutated: tuple[str, ...] = Field(default=(), description="nodes whose memory a forward changes")
    constructor: Constructor | None = None
    tf32_matmul: bool = Field(
        default=False, description="torch's flag after the reference was imported"
    )
    tf32_convolution: bool = Field(default=True, description="torch's flag after the import")
    reason: str = Field(default="", max_length=1000)

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def users(self, name: str) -> tuple[Node, ...]:
        """The nodes that read `name`, in order, each once."""
        return self._users.get(name, ())

    @property
    def calls(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind in ("call", "item"))

    def model_post_init(self, _: Any) -> None:
        by_name = {node.name: node for node in self.nodes}
        users: dict[str, tuple[Node, ...]] = {}
        seen: set[str] = set()
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name not in seen:
                    raise ValueError(f"{node.name} reads {name}, which is not computed before it")
                users[name] = (*users.get(name, ()), node)
            seen.add(node.name)
        if missing := {name for name in self.outputs if name is not None} - seen:
            raise ValueError(f"outputs {sorted(missing)} are computed by no node")
        object.__setattr__(self, "_by_name_", by_name)
        object.__setattr__(self, "_users_", users)

    @property
    def _by_name(self) -> dict[str, Node]:
        found: dict[str, Node] = self.__dict__.get("_by_name_") or {}
        return found

    @property
    def _users(self) -> dict[str, tuple[Node, ...]]:
        found: dict[str, tuple[Node, ...]] = self.__dict__.get("_users_") or {}
        return found


def attribute_text(path: str) -> str:
    """How `forward` reaches a parameter or attribute: layers.0.weight is self.layers[0].weight."""
    text = "self"
    for part in path.split("."):
        if part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{part}]" if part.isdigit() else f"[{part!r}]"
    return text


def _argument(value: Any, depth: int) -> Argument:
    if depth > _MAX_DEPTH:
        raise ValueError(f"arguments are nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | int | float | str | Ref | Symbol):
        if isinstance(value, str) and len(value) > 1000:
            raise ValueError("a text argument is longer than 1,000 characters")
        return value
    if isinstance(value, list | tuple):
        if len(value) > MAX_ARGUMENTS:
            raise ValueError(f"a list argument has more than {MAX_ARGUMENTS} items")
        return [_argument(item, depth + 1) for item in value]
    if isinstance(value, dict) and "node" in value:
        return Ref.model_validate(value)
    if isinstance(value, dict) and "symbol" in value:
        return Symbol.model_validate(value)
    raise ValueError(f"an argument of type {type(value).__name__}")


def _references(arguments: list[Argument]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.node
        elif isinstance(argument, list):
            yield from _references(argument)
