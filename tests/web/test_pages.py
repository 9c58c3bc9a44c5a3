"""Every page for every kind of person: what it shows, what it hides, and that nothing of a child or a model becomes markup."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.test import Client
from django.utils import timezone

from evolution_app import recording, services
from evolution_app.frames import frames_after
from evolution_app.models import (
    Candidate,
    ExperienceEntry,
    Finding,
    Run,
    Runner,
    SignInToken,
    Task,
    User,
)
from evolution_app.suite import LEVELS
from evolution_app.views import reading
from gpu_runner.core.candidate import RUN_ENDED, Proposal
from gpu_runner.core.task import best_of_10
from gpu_runner.core.verdicts import RunState, Verdict
from tests.web import played_runs, samples

pytestmark = pytest.mark.django_db

GOOD = {
    "name": "double",
    "source": samples.TASK,
    "track": "own_kernels",
    "precision": "reference",
    "target": "h200",
    "device": "cpu",
    "method": "evolution",
    "islands": "3",
    "evaluations": "12",
    "visibility": "private",
}


def as_user(user: User | None, **options: Any) -> Client:
    client = Client(**options)
    if user is not None:
        client.force_login(user)
    return client


@pytest.fixture
def played(run: Run) -> Run:
    """A run with twelve candidates of all fates."""
    store = played_runs.play(run)
    played_runs.call_model(store, 3)
    run.refresh_from_db()
    return run


@pytest.fixture
def entry(played: Run, owner: User) -> ExperienceEntry:
    candidate = Candidate.objects.get(run=played, number=3)
    return services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)


def page_addresses(run: Run, entry: ExperienceEntry) -> list[str]:
    candidate = f"/runs/{run.pk}/c/3"
    tabs = ["", "/code", "/diff", "/lineage", "/model", ".py", "/diff/body", "/nominate"]
    return [
        f"/tasks/{run.task_id}",
        f"/runs/{run.pk}",
        f"/runs/{run.pk}/feed",
        f"/runs/{run.pk}/controls",
        f"/runs/{run.pk}/candidates",
        f"/runs/{run.pk}/best.py",
        f"/runs/{run.pk}/search",
        f"/runs/{run.pk}/usage",
        f"/runs/{run.pk}/log",
        f"/runs/{run.pk}/log/lines",
        f"/runs/{run.pk}/log.txt",
        *(candidate + tab for tab in tabs),
        f"/library/{entry.pk}",
    ]


def test_a_candidate_whose_turn_never_came_is_no_failure_and_no_evaluation(
    run: Run, owner: User
) -> None:
    store = played_runs.play(run, count=2)
    late = store.add(Proposal(source=played_runs.source(9), island=0, origin="tune"))
    store.abandon(late.id, f"{RUN_ENDED}: stopped by a person")
    row = Candidate.objects.get(run=run, number=late.id)
    client = as_user(owner)

    pages = [
        client.get(f"/runs/{run.pk}").content.decode(),
        client.get(row.get_absolute_url()).content.decode(),
    ]

    assert [point["id"] for point in reading.curve_points(run)] == [1, 2]
    assert all("stopped by a person" in page for page in pages)
    assert not any("our failure" in page or "We failed" in page for page in pages)


# Who sees what


def test_its_owner_sees_every_page(played: Run, entry: ExperienceEntry, owner: User) -> None:
    client = as_user(owner)
    for address in ["/runs", "/tasks/new", "/library", "/account", *page_addresses(played, entry)]:
        assert client.get(address).status_code == 200, address


def test_what_one_may_not_see_does_not_exist(
    played: Run, entry: ExperienceEntry, other: User, viewer: User, expert: User
) -> None:
    for user in (other, viewer, expert):
        client = as_user(user)
        for address in page_addresses(played, entry):
            assert client.get(address).status_code == 404, (user, address)
        assert "double" not in client.get("/runs").content.decode()
        assert samples.LESSON.title not in client.get("/library?queue=all").content.decode()


def test_a_public_task_is_seen_by_a_viewer_who_may_change_nothing(
    played: Run, owner: User, viewer: User
) -> None:
    services.share_task(task=played.task, by=owner, visibility="public")
    client = as_user(viewer)
    page = client.get(f"/runs/{played.pk}").content.decode()

    assert "/stop" not in page
    assert client.post(f"/runs/{played.pk}/stop").status_code == 403
    assert client.post(f"/runs/{played.pk}/inject", {"hint": "x", "island": 0}).status_code == 403
    assert client.get(f"/runs/{played.pk}/c/3/nominate").status_code == 403
    assert client.post(f"/tasks/{played.task_id}/runs").status_code == 403
    assert client.get("/tasks/new").status_code == 403
    played.refresh_from_db()
    assert played.wanted == RunState.RUNNING


def test_strangers_are_sent_to_sign_in_and_back(played: Run, entry: ExperienceEntry) -> None:
    for address in ["/runs", "/tasks/new", "/library", "/account", *page_addresses(played, entry)]:
        answer = Client().get(address)
        assert (answer.status_code, answer["Location"]) == (302, f"/login?next={address}"), address


@pytest.mark.parametrize(
    "address",
    [
        "/nowhere",
        "/runs/0",
        "/runs/99999999999999999999",
        "/runs/1/c/1",
        "/library/7",
        "/tasks/7",
        "/runs/x",
    ],
)
def test_the_page_of_nothing_says_what_to_do(owner: User, address: str) -> None:
    answer = as_user(owner).get(address)

    assert answer.status_code == 404
    assert "To the runs" in answer.content.decode()


def test_an_unknown_tab_of_a_candidate_is_nothing(played: Run, owner: User) -> None:
    assert as_user(owner).get(f"/runs/{played.pk}/c/3/secrets").status_code == 404


@pytest.mark.parametrize("against", ["c-999", "c-99999999999999999999", "../x", "c-²", "best"])
def test_a_diff_against_nothing_falls_back_to_the_parent(
    played: Run, owner: User, against: str
) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}/c/3/diff", {"against": against})

    assert page.status_code == 200
    assert page.context["against"] == "c-1"


# Submitting


def test_a_submission_starts_a_run_and_goes_to_its_page(owner: User) -> None:
    answer = as_user(owner).post("/tasks/new", {**GOOD, "minutes": "5", "seed": "7"})

    run = Run.objects.select_related("task__source").get()
    assert answer["Location"] == f"/runs/{run.pk}"
    assert (run.task.name, run.task.source.text, run.task.owner) == ("double", samples.TASK, owner)
    assert run.options["budget"]["evaluations"] == 12
    assert run.options["budget"]["wall_s"] == 300
    assert (run.options["islands"], run.options["device"], run.options["seed"]) == (3, "cpu", 7)


def test_line_ends_of_a_browser_are_not_kept(owner: User) -> None:
    as_user(owner).post("/tasks/new", {**GOOD, "source": samples.TASK.replace("\n", "\r\n")})

    assert Task.objects.get().source.text == samples.TASK


def test_an_uploaded_file_is_the_source(owner: User, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(samples.TASK)
    with file.open("rb") as upload:
        as_user(owner).post("/tasks/new", {**GOOD, "source": "", "upload": upload})

    assert Task.objects.get().source.text == samples.TASK


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": ""}, "the source is empty"),
        ({"source": "def f(:\n  pass"}, "Line 1"),
        ({"source": "x = 1"}, "defines neither a class Model"),
        ({"source": "#" + "x" * 70_000}, "at most 65,536"),
        ({"source": "(" * 5000}, "nested more than"),
        ({"name": ""}, "This field is required"),
        ({"evaluations": "", "minutes": ""}, "Limit the evaluations"),
        ({"evaluations": "0"}, "greater than or equal to 1"),
        ({"islands": "17"}, "less than or equal to 16"),
        ({"minutes": "nan"}, "Enter a number"),
        ({"baseline_source": "x = 1"}, "defines no class ModelNew"),
        ({"target": "toaster"}, "not one of the available choices"),
        ({"model": "absent"}, "not one of the available choices"),
    ],
)
def test_a_submission_that_cannot_be_says_why_at_its_field(
    owner: User, change: dict[str, str], words: str
) -> None:
    answer = as_user(owner).post("/tasks/new", {**GOOD, **change})

    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not Task.objects.exists()


def test_an_upload_that_is_no_text_or_too_large_is_refused(owner: User, tmp_path: Path) -> None:
    for name, content, words in (
        ("b.py", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("c.py", b"#" * 70_000, "is 69 KiB; at most 64 KiB"),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        with file.open("rb") as upload:
            answer = as_user(owner).post("/tasks/new", {**GOOD, "source": "", "upload": upload})
        assert answer.status_code == 422
        assert words in answer.content.decode()


def test_the_check_names_the_line_and_runs_nothing(owner: User, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    source = f"open({str(trap)!r}, 'w')\nclass Model(object):\n  def forward(self): return\n"
    page = as_user(owner).post("/tasks/check", {"source": source + "def f(:"}).content.decode()

    assert 'data-line="4"' in page
    assert not trap.exists()


def test_the_check_of_a_good_source_says_so_and_names_the_same_task(
    owner: User, task: Task
) -> None:
    page = as_user(owner).post("/tasks/check", {"source": samples.TASK}).content.decode()

    assert "honours the contract" in page
    assert f"/tasks/{task.pk}" in page


def test_every_example_can_be_chosen_under_its_level(owner: User) -> None:
    page = as_user(owner).get("/tasks/new").content.decode()

    groups = re.findall(r'<optgroup label="([^"]*)">(.*?)</optgroup>', page, re.S)
    offered = {label: re.findall(r'<option value="([^"]*)"', options) for label, options in groups}
    files = sorted((Path(settings.BASE_DIR) / "examples").glob("*/*.py"))
    by_folder = {
        folder: [f"{folder}/{file.stem}" for file in files if file.parent.name == folder]
        for folder in LEVELS
    }
    assert offered == {LEVELS[folder]: names for folder, names in by_folder.items()}
    assert sum(map(len, offered.values())) == len(files)


def test_an_example_fills_the_form(owner: User) -> None:
    page = as_user(owner).get("/tasks/new", {"example": "level2/mlp_block"})

    assert page.context["form"]["name"].value() == "mlp block"
    assert "class Model" in page.context["form"]["source"].value()


def test_a_task_is_duplicated_only_by_who_sees_it(task: Task, owner: User, other: User) -> None:
    page = as_user(owner).get("/tasks/new", {"copy": task.pk})

    assert page.context["form"]["source"].value() == samples.TASK
    assert as_user(other).get("/tasks/new", {"copy": task.pk}).status_code == 404


MODELS = """[profiles.tiny]
base_url = "http://127.0.0.1:1/v1"
model = "m"
key = "FOUNDRY_MODEL_KEY_TINY"
"""


def test_a_model_is_chosen_by_the_name_of_its_profile_and_nothing_else_is_shown(
    owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(MODELS)
    monkeypatch.setenv("FOUNDRY_MODELS", str(file))
    page = as_user(owner).get("/tasks/new").content.decode()
    as_user(owner).post("/tasks/new", {**GOOD, "model": "tiny"})

    assert 'value="tiny"' in page
    assert "FOUNDRY_MODEL_KEY" not in page
    assert "127.0.0.1:1" not in page
    assert Run.objects.get().options["model"] == "tiny"


def test_several_models_take_part_in_one_run(
    owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(MODELS + MODELS.replace("tiny", "small"))
    monkeypatch.setenv("FOUNDRY_MODELS", str(file))
    client = as_user(owner)
    assert 'name="more_models"' in client.get("/tasks/new").content.decode()
    refused = client.post("/tasks/new", {**GOOD, "more_models": ["small"]})
    assert "Choose the first model too." in refused.content.decode()
    client.post("/tasks/new", {**GOOD, "model": "tiny", "more_models": ["small"]})
    run = Run.objects.get()
    assert run.spec().models == ("tiny", "small")
    assert "model tiny, small" in client.get(run.get_absolute_url()).content.decode()


def test_warnings_of_a_source_that_ran_before_stand_on_the_form_with_their_numbers(
    task: Task, owner: User, other: User
) -> None:
    def check(user: User) -> str:
        return as_user(user).post("/tasks/check", {"source": samples.TASK}).content.decode()

    assert "once the reference has run in its sandbox" in check(owner)
    warning = played_runs.failing(Verdict.INCORRECT, "values", "a trivial answer would pass")
    report = played_runs.REPORT.model_copy(update={"warnings": warning.findings})
    Task.objects.filter(pk=task.pk).update(report=report.model_dump(mode="json"))
    page = check(owner)
    assert "a trivial answer would pass. Mask the last block." in page
    assert "tolerance 0.01" in page
    assert "a trivial answer" not in check(other)
    Task.objects.filter(pk=task.pk).update(report=played_runs.REPORT.model_dump(mode="json"))
    assert "run before, without a warning" in check(owner)


def test_a_run_is_a_control_arm_or_goes_without_a_part(owner: User) -> None:
    control = {"method": "sampling", "without": ["diagnosis", "library"]}
    as_user(owner).post("/tasks/new", {**GOOD, **control})
    options = Run.objects.get().options
    assert (options["method"], options["use_initialisers"]) == ("sampling", True)
    assert (options["use_diagnosis"], options["use_library"]) == (False, False)
    page = as_user(owner).get(f"/runs/{Run.objects.get().pk}").content.decode()
    assert "sampling, the control arm · without diagnosis · without library" in page


def test_best_of_ten_is_the_published_protocol_and_needs_a_model(
    owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(MODELS)
    monkeypatch.setenv("FOUNDRY_MODELS", str(file))
    client = as_user(owner)
    refused = client.post("/tasks/new", {**GOOD, "method": "best_of_10"})
    assert refused.status_code == 422
    assert "Ten answers are asked of a model" in refused.content.decode()
    assert not Run.objects.exists()

    client.post("/tasks/new", {**GOOD, "method": "best_of_10", "model": "tiny"})
    run = Run.objects.select_related("task").get()
    assert run.spec() == best_of_10(run.spec())
    assert run.options["model"] == "tiny"
    with pytest.raises(services.Refused, match="asked of a model"):
        services.start_run(task=run.task, by=owner, is_best_of_10=True)


def test_a_broken_model_file_is_said_and_does_not_stop_a_submission(
    owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[profiles")
    monkeypatch.setenv("FOUNDRY_MODELS", str(file))

    assert "model file cannot be read" in as_user(owner).get("/tasks/new").content.decode()
    assert as_user(owner).post("/tasks/new", GOOD).status_code == 302


# The run


def test_the_run_page_names_the_best_its_baseline_and_its_fidelity(
    played: Run, owner: User
) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}").content.decode()

    assert "1.83x" in page
    assert "Best over eager" in page
    assert "modelled" in page
    assert "needs a GPU" in page  # torch.compile, which has no modelled time
    assert page.count('class="island ') == 3


def test_the_page_carries_the_points_of_its_curve_and_its_place_in_the_stream(
    played: Run, owner: User
) -> None:
    start = as_user(owner).get(f"/runs/{played.pk}").context["start"]

    assert start["since"] == played.last_seq
    assert [point["i"] for point in start["points"]] == list(range(1, 13))
    assert [point["id"] for point in start["points"] if point["ok"]] == [1, 3, 5, 7, 10, 12]
    assert start["points"][6]["speedup"] == 1.74


def test_every_frame_draws_what_the_page_draws(played: Run, owner: User) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}").content.decode()
    frames = frames_after(played.pk, 0, limit=10_000)

    drawn = {frame["kind"] for frame in frames if frame.get("content")}
    assert {"run.state", "run.best", "run.budget", "island", "migration", "diagnosis"} <= drawn
    assert {"candidate.created", "candidate.done"} <= drawn
    for frame in frames:
        for swapped in re.findall(
            r'<\w+ [^>]*id="([^"]+)"[^>]*hx-swap-oob', frame.get("content", "")
        ):
            assert f'id="{swapped}"' in page, (frame["kind"], swapped)


def test_an_island_without_candidates_is_flagged_once_others_have_some(
    run: Run, owner: User
) -> None:
    played_runs.play(run, count=2)
    islands = (
        as_user(owner).get(f"/runs/{run.pk}").content.decode().split('<section class="island')[1:]
    )

    assert ["empty" in island for island in islands] == [False, False, True]


def test_a_failed_run_says_why_and_leads_back_to_the_task(run: Run, owner: User) -> None:
    samples.claim(run).set_state(RunState.FAILED, "line 3: No module named 'absent'")
    page = as_user(owner).get(f"/runs/{run.pk}").content.decode()

    assert "line 3: No module named &#x27;absent&#x27;" in page
    assert f"/tasks/new?copy={run.task_id}" in page


def test_warnings_about_the_task_are_on_the_page_and_in_the_stream(run: Run, owner: User) -> None:
    store = samples.claim(run)
    warning = played_runs.failing(Verdict.INCORRECT, "values", "the output is constant").findings[0]
    recording.record_report(
        run.pk, store.fence, played_runs.REPORT.model_copy(update={"warnings": (warning,)})
    )
    client = as_user(owner)
    frame = frames_after(run.pk, 0)[-1]

    assert frame["kind"] == "task.report"
    for text in (frame["content"], client.get(f"/runs/{run.pk}").content.decode()):
        assert "the output is constant" in text
    task_page = client.get(f"/tasks/{run.task_id}").content.decode()
    assert "the output is constant" in task_page
    assert "float32 (1024)" in task_page
    assert "N = 130" in task_page


def test_a_queued_run_says_how_many_are_ahead(task: Task, owner: User) -> None:
    samples.run(task, owner)
    second = samples.run(task, owner)

    assert "1 run ahead" in as_user(owner).get(f"/runs/{second.pk}").content.decode()


def test_stop_pause_resume_and_cancel_ask_the_runner(run: Run, owner: User) -> None:
    played_runs.play(run, count=1)
    client = as_user(owner)
    for action, wanted in (
        ("pause", "pausing"),
        ("resume", "running"),
        ("stop", "stopping"),
        ("cancel", "cancelled"),
    ):
        assert client.post(f"/runs/{run.pk}/{action}")["Location"] == f"/runs/{run.pk}"
        run.refresh_from_db()
        assert run.wanted == wanted
    page = client.get(f"/runs/{run.pk}").content.decode()
    assert "cancelling" in page
    assert f'action="/runs/{run.pk}/cancel"' not in page


def test_steering_never_leads_to_another_site(run: Run, owner: User) -> None:
    answer = as_user(owner).post(f"/runs/{run.pk}/pause", {"next": "//evil.example/"})

    assert answer["Location"] == f"/runs/{run.pk}"


def test_a_hint_and_a_kernel_reach_the_run(played: Run, owner: User) -> None:
    client = as_user(owner)
    Run.objects.filter(pk=played.pk).update(options={**played.options, "model": "tiny"})
    client.post(
        f"/runs/{played.pk}/inject", {"hint": "use wider loads", "island": "1", "source": ""}
    )
    bad = client.post(f"/runs/{played.pk}/inject", {"source": "x = 1", "island": "0"}, follow=True)

    assert [s.hint for s in played.steerings.all()] == ["use wider loads"]
    assert "defines no class ModelNew" in bad.content.decode()


def test_a_hint_that_no_model_would_read_is_not_taken(played: Run, owner: User) -> None:
    client = as_user(owner)
    page = client.get(f"/runs/{played.pk}").content.decode()
    address = f"/runs/{played.pk}/inject"
    answer = client.post(address, {"hint": "wider loads", "island": "1"}, follow=True)

    assert "nobody would read a hint" in page
    assert 'name="hint"' not in page
    assert "No model takes part in this run" in answer.content.decode()
    assert not played.steerings.exists()


def test_a_run_without_an_evaluation_says_so_in_place_of_a_curve(run: Run, owner: User) -> None:
    reason = "the reference cannot run: RuntimeError: no kernel"
    samples.claim(run).set_state(RunState.FAILED, reason)
    page = as_user(owner).get(f"/runs/{run.pk}").content.decode()

    curve = page.split('id="curve"')[1].split("</figure>")[0]
    assert f"The run failed: {reason}" in curve
    assert f'action="/tasks/{run.task_id}/runs"' in curve
    assert f'href="/tasks/new?copy={run.task_id}"' in curve


# The log and the usage


def test_the_log_tells_what_happened_and_goes_on_where_it_was(played: Run, owner: User) -> None:
    client = as_user(owner)
    of_six = client.get(f"/runs/{played.pk}/log", {"candidate": "6"})
    assert [line.kind for line in of_six.context["lines"]] == [
        "diagnosis",
        "candidate.done",
        *["candidate.stage"] * 3,
        "candidate.created",
    ]
    assert of_six.context["lines"][1].text == (
        "cheating (torch_computes): torch.mul computes the output"
    )
    since = {"since": str(played.last_seq - 4), "kind": "candidates"}
    more = client.get(f"/runs/{played.pk}/log/lines", since)
    assert [line.kind for line in more.context["lines"]] == ["candidate.done"]
    assert f"since={played.last_seq}" in more.content.decode()
    nothing = client.get(f"/runs/{played.pk}/log/lines", {"since": str(played.last_seq)})
    assert nothing.status_code == 204

    text = client.get(f"/runs/{played.pk}/log.txt").content.decode()
    assert len(text.splitlines()) == played.events.exclude(kind="run.budget").count()
    assert "candidate.done c-10 correct, 1.83x over eager" in text


def test_usage_names_makers_models_and_what_is_unknown(played: Run, owner: User) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}/usage")

    makers = {maker["origin"]: maker for maker in page.context["makers"]}
    assert (makers["rewrite:block"]["total"], makers["rewrite:block"]["correct"]) == (11, 5)
    call = page.context["calls"][0]
    assert (call["model"], call["tokens_read"], call["tokens_written"]) == ("tiny", 2100, None)
    assert page.content.decode().count("unknown</td>") == 2


def test_a_candidate_in_progress_is_followed_by_its_page_until_it_is_over(
    run: Run, owner: User
) -> None:
    store = samples.claim(run)
    candidate = store.add(samples.proposal())
    client = as_user(owner)
    assert 'hx-trigger="every 2s"' in client.get(f"/runs/{run.pk}/c/1").content.decode()
    store.finish(candidate.id, samples.correct())
    assert "hx-trigger" not in client.get(f"/runs/{run.pk}/c/1").content.decode()


def test_the_file_names_itself_in_the_command_that_checks_it(played: Run, owner: User) -> None:
    answer = as_user(owner).get(f"/runs/{played.pk}/best.py")

    name = f"run-{played.pk}-c-10.py"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    assert f"evaluate task.py {name} --track" in answer.content.decode()


def test_the_list_filters_and_finds(played: Run, owner: User) -> None:
    client = as_user(owner)

    assert "double" in client.get("/runs", {"q": "DOUB", "state": "active"}).content.decode()
    assert "No run matches" in client.get("/runs", {"q": "softmax"}).content.decode()
    assert "No run matches" in client.get("/runs", {"state": "failed"}).content.decode()


def test_an_empty_list_says_what_to_do(owner: User) -> None:
    assert "No runs yet" in as_user(owner).get("/runs").content.decode()


def test_candidates_are_filtered_sorted_and_counted(played: Run, owner: User) -> None:
    client = as_user(owner)
    address = f"/runs/{played.pk}/candidates"

    def numbers(**query: str) -> list[int]:
        return [c.number for c in client.get(address, query).context["page"].object_list]

    assert numbers(sort="fastest") == [10, 12, 7, 3, 5, 1]
    assert numbers(verdict="cheating") == [6]
    assert numbers(island="2", sort="oldest") == [3, 6, 9, 12]
    assert numbers(sort="nonsense", verdict="nonsense") == list(range(12, 0, -1))


# The candidate


def test_a_finding_stands_at_its_line(played: Run, owner: User) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}/c/2/code").content.decode()

    line, after = page.split('<tr id="L11"')[1].split("</tr>")[:2]
    assert 'class="marked of-gate"' in line
    assert "tail tile differ" in after


def test_the_diff_marks_the_words_that_changed(played: Run, owner: User) -> None:
    for view in ("unified", "split"):
        page = as_user(owner).get(f"/runs/{played.pk}/c/3/diff", {"view": view}).content.decode()
        assert re.search(r"<del>(<[^>]+>)?128", page)
        assert re.search(r"<ins>(<[^>]+>)?512", page)
    assert page.count("change-start") >= 1


def test_the_diff_is_against_parent_reference_or_best(played: Run, owner: User) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}/c/3/diff")

    assert page.context["choices"] == [
        ("c-1", "parent c-1"),
        ("reference", "the reference"),
        ("c-10", "best c-10"),
    ]


def test_the_download_says_what_is_known_and_keeps_the_source(played: Run, owner: User) -> None:
    answer = as_user(owner).get(f"/runs/{played.pk}/best.py")
    text = answer.content.decode()

    assert "attachment" in answer["Content-Disposition"]
    assert text.endswith(Candidate.objects.get(run=played, number=10).source.text)
    header = text.split("import torch")[0].lower()
    for words in ("correct", "probe", "cpu", "modelled", "1.83"):
        assert words in header
    compile(text, "best.py", "exec")


def test_there_is_no_best_file_before_there_is_a_best(run: Run, owner: User) -> None:
    assert as_user(owner).get(f"/runs/{run.pk}/best.py").status_code == 404


def test_an_expert_judges_a_finding_and_others_do_not(
    played: Run, owner: User, expert: User
) -> None:
    services.share_task(task=played.task, by=owner, visibility="shared")
    finding = Finding.objects.get(evaluation__candidate__number=2)
    address = f"/runs/{played.pk}/c/2/findings/{finding.pk}"

    assert as_user(owner).post(address, {"right": "yes"}).status_code == 403
    assert as_user(expert).post(address, {"right": "no"}).status_code == 302
    finding.refresh_from_db()
    assert (finding.is_right, finding.judged_by) == (False, expert)
    assert as_user(expert).post(f"/runs/{played.pk}/c/1/findings/{finding.pk}").status_code == 404


def test_prompts_and_unknown_costs_are_shown_as_what_they_are(played: Run, owner: User) -> None:
    page = as_user(owner).get(f"/runs/{played.pk}/c/3/model").content.decode()

    assert "2,100 + unknown tokens" in page
    assert "cost unknown" in page


# The library


def lesson_form(**change: str) -> dict[str, str]:
    return {
        "kind": "technique",
        "title": "Wider blocks",
        "action": "use 512",
        "operators": "mul, add",
        **change,
    }


def test_a_nomination_takes_its_pair_as_evidence(played: Run, owner: User) -> None:
    answer = as_user(owner).post(f"/runs/{played.pk}/c/3/nominate", lesson_form())

    entry = ExperienceEntry.objects.get()
    pair = entry.evidence.get()
    assert answer["Location"] == f"/library/{entry.pk}"
    assert (pair.before.number, pair.after.number) == (1, 3)
    assert pair.ratio == pytest.approx(1.31 / 1.04)
    assert entry.content.when.operators == ("mul", "add")
    assert entry.content.effects[0].fidelity == "modelled"
    assert entry.content.provenance.candidate_id == 3


def test_an_expert_approves_and_goes_on_to_the_next(
    played: Run, entry: ExperienceEntry, owner: User, expert: User
) -> None:
    services.share_task(task=played.task, by=owner, visibility="shared")
    second = services.nominate_entry(
        candidate=Candidate.objects.get(run=played, number=7), by=owner, content=samples.LESSON
    )
    answer = as_user(expert).post(f"/library/{entry.pk}/approve", {"version": "1"})

    entry.refresh_from_db()
    assert entry.state == "approved"
    assert answer["Location"] == f"/library/{second.pk}"


@pytest.mark.parametrize("decision", ["approve", "reject", "retire", "request_changes", "restore"])
def test_who_nominated_decides_nothing(entry: ExperienceEntry, owner: User, decision: str) -> None:
    answer = as_user(owner).post(f"/library/{entry.pk}/{decision}", {"version": "1", "reason": "x"})

    assert answer.status_code == 403
    entry.refresh_from_db()
    assert entry.state == "nominated"


def test_a_decision_on_an_older_version_is_refused_and_explained(
    played: Run, entry: ExperienceEntry, owner: User, expert: User
) -> None:
    services.share_task(task=played.task, by=owner, visibility="shared")
    services.edit_entry(entry=entry, by=owner, version=1, content=samples.LESSON)
    answer = as_user(expert).post(f"/library/{entry.pk}/approve", {"version": "1"}, follow=True)

    assert "at version 2, not 1" in answer.content.decode()
    entry.refresh_from_db()
    assert entry.state == "nominated"


def test_a_rejection_needs_a_reason(
    played: Run, entry: ExperienceEntry, owner: User, expert: User
) -> None:
    services.share_task(task=played.task, by=owner, visibility="shared")
    client = as_user(expert)
    page = client.post(f"/library/{entry.pk}/reject", {"version": "1"}, follow=True)

    assert "Give a reason" in page.content.decode()
    client.post(f"/library/{entry.pk}/reject", {"version": "1", "reason": "not general"})
    entry.refresh_from_db()
    assert entry.state == "rejected"
    assert "not general" in client.get(f"/library/{entry.pk}").content.decode()


def test_an_edit_is_a_new_version_and_a_late_one_is_a_conflict(
    entry: ExperienceEntry, owner: User
) -> None:
    client = as_user(owner)
    address = f"/library/{entry.pk}/edit"

    assert client.post(address, lesson_form(version="1", note="clearer")).status_code == 302
    assert client.post(address, lesson_form(version="1", title="late")).status_code == 409
    entry.refresh_from_db()
    assert (entry.current.number, entry.current.title) == (2, "Wider blocks")
    assert "clearer" in client.get(f"/library/{entry.pk}").content.decode()


def test_the_library_is_searched_by_words_and_kind(entry: ExperienceEntry, owner: User) -> None:
    client = as_user(owner)

    def found(**query: str) -> int:
        return client.get("/library", {"queue": "all", **query}).context["page"].paginator.count

    assert found() == 1
    assert found(q="MULTIPLY instead") == 1
    assert found(q="softmax") == 0
    assert found(kind="symptom") == 0
    assert found(kind="technique") == 1


# Signing in


def test_a_link_signs_in_once_and_only_by_post(owner: User) -> None:
    token = services.issue_sign_in(user=owner)
    client = Client()

    assert client.get("/welcome").status_code == 200
    assert client.get("/runs").status_code == 302
    assert client.post("/welcome", {"token": token})["Location"] == "/runs"
    assert client.get("/runs").status_code == 200
    again = Client().post("/welcome", {"token": token})
    assert again.status_code == 422
    assert "used already or is too old" in again.content.decode()


def test_an_expired_token_signs_nobody_in(owner: User) -> None:
    token = services.issue_sign_in(user=owner)
    SignInToken.objects.update(expires_at=timezone.now())

    assert Client().post("/welcome", {"token": token}).status_code == 422


def test_a_wrong_password_names_neither_part() -> None:
    User.objects.create_user("pia", password="correct horse battery")
    page = Client().post("/login", {"username": "pia", "password": "wrong"})

    assert "Name and password do not match" in page.content.decode()
    assert (
        Client()
        .post("/login", {"username": "pia", "password": "correct horse battery"})
        .status_code
        == 302
    )


def test_changes_need_the_forms_secret(run: Run, owner: User) -> None:
    client = as_user(owner, enforce_csrf_checks=True)
    answer = client.post(f"/runs/{run.pk}/stop")

    assert answer.status_code == 403
    assert "Nothing was changed" in answer.content.decode()


def test_the_theme_is_kept_with_the_account_and_the_browser(owner: User) -> None:
    client = as_user(owner)
    client.post("/theme", {"theme": "dark"})

    owner.refresh_from_db()
    assert owner.theme == "dark"
    assert 'data-theme="dark"' in client.get("/runs").content.decode()
    assert 'data-theme="dark"' in as_user(owner).get("/runs").content.decode()
    client.post("/theme", {"theme": "pink"})
    owner.refresh_from_db()
    assert owner.theme == "dark"


def test_a_token_for_programs_is_shown_once(owner: User) -> None:
    client = as_user(owner)
    first = client.post("/account/tokens", {"name": "laptop"}, follow=True)

    token = first.context["new_token"]
    assert token in first.content.decode()
    assert token not in client.get("/account").content.decode()
    client.post(f"/account/tokens/{owner.api_tokens.get().pk}/revoke")
    assert "laptop" not in client.get("/account").content.decode()


# Banners


def test_pages_say_when_no_runner_is_alive(owner: User) -> None:
    client = as_user(owner)
    assert "No runner is alive" in client.get("/runs").content.decode()

    samples.runner()
    assert "No runner is alive" not in client.get("/runs").content.decode()
    Runner.objects.update(heartbeat_at=timezone.now() - timezone.timedelta(minutes=1))
    assert "No runner is alive" in client.get("/banners").content.decode()


def test_pages_say_when_the_sandbox_is_off_and_why_a_runner_cannot_work(owner: User) -> None:
    samples.runner()
    Runner.objects.update(sandbox="none", problem="bubblewrap is not installed")
    page = as_user(owner).get("/runs").content.decode()

    assert "sandbox of runner" in page
    assert "bubblewrap is not installed" in page


# Hygiene


@pytest.fixture
def hostile(owner: User) -> Run:
    """A run in which everything that people, children and models may write is an attack."""
    task = services.submit_task(
        owner=owner,
        name=f"t {played_runs.HOSTILE}"[:120],
        source=samples.TASK + f"# {played_runs.HOSTILE}\n",
    )
    run = samples.run(task, owner, model="tiny")
    store = samples.claim(run)
    store.set_state(RunState.RUNNING, played_runs.HOSTILE)
    store.note(
        "island", {"index": 0, "strategy": played_runs.HOSTILE[:80], "lens": played_runs.HOSTILE}
    )
    text = played_runs.HOSTILE
    for number in range(2):
        candidate = store.add(
            samples.proposal(number, parents=(1,) if number else ()).model_copy(
                update={"source": f"# {text}\nx = '{text}'\n", "move": text, "origin": text[:80]}
            )
        )
    store.requeue(1, text)
    failing = played_runs.failing(Verdict.RUNTIME_ERROR, "exception", text, 1)
    finding = failing.findings[0].model_copy(
        update={
            "evidence": {text: text, "list": [text]},
            "suggestion": text,
            "location": failing.findings[0].location.model_copy(
                update={"kernel": text, "tensor": text, "region": text}
            ),
        }
    )
    store.finish(
        1,
        failing.model_copy(
            update={
                "findings": (finding,),
                "device": text,
                "environment": {text: text},
                "profile": {"kernels": {text: {text: text}}},
            }
        ),
    )
    played_runs.call_model(store, candidate.id)
    played_runs.think(store, text)
    services.inject(run=run, by=owner, hint=text)
    return run


def test_nothing_that_others_write_becomes_markup(hostile: Run, owner: User) -> None:
    client = as_user(owner)
    lesson = samples.LESSON.model_copy(
        update={
            "title": played_runs.HOSTILE,
            "action": played_runs.HOSTILE,
            "before": played_runs.HOSTILE,
            "after": played_runs.HOSTILE + "x",
        }
    )
    entry = services.nominate_entry(
        candidate=Candidate.objects.get(run=hostile, number=1), by=owner, content=lesson
    )
    files = (".py", ".txt")
    pages = [page for page in page_addresses(hostile, entry) if not page.endswith(files)]
    pages = [address.replace("/c/3", f"/c/{number}") for number in (1, 2) for address in pages]
    pages += [
        "/runs",
        "/library?queue=all",
        f"/library/{entry.pk}/edit",
        f"/tasks/new?copy={hostile.task_id}",
    ]
    texts = [client.get(address).content.decode() for address in pages]
    texts += [frame.get("content", "") for frame in frames_after(hostile.pk, 0, limit=1000)]

    for text in texts:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    assert sum("&lt;script&gt;alert" in text for text in texts) > 20


def test_no_page_names_a_foreign_origin_or_needs_inline_code(
    played: Run, entry: ExperienceEntry, owner: User
) -> None:
    client = as_user(owner)
    addresses = [
        "/runs",
        "/tasks/new",
        "/library",
        "/account",
        "/nowhere",
        *page_addresses(played, entry),
    ]
    for address in addresses:
        if address.endswith(".py"):
            continue
        page = client.get(address).content.decode()
        assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:)?//""", page), address
        assert not re.search(r"<[^>]+\s(on\w+|style)=", page), address
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", page), address


