"""The addresses of the pages. No trailing slashes; numbers of candidates are those within their run."""

from django.urls import path, re_path
from django.views.generic import RedirectView

from evolution_app.views import (
    accounts,
    candidates,
    exchanging,
    library,
    reviewing,
    run_log,
    runs,
    search,
    shell,
    tasks,
    usage,
    worth,
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="runs"), name="home"),
    path("banners", shell.banners_view, name="banners"),
    # Accounts
    path("login", accounts.SignIn.as_view(), name="login"),
    path("logout", accounts.SignOut.as_view(), name="logout"),
    path("welcome", accounts.sign_in_by_link, name="sign-in"),
    path("theme", accounts.set_theme, name="theme"),
    path("account", accounts.account, name="account"),
    path("account/tokens", accounts.make_api_token, name="token-new"),
    path("account/tokens/<int:token_id>/revoke", accounts.revoke_api_token, name="token-revoke"),
    # Tasks
    path("tasks/new", tasks.new_task, name="task-new"),
    path("tasks/check", tasks.check_task, name="task-check"),
    path("tasks/estimate", tasks.estimate, name="task-estimate"),
    path("tasks/<int:task_id>", tasks.task_page, name="task"),
    path("tasks/<int:task_id>/share", tasks.share_task, name="task-share"),
    path("tasks/<int:task_id>/runs", tasks.start_run, name="task-run"),
    # Runs
    path("runs", runs.run_list, name="runs"),
    path("runs/<int:run_id>", runs.run_page, name="run"),
    path("runs/<int:run_id>/feed", runs.feed, name="run-feed"),
    path("runs/<int:run_id>/controls", runs.controls, name="run-controls"),
    path("runs/<int:run_id>/candidates", runs.candidates, name="run-candidates"),
    path("runs/<int:run_id>/entries", runs.entries, name="run-entries"),
    path("runs/<int:run_id>/usage", usage.usage_page, name="run-usage"),
    path("runs/<int:run_id>/search", search.search_page, name="run-search"),
    path("runs/<int:run_id>/log", run_log.log_page, name="run-log"),
    path("runs/<int:run_id>/log/lines", run_log.log_lines, name="run-log-lines"),
    path("runs/<int:run_id>/log.txt", run_log.log_file, name="run-log-file"),
    path("runs/<int:run_id>/best.py", runs.best_file, name="run-best"),
    path("runs/<int:run_id>/inject", runs.inject, name="run-inject"),
    re_path(
        r"^runs/(?P<run_id>\d{1,18})/(?P<action>pause|resume|stop|cancel)$",
        runs.steer,
        name="run-steer",
    ),
    # Candidates
    path("runs/<int:run_id>/c/<int:number>", candidates.candidate_page, name="candidate"),
    path("runs/<int:run_id>/c/<int:number>.py", candidates.download, name="candidate-file"),
    path(
        "runs/<int:run_id>/c/<int:number>/diff/body",
        candidates.diff_fragment,
        name="candidate-diff",
    ),
    path(
        "runs/<int:run_id>/c/<int:number>/nominate", candidates.nominate, name="candidate-nominate"
    ),
    path(
        "runs/<int:run_id>/c/<int:number>/findings/<int:finding_id>",
        candidates.judge_finding,
        name="finding-judge",
    ),
    path(
        "runs/<int:run_id>/c/<int:number>/<slug:tab>",
        candidates.candidate_page,
        name="candidate-tab",
    ),
    # Library
    path("library", library.entry_list, name="library"),
    path("library/worth", worth.worth_page, name="library-worth"),
    path("library/export.jsonl", exchanging.export, name="library-export"),
    path("library/import", exchanging.import_page, name="library-import"),
    path("library/decide", reviewing.decide_several, name="library-decide"),
    path("library/undo", reviewing.undo, name="library-undo"),
    path("library/views", reviewing.save_view, name="view-save"),
    path("library/views/<int:view_id>/forget", reviewing.forget_view, name="view-forget"),
    path("library/<int:entry_id>", library.entry_page, name="entry"),
    path("library/<int:entry_id>/edit", library.edit_entry, name="entry-edit"),
    path("library/<int:entry_id>/merge", reviewing.merge, name="entry-merge"),
    path("library/<int:entry_id>/resubmit", reviewing.resubmit, name="entry-resubmit"),
    path("library/<int:entry_id>/confirm", reviewing.confirm, name="entry-confirm"),
    path("library/<int:entry_id>/claim", reviewing.claim, name="entry-claim"),
    path("library/<int:entry_id>/release", reviewing.release, name="entry-release"),
    path("library/<int:entry_id>/comment", reviewing.comment, name="entry-comment"),
    path("library/<int:entry_id>/share", reviewing.share_entry, name="entry-share"),
    re_path(
        r"^library/(?P<entry_id>\d{1,18})/(?P<decision>approve|request_changes|reject|retire|restore)$",
        reviewing.decide,
        name="entry-decide",
    ),
]
