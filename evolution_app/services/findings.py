"""What experts say of a diagnosis."""

from django.db import transaction
from django.utils import timezone

from evolution_app import permissions
from evolution_app.models import AuditEvent, Candidate, Finding, User
from evolution_app.services.errors import NotAllowed


@transaction.atomic
def judge_finding(*, finding: Finding, by: User, is_right: bool | None) -> None:
    """An expert says whether a finding was right; None takes the judgement back."""
    candidate = finding.evaluation.candidate
    if (
        not permissions.may_review(by)
        or not Candidate.objects.visible_to(by).filter(pk=candidate.pk).exists()
    ):
        raise NotAllowed("only experts judge findings")
    before = finding.is_right
    finding.is_right, finding.judged_by, finding.judged_at = is_right, by, timezone.now()
    finding.save(update_fields=["is_right", "judged_by", "judged_at"])
    AuditEvent.objects.log(
        actor=by, verb="finding.judged", target=finding, before=before, after=is_right
    )
