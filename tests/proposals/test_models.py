"""Models as generators: against a real server that answers well, badly, late, cut off, or not at all."""

import contextlib
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.entries import Entry, EntryContent, EntryKind
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Precision, Stage, Track, Verdict
from gpu_runner.proposals.models import Models, Order, ProfileError, Writer, Written, load_models
from gpu_runner.proposals.models.endpoints import Endpoint
from gpu_runner.proposals.models.parsing import Unusable, parse_answer
from gpu_runner.proposals.models.prices import Allowance, Price, Unlimited, estimated_tokens
from gpu_runner.proposals.models.profiles import Profile
from gpu_runner.proposals.models.prompts import TooLong, messages_for
from gpu_runner.proposals.models.rates import Rates
from tests.evolution.making import candidate, evaluation, source
from tests.proposals.endpoint import cuts_off, drips, says, sends, serve, streams

KEY = "secret-key-that-nobody-may-see"
TASK = TaskSpec(name="softmax", source="REFERENCE = 'the reference with $dollars'")
SPEC = TensorSpec(shape=(8, 16), dtype="float32")
REPORT = TaskReport(inputs=(SPEC,), outputs=(SPEC,), probe=None)

WHOLE = f"MOVE: fuse all of it\n```python\n{source(5)}```\n"
EDIT = """MOVE: other mark
<<<<<<< SEARCH
MARK = 1
=======
MARK = 6
>>>>>>> REPLACE
"""


def order(role: str = "improve", **more: Any) -> Order:
    fields: dict[str, Any] = {
        "role": role,
        "task": TASK,
        "report": REPORT,
        "device": "cpu (cpu)",
        "lens": "fuse",
        "island": 2,
        "temperature": 0.5,
        "parents": (candidate(1, 1.5),),
    }
    return Order(**(fields | more))


