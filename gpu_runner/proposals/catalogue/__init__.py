"""Hand-written Triton templates, read as text and never imported, and what is made of them.

Two uses. `function_for(op, ...)` gives a Triton function with the parameters of a library call, to be pasted into
emitted code in its place; `drafts(task, report)` gives whole `ModelNew` sources for tasks whose traced graph a few
templates cover.

`function_for` returns a `LibraryFunction(name, text, imports)`, or None where no template does the operation. The text
defines a kernel and a host function `name`; several may stand in one module under different names:

    mm(a, b, *, out=None)                a (M, K) @ b (K, N)
    addmm(bias, a, b, *, out=None)       beta * bias + alpha * (a @ b); bias of any shape that broadcasts to (M, N)
    bmm(a, b, *, out=None)               a (B, M, K) @ b (B, K, N)
    baddbmm(bias, a, b, *, out=None)     beta * bias + alpha * (a @ b); alpha and beta are fixed in the text
    convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out=None)
                                         one or two dimensions, not transposed; bias is ignored with bias=False

All take any strides and sizes, sum in float32, keep the inputs' dtype and return `out`, allocated when it is None.

Parts: `templates/` the texts · `render` fills one · `tiles` first tile sizes · `library_calls` the functions above ·
`pointwise` expressions of elementwise operations · `plan` which templates cover a graph · `emission` the module text.
"""

from gpu_runner.proposals.catalogue.library_calls import LibraryFunction, function_for

__all__ = ["LibraryFunction", "function_for"]
