"""What was learned on other tasks, and what this run can teach. Functions over values; who may see an entry was decided before.

To use the library: queries (what a moment of a run looks like to it), conditions (when entries apply), retrieval (conditions,
then BM25), shelf (the same while people decide and worth is measured), showing (what a proposal sees, and what is withheld).
To fill it: distilling (a step that paid becomes a draft), reducing (to the smallest change that shows the gain), verification
(by execution, on its own task and another), lineage (walking an expert's kernel backwards), techniques and rules (what is known
and learned of when each applies).
"""

from gpu_runner.experience.distilling import distil
from gpu_runner.experience.queries import Query, query_for
from gpu_runner.experience.retrieval import Library, Retrieved
from gpu_runner.experience.shelf import Shelf
from gpu_runner.experience.showing import FOUND, Shown, show

__all__ = [
    "FOUND",
    "Library",
    "Query",
    "Retrieved",
    "Shelf",
    "Shown",
    "distil",
    "query_for",
    "show",
]
