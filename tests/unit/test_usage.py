"""The usage of the language model: added up by day, model and purpose, and told by the status."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

import cli
from adapters.language_models import LanguageModelUnavailable
from memory.pipeline.broker_status import read_broker
from memory.status import StatusReader
from reverie.clock import DAY_MICROS, to_micros
from reverie.pipeline.status import LanguageModelUse
from storage.stores import Stores
from storage.upkeep.jobs import Usage, UsageLog
from support.endpoint import Endpoint, chat_endpoint, say, send
from support.stages import heartbeat
from worker.reports import _language_model_states
from worker.runtime import Runtime

NOON = to_micros(datetime(2026, 5, 1, 12, tzinfo=UTC))
ONE = Usage("m", "extraction", 1, 0, 100, 20, 0.25)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    made.close()


@pytest.fixture
def log(stores: Stores) -> UsageLog:
    return stores.usage()


def test_calls_of_a_day_are_added_up(log: UsageLog) -> None:
    """Given calls of one day, model and purpose, then they are one row."""
    log.add(ONE, now=NOON)
    log.add(Usage("m", "extraction", 2, 1, 10, 5, 0.5), now=NOON + 1)
    assert log.last_days(1, now=NOON) == [Usage("m", "extraction", 3, 1, 110, 25, 0.75)]


def test_models_and_purposes_stand_apart(log: UsageLog) -> None:
    """Given calls of two purposes and of two models, then each has its sums."""
    log.add(ONE, now=NOON)
    log.add(Usage("m", "summary", 1, 0, 1, 1, 0.0), now=NOON)
    log.add(Usage("n", "extraction", 1, 0, 1, 1, 0.0), now=NOON)
    assert [(use.model, use.purpose) for use in log.last_days(1, now=NOON)] == [
        ("m", "extraction"),
        ("m", "summary"),
        ("n", "extraction"),
    ]


def test_days_begin_at_midnight_and_only_the_last_are_told(log: UsageLog) -> None:
    """Given calls of today, of 29 and of 30 days ago, then a month has 30 days, today included."""
    for days_ago in (0, 1, 29, 30):
        log.add(ONE, now=NOON - days_ago * DAY_MICROS)
    midnight = NOON - DAY_MICROS // 2
    log.add(ONE, now=midnight)
    log.add(ONE, now=midnight - 1)
    assert log.last_days(1, now=NOON)[0].calls == 2
    assert log.last_days(30, now=NOON)[0].calls == 5
    assert log.last_days(1, now=NOON + DAY_MICROS) == []


def test_nothing_is_lost_between_processes(log: UsageLog, tmp_path: Path) -> None:
    """Given two processes' handles on the file, when both add at once, then everything is counted."""
    other = Stores(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (log if n % 2 else other.usage()).add(ONE, now=NOON), range(40)))
    other.close()
    (use,) = log.last_days(1, now=NOON)
    assert (use.calls, use.input_tokens, use.cost) == (40, 4_000, 10.0)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A chat endpoint that answers well until told otherwise."""
    with chat_endpoint(say("Lisbon.")) as made:
        yield made


@pytest.fixture
def runtime(endpoint: Endpoint, make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime with a language model that has a price."""
    return make_runtime(
        language_model_base_url=endpoint.url,
        language_model="m",
        language_model_prices="2, 10",
    )


def read(runtime: Runtime) -> StatusReader:
    broker = partial(read_broker, runtime.inbox, runtime.monitor)
    return StatusReader(runtime.stores, broker, runtime.embedder, runtime.language_model)


def test_the_runtimes_model_records_what_it_takes(runtime: Runtime, endpoint: Endpoint) -> None:
    """Given calls through the runtime's model, then the status tells them by purpose, with tokens and cost."""
    model = runtime.language_model
    assert model is not None
    model.complete("", "Where?", 5, purpose="summary")
    endpoint.answer = send(b"bad", 400)
    with pytest.raises(Exception, match="400"):
        model.complete("", "Where?", 5, purpose="refinement")

    found = read(runtime).read(now=runtime.now()).language_model
    assert (found.state, found.model, found.error) == ("up", "m", "")
    assert found.today == LanguageModelUse(calls=2, failures=1, input_tokens=11, output_tokens=3, cost=0.000052)
    assert found.last_30_days == found.today
    assert {name: use.calls for name, use in found.purposes.items()} == {"refinement": 1, "summary": 1}


