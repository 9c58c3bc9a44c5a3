"""What was learned on other tasks, and what this run can teach: retrieval of approved entries and distilling of new ones.

Pure functions over entries given as plain values; who may see them was decided before. Parts: queries (what a moment of a run
looks like to the library), retrieval (filters, then BM25), distilling (a step that paid becomes a draft of an entry).
"""

from gpu_runner.experience.distilling import distil
from gpu_runner.experience.queries import Query, query_for
from gpu_runner.experience.retrieval import SHARE_WITHOUT, Retrieved, demonstrations, retrieve

__all__ = [
    "SHARE_WITHOUT",
    "Query",
    "Retrieved",
    "demonstrations",
    "distil",
    "query_for",
    "retrieve",
]