class Limited:
    """Funds for answers of so many tokens."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def allow(self, tokens_in: int, max_tokens: int, price: Price) -> Allowance | None:
        return Allowance(tokens_in, min(max_tokens, self._tokens), 0.0) if self._tokens else None


class Asking(Writer):
    """A writer whose requests nobody limits; what is told meanwhile is kept with the answer."""

    def write(self, order: Order, funds: Any = None, on_call: Any = None) -> Written:
        told: list[ModelCall] = []
        written = super().write(order, funds or Unlimited(), told.append)
        return replace(written, calls=(*told, *written.calls))


def writer(url: str, clock: Any = time.monotonic, **more: Any) -> Asking:
    fields: dict[str, Any] = {
        "base_url": url,
        "model": "m",
        "key": "FOUNDRY_MODEL_KEY_TEST",
        "timeout_s": 5,
        "retries": 0,
    }
    return Asking(Endpoint("local", Profile(**(fields | more)), KEY, clock))


def test_a_whole_file_becomes_a_draft() -> None:
    with serve(says(WHOLE)) as endpoint:
        written = writer(endpoint.url, usd_per_million_in=10, usd_per_million_out=100).write(
            order()
        )
    assert written.draft is not None
    assert written.draft.source == source(5)
    assert (written.draft.origin, written.draft.move) == ("model:local", "fuse all of it")
    (call,) = written.calls
    assert (call.outcome, call.role, call.island) == ("ok", "improve", 2)
    assert (call.tokens_in, call.tokens_out, call.money_usd) == (100, 20, 0.003)
    assert call.reply == WHOLE
    assert "the reference with $dollars" in call.prompt
    (request,) = endpoint.requests
    assert (request["path"], request["model"]) == ("/v1/chat/completions", "m")
    assert request["temperature"] == 0.5


def test_edits_change_the_parent() -> None:
    with serve(says(EDIT)) as endpoint:
        written = writer(endpoint.url).write(order())
    assert written.draft is not None
    assert written.draft.source == source(6)


def test_a_malformed_answer_gets_one_chance_with_the_reason() -> None:
    with serve(says("I would fuse it."), says(EDIT)) as endpoint:
        written = writer(endpoint.url).write(order())
    assert written.draft is not None
    assert [call.outcome for call in written.calls] == ["malformed", "ok"]
    last = endpoint.requests[1]["messages"]
    assert last[-2] == {"role": "assistant", "content": "I would fuse it."}
    assert "expected exactly one fenced block" in last[-1]["content"]


def test_two_malformed_answers_are_none() -> None:
    with serve(says("no"), says("still no")) as endpoint:
        model = writer(endpoint.url)
        written = model.write(order())
    assert (written.draft, len(endpoint.requests)) == (None, 2)
    assert written.trouble.startswith("model local, malformed: expected exactly one")
    assert model.is_usable


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        (says("half of a fi", "length"), "truncated", "cut off at 16,384 tokens"),
        (says("", "stop"), "empty", "no text"),
        (says(None), "empty", "no text"),
        (says(None, refusal="I cannot do that"), "refused", "I cannot do that"),
        (says("x", "content_filter"), "refused", "filtered"),
        (sends(b"<html>"), "malformed", "no chat completion"),
        (sends(b'{"choices": []}'), "malformed", "no choice"),
        (sends(b'{"choices": 7}'), "malformed", "no choice"),
        (sends(b"[]"), "malformed", "no choice"),
        (sends(b'{"error": "no"}', 401), "refused", "answered 401"),
        (sends(b'{"error": "no"}', 404), "refused", "answered 404"),
        (sends(b'{"error": "busy"}', 503), "unreachable", "answered 503"),
        (sends(b'{"error": "busy"}', 429), "unreachable", "answered 429"),
        (cuts_off(b'{"choices": ['), "unreachable", ""),
        (sends(b" " * 3000), "unreachable", "larger than 2,000 bytes"),
        (sends(b"x" * 3000, 500), "unreachable", "larger than 2,000 bytes"),
        (sends(b"xx", Content_Encoding="gzip"), "unreachable", "compressed"),
    ],
)
def test_each_way_to_fail_has_its_name(script: Any, outcome: str, words: str) -> None:
    with serve(script) as endpoint:
        written = writer(endpoint.url, max_reply_bytes=2000).write(order())
    assert written.draft is None
    assert [call.outcome for call in written.calls] == [outcome]
    assert words in written.trouble


def test_redirects_are_not_followed() -> None:
    with serve(says(WHOLE)) as target, serve(sends(b"", 307, Location=target.url)) as endpoint:
        written = writer(endpoint.url).write(order())
    assert target.requests == []
    assert written.calls[0].outcome == "unreachable"
    assert "redirect" in written.trouble


def test_a_late_reply_is_given_up_even_if_it_drips() -> None:
    started = time.monotonic()
    with serve(drips(0.05, 200)) as endpoint:
        written = writer(endpoint.url, timeout_s=0.4).write(order())
    assert time.monotonic() - started < 3
    assert written.calls[0].outcome == "unreachable"


def test_an_endpoint_that_is_down_is_asked_ever_less_often_until_patience_ends() -> None:
    now = [0.0]
    with serve(says("x")) as endpoint:
        url = endpoint.url
    model = writer(url, lambda: now[0], outage_s=3600)
    asked = []
    while not model.trouble:
        if model.is_usable:
            asked.append(now[0])
            assert [call.outcome for call in model.write(order()).calls] == ["unreachable"]
            assert model.is_away or model.trouble
            assert model.write(order()).is_put_off
        now[0] += 1
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[:7] == [5, 10, 20, 40, 80, 160, 300]
    assert max(pauses) == 300
    assert model.trouble == "model local did not answer for 3,600 s"


def test_one_request_sees_whether_an_endpoint_is_back_and_then_all_go_on() -> None:
    now = [0.0]
    with serve(sends(b"{}", 503), says(WHOLE)) as endpoint:
        model = writer(endpoint.url, lambda: now[0])
        model.write(order())
        now[0] = 4.9
        assert not model.is_usable
        now[0] = 5.0
        assert model.write(order()).draft is not None
        assert model.is_usable
        assert not model.is_away


def test_three_refusals_in_a_row_end_the_models_part() -> None:
    with serve(sends(b'{"error": "wrong key"}', 401)) as endpoint:
        model = writer(endpoint.url)
        for _ in range(3):
            assert model.is_usable
            model.write(order())
    assert (model.is_usable, model.is_away) == (False, False)
    assert model.trouble == "model local refused 3 requests in a row"


def test_an_answer_that_is_streamed_is_put_together() -> None:
    with serve(streams(WHOLE)) as endpoint:
        written = writer(endpoint.url, stream=True).write(order())
    assert written.draft is not None
    assert written.draft.source == source(5)
    (call,) = written.calls
    assert (call.outcome, call.tokens_in, call.tokens_out, call.reply) == ("ok", 100, 20, WHOLE)
    assert endpoint.requests[0]["stream"] is True


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (streams(WHOLE, finish="length"), "truncated"),
        (streams(WHOLE, finish=None), "truncated"),
        (streams("", finish="stop"), "empty"),
        (streams(WHOLE, end=b'data: {"error": {"message": "overloaded"}}\n\n'), "unreachable"),
        (streams(WHOLE, end=b"data: {\n\n"), "malformed"),
        (cuts_off(b'data: {"choices": []}\n\n'), "unreachable"),
    ],
)
def test_streams_that_break_off_have_their_names(script: Any, outcome: str) -> None:
    with serve(script) as endpoint:
        written = writer(endpoint.url, stream=True).write(order())
    assert written.draft is None
    assert [call.outcome for call in written.calls] == [outcome]


def test_a_profile_says_how_hard_to_think_and_what_it_may_cost() -> None:
    funds = Limited(5_000)
    with serve(says(WHOLE)) as endpoint:
        model = writer(endpoint.url, reasoning_effort="low", max_tokens=8_000)
        written = model.write(order(), funds)
    (request,) = endpoint.requests
    assert request["reasoning_effort"] == "low"
    assert request["max_tokens"] == 5_000
    assert [allowance.max_tokens for allowance in written.allowances] == [5_000]


def test_without_funds_nothing_is_asked() -> None:
    with serve(says(WHOLE)) as endpoint:
        written = writer(endpoint.url).write(order(), Limited(0))
    assert (written.is_put_off, written.calls, endpoint.requests) == (True, (), [])


def test_rate_limits_are_kept_across_runs() -> None:
    now = [0.0]
    rates = Rates(2, 3, 1_000, lambda: now[0])
    assert rates.enter(100, 0)
    assert rates.enter(100, 0)
    assert not rates.enter(100, 0), "two at once"
    rates.leave()
    rates.leave()
    assert not rates.enter(900, 0), "tokens per minute"
    assert rates.enter(100, 0)
    rates.leave()
    assert not rates.enter(1, 0), "requests per minute"
    now[0] = 60.0
    assert rates.enter(900, 0)


def test_a_prompt_within_a_context_loses_whole_parts_and_never_half_a_kernel() -> None:
    examples = tuple(
        candidate(n, 2.0, evaluation=None).model_copy(update={"source": source(n) * 40})
        for n in (8, 9)
    )
    asked = order(examples=examples, failed=("a -> b", "c -> d"), hints=("use tensor cores",))
    whole = messages_for(asked)
    room = estimated_tokens(whole) - 1
    shorter = messages_for(asked, max_tokens=room)
    assert examples[0].source.rstrip() in shorter[1]["content"]
    assert "MARK = 9" not in shorter[1]["content"]
    assert "use tensor cores" in shorter[1]["content"]
    with pytest.raises(TooLong, match="its context has room for 100"):
        messages_for(asked, max_tokens=100)


def test_models_trained_to_translate_get_the_bare_reference() -> None:
    profile = {"initialiser_form": "reference"}
    with serve(says(WHOLE)) as endpoint:
        writer(endpoint.url, **profile).write(order("seed", parents=()))
        writer(endpoint.url, **profile).write(order())
    first, second = (request["messages"] for request in endpoint.requests)
    assert [message["role"] for message in first] == ["user"]
    assert TASK.source in first[0]["content"]
    assert [message["role"] for message in second] == ["system", "user"]


def test_the_sdk_repeats_what_failed_for_a_moment() -> None:
    busy = sends(b"{}", 503, Retry_After="0.01")
    with serve(busy, says(WHOLE)) as endpoint:
        written = writer(endpoint.url, retries=1).write(order())
    assert len(endpoint.requests) == 2
    assert written.draft is not None


def test_keys_are_sent_and_never_recorded() -> None:
    echo = sends(f'{{"error": {{"message": "wrong key {KEY}"}}}}'.encode(), 401)
    with serve(echo) as endpoint:
        written = writer(endpoint.url).write(order())
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "wrong key [key]" in written.trouble
    assert KEY not in written.calls[0].model_dump_json() + written.trouble


def finding(**more: Any) -> Finding:
    fields: dict[str, Any] = {
        "stage": Stage.CORRECTNESS,
        "kind": "values",
        "severity": Severity.GATE,
        "source": Source.JUDGE,
        "title": "the tail tile is wrong",
        "evidence": {"rms": 0.25},
        "location": Location(line=12),
        "suggestion": "mask the last tile",
    }
    return Finding(**(fields | more))


def prompt(asked: Order) -> str:
    return "\n".join(message["content"] for message in messages_for(asked))


def test_a_prompt_tells_what_is_known() -> None:
    failing = candidate(
        4,
        evaluation=evaluation(verdict=Verdict.INCORRECT, kind="values", findings=(finding(),)),
    )
    entry = Entry(
        id="E7",
        content=EntryContent(
            kind=EntryKind.TECHNIQUE,
            title="mask tails",
            action="mask loads",
            preconditions="n is ragged",
            after="tl.load(p, mask=m)",
        ),
    )
    text = prompt(
        order(
            "repair",
            parents=(failing,),
            examples=(candidate(9, 2.5),),
            entries=(entry,),
            hints=("use tensor cores",),
            failed=("bigger blocks -> correct, no faster (1.00)",),
        )
    )
    for fact in (
        "The track is own_kernels",
        "input_precision='ieee' for matrix products",
        "float32[8, 16]",
        "Verdict: incorrect/values.",
        "correctness/values (line 12): the tail tile is wrong. Suggestion: mask the last tile [rms=0.25]",
        "[E7] mask tails: mask loads Only if: n is ragged",
        "2.500 times as fast as eager (modelled)",
        "- bigger blocks -> correct, no faster (1.00)",
        "People ask for:\n- use tensor cores",
        "MARK = 9",
        "Target of the speed: h200",
    ):
        assert fact in text


def test_without_diagnosis_no_finding_is_shown() -> None:
    failing = candidate(
        4,
        evaluation=evaluation(verdict=Verdict.INCORRECT, kind="values", findings=(finding(),)),
    )
    text = prompt(order("repair", parents=(failing,), show_findings=False))
    assert "tail tile" not in text
    assert "Verdict: incorrect/values." in text


@pytest.mark.parametrize(
    ("track", "precision", "words"),
    [
        (Track.LIBRARY_ALLOWED, Precision.TF32, ["library_allowed", "may use TF32"]),
        (Track.OWN_KERNELS, Precision.IEEE, ["own_kernels", "IEEE float32"]),
    ],
)
def test_a_prompt_states_the_rules_of_the_track(track, precision, words) -> None:
    task = TASK.model_copy(update={"track": track, "precision": precision})
    text = prompt(order(task=task))
    assert all(word in text for word in words)


@pytest.mark.parametrize("role", ["improve", "repair", "crossover", "simplify", "seed"])
def test_each_role_has_its_job(role: str) -> None:
    parents = () if role == "seed" else (candidate(1, 1.5), candidate(2, 1.2))
    assert ("The current file" in prompt(order(role, parents=parents))) == bool(parents)


@pytest.mark.parametrize(
    ("text", "parent", "reason"),
    [
        ("", source(1), "exactly one fenced block"),
        (WHOLE + WHOLE, source(1), "found 2"),
        ("```python\nx = 1\n```", source(1), "no class ModelNew"),
        ("```python\ndef f(\n```", source(1), "not usable"),
        (f"```python\n{source(1)}# same\n```", source(1), "changes nothing"),
        (EDIT.replace("MARK = 1", "MARK = 7"), source(1), "occurs 0 times"),
        (EDIT.replace("MARK = 1", "# twice"), source(1) + "# twice\n# twice\n", "occurs 2 times"),
        (EDIT.replace("MARK = 1\n", "\n"), source(1), "searches for nothing"),
        (EDIT.replace("=======", "====="), source(1), "incomplete"),
        (EDIT, None, "no current file"),
    ],
)
def test_an_answer_in_the_wrong_form_is_refused_with_the_reason(text, parent, reason) -> None:
    with pytest.raises(Unusable, match=reason):
        parse_answer(text, parent)


def test_answers_with_windows_line_ends_are_read() -> None:
    assert parse_answer(EDIT.replace("\n", "\r\n"), source(1)).source == source(6)


def profiles_file(folder: Path, text: str) -> dict[str, str]:
    path = folder / "models.toml"
    path.write_text(text)
    return {"FOUNDRY_MODELS": str(path), "FOUNDRY_MODEL_KEY_A": KEY}


def test_profiles_come_from_the_operators_file(tmp_path: Path) -> None:
    environment = profiles_file(
        tmp_path,
        '[profiles.a]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\nkey = "FOUNDRY_MODEL_KEY_A"\n',
    )
    models = load_models(environment)
    assert models.names == ("a",)
    assert models.writer("a").name == "a"
    with pytest.raises(ProfileError, match="unknown model 'b'; the operator's file has: a"):
        models.writer("b")
    without_key = {"FOUNDRY_MODELS": environment["FOUNDRY_MODELS"]}
    with pytest.raises(ProfileError, match="FOUNDRY_MODEL_KEY_A"):
        load_models(without_key).writer("a")


def test_no_file_is_no_models() -> None:
    assert load_models({}).names == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not toml", "no TOML"),
        ('[profiles.a]\nmodel = "m"\n', "profiles.a.base_url"),
        ('[profiles.a]\nbase_url = "file:///etc"\nmodel = "m"\n', "base_url"),
        ('[profiles.a]\nbase_url = "http://h/v1"\nmodel = "m"\nkey = "PATH"\n', "key"),
        ('[profiles.a]\nbase_url = "http://h/v1"\nmodel = "m"\napi_key = "x"\n', "api_key"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason) as caught:
        load_models(profiles_file(tmp_path, text))
    assert KEY not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        load_models({"FOUNDRY_MODELS": str(tmp_path / "none.toml")})
    assert isinstance(load_models({}), Models)


@pytest.mark.parametrize(
    "text",
    [
        "```python\n" * 60_000,
        "<<<<<<< SEARCH\n" * 60_000,
        "<<<<<<< SEARCH\na\n=======\n" * 40_000,
        "\n" * 200_000 + "```python\nclass ModelNew: ...\n```",
    ],
    ids=["fences", "searches", "halves", "newlines"],
)
def test_what_reads_an_answer_goes_through_it_once(text: str) -> None:
    """Reading holds the interpreter's lock: while it takes long, no run of the process goes on and no heart beats."""
    began = time.thread_time()
    with contextlib.suppress(Unusable):
        parse_answer(text, "class ModelNew:\n    pass\n")
    assert time.thread_time() - began < 3.0
