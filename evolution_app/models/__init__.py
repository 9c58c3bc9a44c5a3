"""The tables. One module per story: accounts, tasks, runs, candidates, library, curation, fleet, audit."""

from evolution_app.models.accounts import ApiToken, SignInToken, User
from evolution_app.models.audit import AuditEvent
from evolution_app.models.candidates import (
    Candidate,
    CandidateParent,
    Evaluation,
    Finding,
    ModelCall,
)
from evolution_app.models.curation import EntryComment, Review, SavedView
from evolution_app.models.fleet import Hint, Runner
from evolution_app.models.library import (
    EntryUse,
    EntryVersion,
    Evidence,
    ExperienceEntry,
)
from evolution_app.models.runs import Island, Run, RunEvent, RunNote, Steering
from evolution_app.models.sources import SourceText
from evolution_app.models.tasks import Task, TaskShare

__all__ = [
    "ApiToken",
    "AuditEvent",
    "Candidate",
    "CandidateParent",
    "EntryComment",
    "EntryUse",
    "EntryVersion",
    "Evaluation",
    "Evidence",
    "ExperienceEntry",
    "Finding",
    "Hint",
    "Island",
    "ModelCall",
    "Review",
    "Run",
    "RunEvent",
    "RunNote",
    "Runner",
    "SavedView",
    "SignInToken",
    "SourceText",
    "Steering",
    "Task",
    "TaskShare",
    "User",
]
