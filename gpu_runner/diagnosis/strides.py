"""Offsets in a kernel's text that look transposed, and masks that let the next row in."""

import ast
from collections.abc import Iterator, Sequence

from gpu_runner.diagnosis.reading import REDUCTIONS, Access, Kernel, calls, language_name


def transposed_line(kernel: Kernel) -> int | None:
    """The first access that multiplies indices by each other's strides."""
    found = (access.line for access in kernel.accesses if is_transposed(kernel, access))
    return next(found, None)


def line_without_row_end(kernel: Kernel) -> int | None:
    """The first load that a reduction needs masked at the row's end and whose mask only ends with the whole tensor."""
    if not any(language_name(call) in REDUCTIONS for call in calls(kernel.node)):
        return None
    for access in kernel.loads:
        if access.mask is not None and _compares_whole_offset(kernel, access):
            return access.line
    return None


def is_transposed(kernel: Kernel, access: Access) -> bool:
    """Whether an access of the kernel multiplies an index by another one's stride."""
    if access not in kernel.accesses:
        return False
    terms = [part for term in _terms(access.pointer) for part in _terms(_offset(kernel, term))]
    products = dict(product for term in terms for product in _products(term))
    plain = [ast.unparse(_bare(term)) for term in terms[1:]]
    return _is_named_so(products, plain) or _is_bounded_so(access, products)


def _is_named_so(products: dict[str, str], plain: Sequence[str]) -> bool:
    """`k * stride_n` beside `n * stride_k`, or beside a plain n."""
    pairs = [(_letter(index), _letter(stride)) for index, stride in products.items()]
    strides = [_letter(stride) for stride in products.values() if "stride" in stride]
    alone = [_letter(term) for term in plain]
    return any(
        index
        and index != stride
        and stride in strides
        and ((stride, index) in pairs or stride in alone)
        for index, stride in pairs
    )


def _offset(kernel: Kernel, term: ast.expr) -> ast.expr:
    """What a name was set to, where that is a sum of products."""
    value = kernel.assigned(term.id) if isinstance(term, ast.Name) else None
    is_offset = (
        value is not None and "*" in ast.unparse(value) and "arange" not in ast.unparse(value)
    )
    return value if value is not None and is_offset else term


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _letter(name: str) -> str:
    """What an index or stride is named after: m of `offs_m`, `stride_am` and `rm`."""
    word = name.strip("_").lower()
    return word[-1] if word and word[-1].isalpha() else ""


def _is_bounded_so(access: Access, products: dict[str, str]) -> bool:
    """An index is multiplied by its own bound, and another one, with another bound, by nothing."""
    bounds = dict(_bounds(access.mask)) if access.mask is not None else {}
    return any(
        bounds.get(index) == stride and any(b != stride for b in bounds.values())
        for index, stride in products.items()
    )


def _products(pointer: ast.expr) -> Iterator[tuple[str, str]]:
    """(index, what it is multiplied by) of the terms of an offset; both as the last name in them."""
    for node in ast.walk(pointer):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        sides = [_bare(node.left), _bare(node.right)]
        if isinstance(node.left, ast.Name) and not isinstance(node.right, ast.Name):
            sides.reverse()
        yield ast.unparse(sides[0]), ast.unparse(sides[1])


def _bare(node: ast.expr) -> ast.expr:
    """Without `[:, None]`, and without a cast."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node


def _bounds(mask: ast.expr) -> Iterator[tuple[str, str]]:
    for node in ast.walk(mask):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            yield ast.unparse(_bare(node.left)), ast.unparse(node.comparators[0])


def _compares_whole_offset(kernel: Kernel, access: Access) -> bool:
    """The mask's left side is the whole offset, with a row's start in it."""
    for node in ast.walk(access.mask) if access.mask is not None else ():
        if not isinstance(node, ast.Compare):
            continue
        left = kernel.expanded(node.left)
        offset = ast.unparse(kernel.expanded(access.pointer))
        if _has_row_start(kernel, left) and ast.unparse(left) in offset:
            return True
    return False


def _has_row_start(kernel: Kernel, offset: ast.expr) -> bool:
    """`program_id * n` with an n that the launch gives, beside a range of columns."""
    factors = [right for left, right in _products(offset) if "program_id" in left or left == "tl"]
    return "arange" in ast.unparse(offset) and any(f not in kernel.constexprs for f in factors)
