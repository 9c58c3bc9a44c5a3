"""The structure of encoded values, apart from the tensors in it: are two alike, and are the numbers in them the same?"""

from collections.abc import Sequence
from typing import Any

import torch

from gpu_runner.evaluation.child.compare import Tolerance
from gpu_runner.evaluation.protocol import Encoded, Placed, decode


def is_alike(a: Encoded, b: Encoded) -> bool:
    """The same nesting and kinds; a list and a tuple of the same things are alike."""
    return bool(skeleton(_normal(a)) == skeleton(_normal(b)))


def skeleton(tree: Encoded) -> Any:
    """The structure of an encoded value without its numbers and texts."""
    tag, body = _taken_apart(tree)
    if tag in ("list", "tuple", "size"):
        return {tag: [skeleton(item) for item in body]}
    if tag == "dict":
        return {tag: [[str(key), skeleton(item)] for key, item in body]}
    if tag:
        return tag if tag != "tensor" else tree
    return type(tree).__name__


def has_number(tree: Encoded) -> bool:
    """Whether there is anything but tensors to compare."""
    tag, body = _taken_apart(tree)
    if tag in ("list", "tuple", "size"):
        return any(has_number(item) for item in body)
    if tag == "dict":
        return any(has_number(item) for _, item in body)
    return tag in ("int", "float") or isinstance(tree, bool)


def unlike_numbers(got: Encoded, wanted: Encoded, tolerance: Tolerance) -> str:
    """How a value that is no tensor differs, in alike structures; empty if none does."""
    return _differ(
        decode(_untensored(got), None, torch), decode(_untensored(wanted), None, torch), tolerance
    )


def words(tree: Encoded, places: Sequence[Placed]) -> str:
    """For a person: what was returned, one level deep."""
    tag, body = _taken_apart(tree)
    if tag == "tensor":
        return f"a tensor {list(places[body].shape)}" if body < len(places) else "a tensor"
    if tag in ("list", "tuple"):
        return f"a {tag} of {len(body)}"
    if tag == "dict":
        keys = ", ".join(str(decode(key, None, torch))[:20] for key, _ in body[:6])
        return f"a dict of {keys}" if keys else "an empty dict"
    if tag:
        return str(body)[:80] if tag == "str" else f"a {tag}"
    return str(tree)


def _differ(got: Any, wanted: Any, tolerance: Tolerance) -> str:
    if isinstance(wanted, float) and isinstance(got, float):
        limit = (tolerance.rtol + tolerance.atol_rms) * abs(wanted) + tolerance.atol
        equal = got == wanted or (got != got and wanted != wanted) or abs(got - wanted) <= limit
        return "" if equal else f"returns the number {got}, the reference {wanted}"
    if isinstance(wanted, list | tuple) and isinstance(got, list | tuple):
        pairs = zip(got, wanted, strict=False)
        found = next(filter(None, (_differ(g, w, tolerance) for g, w in pairs)), "")
        return found or ("" if len(got) == len(wanted) else f"returns {len(got)} of {len(wanted)}")
    if isinstance(wanted, dict) and isinstance(got, dict):
        return next(
            filter(None, (_differ(got.get(k), w, tolerance) for k, w in wanted.items())), ""
        )
    return "" if got == wanted else f"returns {got!r:.60}, the reference {wanted!r:.60}"


def _untensored(tree: Encoded) -> Encoded:
    """The tree with its tensors taken out."""
    tag, body = _taken_apart(tree)
    if tag == "tensor":
        return None
    if tag in ("list", "tuple"):
        return {tag: [_untensored(item) for item in body]}
    if tag == "dict":
        return {tag: [[key, _untensored(item)] for key, item in body]}
    return tree


def _normal(tree: Encoded) -> Encoded:
    """A list and a tuple of the same things are the same answer."""
    tag, body = _taken_apart(tree)
    if tag in ("list", "tuple"):
        return {"tuple": [_normal(item) for item in body]}
    if tag == "dict":
        return {tag: sorted(([key, _normal(item)] for key, item in body), key=str)}
    return tree


def _taken_apart(tree: Encoded) -> tuple[str, Any]:
    """Tag and body; an empty tag for None and bools, which stand for themselves."""
    if isinstance(tree, dict) and len(tree) == 1:
        ((tag, body),) = tree.items()
        return str(tag), body
    return "", tree
