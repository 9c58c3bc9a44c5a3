"""Behaviour-preserving transformations of a candidate's source, each with its precondition.

The request is `{"source": str, "products": str}`, where `products` says what may be done with float32 products: "tf32"
where the policy permits TF32, "float32" where it does not, "none" where there are none of float32. The answer is a list
of rewritten sources, each with the name of the rewrite, one line for people, and the gain that experience suggests. A
rewrite edits spans of the text and leaves the rest as it was written. Where its precondition cannot be seen in the text,
it does not apply.
"""

import ast

from gpu_runner.core.source import Problem, parse
from gpu_runner.proposals.child.rewrites_epilogue import fuse_epilogue
from gpu_runner.proposals.child.rewrites_fusion import fuse_producer
from gpu_runner.proposals.child.rewrites_leftovers import without_left_over
from gpu_runner.proposals.child.rewrites_loops import (
    accumulate_in_lanes,
    hold_row_in_one_block,
    pipeline_streams,
)
from gpu_runner.proposals.child.rewrites_memory import group_tiles, hint_streams
from gpu_runner.proposals.child.rewrites_numerics import (
    emulate_float32,
    multiply_by_reciprocal,
    use_tf32,
)
from gpu_runner.proposals.child.tuning_sites import Reading, Unreadable, applied

_REWRITES = (
    fuse_producer,
    fuse_epilogue,
    hold_row_in_one_block,
    accumulate_in_lanes,
    group_tiles,
    pipeline_streams,
    hint_streams,
    multiply_by_reciprocal,
)
_PRODUCTS = {"none": (), "tf32": (use_tf32,), "float32": (emulate_float32,)}
_MOST = 24


def rewrites(request):
    """All sources that one rewrite makes of the candidate, the largest predicted gain first."""
    source = request["source"]
    try:
        reading = Reading(source)
    except Unreadable as error:
        return {"rewrites": [], "reason": str(error)}
    found, seen = [], {ast.dump(reading.tree)}
    for rewrite in (*_REWRITES, *_PRODUCTS[request["products"]]):
        for change in rewrite(reading):
            text = applied(source, change.edits)
            tree = parse(text)
            if isinstance(tree, Problem) or ast.dump(tree) in seen:
                continue
            seen.add(ast.dump(tree))
            found.append(
                {
                    "name": rewrite.__name__,
                    "source": without_left_over(reading, text),
                    "move": change.move,
                    "gain": change.gain,
                }
            )
    return {"rewrites": sorted(found, key=lambda r: -r["gain"])[:_MOST]}