def test_a_model_is_not_called_once_the_tokens_of_its_day_are_used(
    endpoint: Endpoint, make_runtime: Callable[..., Runtime]
) -> None:
    """Given a budget of one call, then the second is refused without a request, and midnight opens it again.

    The status tells the budget, also after that.
    """
    moment = NOON
    runtime = make_runtime(
        clock=lambda: moment, language_model_base_url=endpoint.url, language_model="m", language_model_daily_tokens=10
    )
    model = runtime.language_model
    assert model is not None
    model.complete("", "Where?", 5, purpose="summary")
    with pytest.raises(LanguageModelUnavailable, match="used its 10 tokens of today"):
        model.complete("", "Where?", 5, purpose="summary")
    assert len(endpoint.requests) == 1
    found = read(runtime).read(now=runtime.now()).language_model
    assert (found.daily_tokens, found.state, found.today.calls) == (10, "up", 1)
    moment += DAY_MICROS // 2
    model.complete("", "Where?", 5, purpose="summary")
    assert len(endpoint.requests) == 2


def test_the_messages_that_were_read_are_counted(runtime: Runtime) -> None:
    """Given calls after which messages are noted as read, then the status has how many, and no call more."""
    model = runtime.language_model
    assert model is not None
    for messages in (3, 4):
        model.complete("", "Where?", 5, purpose="extraction")
        model.note_read(messages, purpose="extraction")
    used = read(runtime).read(now=runtime.now()).language_model.purposes["extraction"]
    assert (used.calls, used.messages) == (2, 7)


def test_a_model_that_is_down_is_told(runtime: Runtime, endpoint: Endpoint) -> None:
    """Given an endpoint that fails, then the status has the state of the breaker and why."""
    endpoint.answer = send(b"down", 503)
    assert runtime.language_model is not None
    assert _language_model_states(runtime) == ""  # another process of the pool may know that it is down
    with pytest.raises(Exception, match="503"):
        runtime.language_model.complete("", "Where?", 5, purpose="summary")
    found = read(runtime).read(now=runtime.now()).language_model
    assert found.state == "down"
    assert "503" in found.error
    assert _language_model_states(runtime).startswith("m: down (")


def test_without_a_model_the_past_is_told(make_runtime: Callable[..., Runtime]) -> None:
    """Given no language model any more, then the status says so, and what it took this month."""
    plain = make_runtime()
    plain.stores.usage().add(ONE, now=plain.now())
    assert (plain.language_model, plain.extraction_model) == (None, None)
    found = read(plain).read(now=plain.now()).language_model
    assert (found.state, found.last_30_days.calls) == ("none", 1)


def test_extraction_may_have_a_model_of_its_own(endpoint: Endpoint, make_runtime: Callable[..., Runtime]) -> None:
    """Given the setting, then extraction asks that model at the same endpoint; without it, the one there is."""
    settings = {"language_model_base_url": endpoint.url, "language_model": "large"}
    same = make_runtime(**settings)
    assert same.extraction_model is same.language_model
    other = make_runtime(**settings, extraction_model="small")
    assert other.extraction_model is not None
    other.extraction_model.complete("", "x", 5, purpose="extraction")
    assert [question["model"] for question in endpoint.requests] == ["small"]
    assert other.stores.usage().last_days(1, now=other.now())[0].model == "small"


def test_the_status_of_the_command_line_tells_the_model(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a call, and then a worker's word of its model, then `reverie status` has both, for people and as JSON."""
    settings = runtime.settings
    arguments = ["--broker", str(settings.broker), "--data", str(settings.data)]
    for name in ("broker_prefix", "language_model_base_url", "language_model"):
        monkeypatch.setenv(f"REVERIE_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.chdir(tmp_path)

    def status(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["reverie", *arguments, "status", *options])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out

    assert runtime.language_model is not None
    runtime.language_model.complete("", "Where?", 5, purpose="summary")
    text = " ".join(status().split())
    assert "Model m, not used yet" in text
    assert "today 1 call, 11 tokens in, 3 out, cost 0.0001; last 30 days 1 call," in text
    assert json.loads(status("--json"))["language_model"]["today"]["calls"] == 1

    now = time.time()
    runtime.monitor.heartbeat(heartbeat("w@h", ["q"], at=now))
    runtime.monitor.record_progress("w@h", now=now, language_model="m: down (503)")
    assert "Model m: down (503)" in " ".join(status().split())
