"""The guard of the language model: its breaker, and what it counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from adapters.calls import ModelSpec
from adapters.language_models import (
    Completion,
    GuardedLanguageModel,
    LanguageModelRefused,
    LanguageModelUnavailable,
    ModelUsage,
    OpenAICompatibleLanguageModel,
    Prices,
)
from reverie.errors import StoreUnavailable
from support.endpoint import Endpoint, chat_endpoint, say, send
from support.scripted import ScriptedLanguageModel


class Place(msgspec.Struct):
    """A form to ask for."""

    city: str


class Clock:
    """Monotonic seconds that stand still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Ledger:
    """Records what it is told, or cannot."""

    def __init__(self) -> None:
        self.recorded: list[ModelUsage] = []
        self.broken = False

    def __call__(self, used: ModelUsage) -> None:
        if self.broken:
            raise StoreUnavailable("the disk is full")
        self.recorded.append(used)


class Counting(ScriptedLanguageModel):
    """Says what the endpoint would say of the tokens."""

    name = "counting"

    def __init__(self, text: str, input_tokens: int | None, output_tokens: int | None) -> None:
        super().__init__([text])
        self.tokens = input_tokens, output_tokens

    def complete(self, *args: Any, **more: Any) -> Completion:
        found = super().complete(*args, **more)
        return Completion(found.text, *self.tokens)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that answers well until told otherwise."""
    with chat_endpoint(say("Lisbon.")) as made:
        yield made


@pytest.fixture
def remote(endpoint: Endpoint, clock: Clock, ledger: Ledger) -> Iterator[GuardedLanguageModel]:
    """The real model behind the guard."""
    inner = OpenAICompatibleLanguageModel(ModelSpec(endpoint.url, "m", timeout_seconds=30))
    made = GuardedLanguageModel(inner, prices=Prices(2.0, 10.0), record=ledger, clock=clock)
    yield made
    made.close()


def fail(model: GuardedLanguageModel) -> LanguageModelUnavailable:
    with pytest.raises(LanguageModelUnavailable) as caught:
        model.complete("", "x", 5, purpose="summary")
    return caught.value


def test_an_open_breaker_sends_nothing(endpoint: Endpoint, remote: GuardedLanguageModel, clock: Clock) -> None:
    """Given an endpoint that is down, then it is asked once, and again when the wait is over."""
    endpoint.answer = send(b"down", 503)
    fail(remote)
    again = fail(remote)
    assert len(endpoint.requests) == 1
    assert (remote.state, remote.retry_at) == ("down", clock.now + 1)
    assert "503" in remote.last_error
    assert str(again).startswith("m is not called for another 1.0 s after:")
    assert again.retry_after_seconds == 1

    endpoint.answer = say("Lisbon.")
    clock.now += 1
    assert remote.complete("", "x", 5, purpose="summary").text == "Lisbon."
    assert (remote.state, remote.last_error, remote.retry_at) == ("up", "", None)


@pytest.mark.parametrize(("asked", "waited"), [("7", 7), ("0", 1), ("86400", 600)])
def test_the_wait_that_was_asked_for_is_kept(
    endpoint: Endpoint, remote: GuardedLanguageModel, clock: Clock, asked: str, waited: float
) -> None:
    """Given a 429 with Retry-After, then nothing is sent for so long, ten minutes at the most."""
    endpoint.answer = send(b"slow down", 429, Retry_After=asked)
    fail(remote)
    assert remote.retry_at == clock.now + waited
    clock.now += waited - 0.01
    fail(remote)
    assert len(endpoint.requests) == 1


def test_a_structured_question_meets_the_same_breaker(endpoint: Endpoint, remote: GuardedLanguageModel) -> None:
    """Given a plain call that found the endpoint down, then a structured one fails at once."""
    endpoint.answer = send(b"down", 503)
    fail(remote)
    with pytest.raises(LanguageModelUnavailable, match="not called for another"):
        remote.complete_structured("", "x", 5, form=Place, purpose="extraction")
    assert len(endpoint.requests) == 1


def test_a_refusal_says_nothing_of_the_endpoint(remote: GuardedLanguageModel, endpoint: Endpoint) -> None:
    """Given an unusable answer, then the endpoint counts as up and the next call goes through."""
    with pytest.raises(LanguageModelRefused):
        remote.complete_structured("", "x", 5, form=Place, purpose="extraction")
    assert remote.state == "up"
    endpoint.answer = say('{"city": "Lisbon"}')
    assert remote.complete_structured("", "x", 5, form=Place, purpose="extraction").value.city == "Lisbon"


def test_only_one_call_probes(clock: Clock) -> None:
    """Given an open breaker whose wait is over and a call on its way, then another call fails at once."""
    entered, go_on = threading.Event(), threading.Event()

    class Slow(ScriptedLanguageModel):
        def complete(self, *args: Any, **more: Any) -> Completion:
            if self.prompts:
                entered.set()
                assert go_on.wait(60)
            return super().complete(*args, **more)

    model = GuardedLanguageModel(Slow([LanguageModelUnavailable("down"), "Lisbon."]), clock=clock)
    fail(model)
    clock.now += 1
    probe = threading.Thread(target=lambda: model.complete("", "x", 5, purpose="summary"))
    probe.start()
    assert entered.wait(60)
    fail(model)
    go_on.set()
    probe.join()
    assert model.state == "up"


def test_calls_are_counted_by_purpose_with_tokens_and_cost(remote: GuardedLanguageModel, ledger: Ledger) -> None:
    """Given prices of a million tokens, then each call is recorded with what the endpoint says it took."""
    remote.complete("", "Where?", 5, purpose="summary")
    (used,) = ledger.recorded
    assert used == ModelUsage("m", "summary", 1, 0, 11, 3, (11 * 2.0 + 3 * 10.0) / 1_000_000)


def test_what_the_endpoint_does_not_count_is_estimated(ledger: Ledger) -> None:
    """Given an endpoint without counts, then tokens are taken to be four bytes each."""
    model = GuardedLanguageModel(Counting("Lisbon.", None, None), record=ledger)
    model.complete("12345678", "abcd", 5, purpose="refinement")
    assert (ledger.recorded[0].input_tokens, ledger.recorded[0].output_tokens) == (3, 2)


def test_an_unusable_answer_is_a_failure_that_took_tokens(ledger: Ledger) -> None:
    """Given an answer of another form, then the call failed, and its tokens are counted all the same."""
    model = GuardedLanguageModel(Counting("prose", 40, 5), prices=Prices(1.0, 1.0), record=ledger)
    with pytest.raises(LanguageModelRefused):
        model.complete_structured("", "x", 5, form=Place, purpose="extraction")
    assert ledger.recorded == [ModelUsage("counting", "extraction", 1, 1, 40, 5, 45 / 1_000_000)]
    assert (model.state, "did not answer with a Place" in model.last_error) == ("up", True)
    model.complete("", "x", 5, purpose="extraction")
    assert model.last_error == ""


def test_a_call_without_an_answer_is_a_failure_without_tokens(
    endpoint: Endpoint, remote: GuardedLanguageModel, ledger: Ledger
) -> None:
    """Given an endpoint that is down, then the call is counted once, and not what the breaker kept back."""
    endpoint.answer = send(b"down", 500)
    fail(remote)
    fail(remote)
    assert ledger.recorded == [ModelUsage("m", "summary", 1, 1)]


@pytest.mark.parametrize(("prompt", "max_tokens"), [("", 5), ("x", 0), ("\ud800", 5)])
def test_what_cannot_be_asked_is_not_counted(
    remote: GuardedLanguageModel, ledger: Ledger, endpoint: Endpoint, prompt: str, max_tokens: int
) -> None:
    """Given a question that no model can be asked, then nothing is sent and nothing recorded."""
    with pytest.raises(LanguageModelRefused):
        remote.complete("", prompt, max_tokens, purpose="summary")
    with pytest.raises(LanguageModelRefused):
        remote.complete_structured("", prompt, max_tokens, form=Place, purpose="extraction")
    assert (endpoint.requests, ledger.recorded) == ([], [])


def test_what_cannot_be_recorded_is_recorded_with_the_next_call(ledger: Ledger) -> None:
    """Given a ledger that cannot be written, then calls succeed, and are recorded together when it can."""
    model = GuardedLanguageModel(Counting("Lisbon.", 10, 2), record=ledger)
    ledger.broken = True
    for _ in range(3):
        model.complete("", "x", 5, purpose="summary")
    model.complete("", "x", 5, purpose="refinement")
    assert ledger.recorded == []
    ledger.broken = False
    model.complete("", "x", 5, purpose="summary")
    assert sorted(ledger.recorded, key=lambda used: used.purpose) == [
        ModelUsage("counting", "refinement", 1, 0, 10, 2),
        ModelUsage("counting", "summary", 4, 0, 40, 8),
    ]


def test_what_is_not_recorded_is_handed_over_at_the_end(ledger: Ledger) -> None:
    """Given a call that could not be recorded, when the model is closed, then it is."""
    model = GuardedLanguageModel(Counting("Lisbon.", 10, 2), record=ledger)
    ledger.broken = True
    model.complete("", "x", 5, purpose="summary")
    ledger.broken = False
    model.close()
    assert [used.calls for used in ledger.recorded] == [1]
