"""What was learned on other tasks, and what this run can teach: retrieval of approved entries and distilling of new ones.

Pure functions over entries given as plain values; who may see them was decided before. Parts: queries (what a moment of a run
looks like to the library), conditions (when entries apply), retrieval (conditions, then BM25), showing (what a proposal gets to
see, and what is withheld to measure worth), distilling (a step that paid becomes a draft of an entry).
"""

from gpu_runner.experience.distilling import distil
from gpu_runner.experience.queries import Query, query_for
from gpu_runner.experience.retrieval import Library, Retrieved, demonstrations, retrieve
from gpu_runner.experience.showing import SHARE_WITHOUT, Shown, show

__all__ = [
    "SHARE_WITHOUT",
    "Library",
    "Query",
    "Retrieved",
    "Shown",
    "demonstrations",
    "distil",
    "query_for",
    "retrieve",
    "show",
]