def test_every_page_carries_a_strict_policy(owner: User) -> None:
    policy = as_user(owner).get("/runs")["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert re.search(r"script-src 'self'( 'nonce-[^']+')?(;|$)", policy)


@pytest.mark.parametrize("address", ["/runs", "/library?queue=all"])
def test_lists_ask_the_database_a_bounded_number_of_times(
    owner: User, address: str, django_assert_max_num_queries: Any
) -> None:
    """Not one query per row: thirty rows cost no more than three."""
    for number in range(30):
        task = services.submit_task(owner=owner, name=f"t{number}", source=samples.TASK)
        run = samples.run(task, owner)
        store = played_runs.play(run, count=1) if number < 3 else None
        if store is not None:
            candidate = Candidate.objects.get(run=run, number=1)
            for _ in range(5):
                services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
    client = as_user(owner)
    with django_assert_max_num_queries(12):
        assert client.get(address).status_code == 200


def test_the_run_page_and_its_candidates_cost_the_same_however_many_there_are(
    run: Run, owner: User, django_assert_max_num_queries: Any
) -> None:
    played_runs.play(run, count=36)
    client = as_user(owner)
    with django_assert_max_num_queries(40):
        client.get(f"/runs/{run.pk}")
    with django_assert_max_num_queries(14):
        client.get(f"/runs/{run.pk}/candidates")


def test_nobody_is_somebody() -> None:
    assert not Run.objects.visible_to(AnonymousUser()).exists()
