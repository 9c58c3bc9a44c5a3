"""What people do: submit, start, steer, share, nominate, review.

Each function is one transaction and leaves a trace in the audit. All take keyword arguments only and check the
rights of the person themselves. They raise `NotAllowed` (a page answers 403; what the person may not even see
is a 404 before it comes here), `Refused` with a message for people, `Stale` when somebody was faster.
"""

from evolution_app.services.accounts import (
    create_user,
    ensure_local_owner,
    issue_api_token,
    issue_sign_in,
    redeem_sign_in,
    revoke_api_token,
    set_role,
)
from evolution_app.services.discussion import (
    claim_entry,
    comment,
    forget_view,
    release_entry,
    save_view,
)
from evolution_app.services.entries import (
    confirm_entry,
    edit_entry,
    nominate_entry,
    pair_of,
    resubmit_entry,
    share_entry,
)
from evolution_app.services.errors import NotAllowed, Refused, Stale, readable
from evolution_app.services.exchange import import_lines, load_starting_entries, plan_import
from evolution_app.services.findings import judge_finding
from evolution_app.services.reviews import (
    approve_entry,
    decide_together,
    merge_entry,
    reject_entry,
    request_changes,
    restore_entry,
    retire_entry,
    undo_reviews,
    waivers_needed,
)
from evolution_app.services.runs import (
    inject,
    request_cancel,
    request_pause,
    request_resume,
    request_stop,
    start_run,
)
from evolution_app.services.tasks import (
    check_task,
    share_task,
    similar_tasks,
    submit_task,
    write_note,
)

__all__ = [
    "NotAllowed",
    "Refused",
    "Stale",
    "approve_entry",
    "check_task",
    "claim_entry",
    "comment",
    "confirm_entry",
    "create_user",
    "decide_together",
    "edit_entry",
    "ensure_local_owner",
    "forget_view",
    "import_lines",
    "inject",
    "issue_api_token",
    "issue_sign_in",
    "judge_finding",
    "load_starting_entries",
    "merge_entry",
    "nominate_entry",
    "pair_of",
    "plan_import",
    "readable",
    "redeem_sign_in",
    "reject_entry",
    "release_entry",
    "request_cancel",
    "request_changes",
    "request_pause",
    "request_resume",
    "request_stop",
    "restore_entry",
    "resubmit_entry",
    "retire_entry",
    "revoke_api_token",
    "save_view",
    "set_role",
    "share_entry",
    "share_task",
    "similar_tasks",
    "start_run",
    "submit_task",
    "undo_reviews",
    "waivers_needed",
    "write_note",
]
