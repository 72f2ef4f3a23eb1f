"""Language models: one conformance suite for the real one and the fake, and an endpoint that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from language_model_conformance import PLACE, LanguageModelConformance

from adapters.calls import ModelSpec
from adapters.language_models import (
    MAX_RESPONSE_BYTES,
    GuardedLanguageModel,
    LanguageModelRefused,
    LanguageModelUnavailable,
    OpenAICompatibleLanguageModel,
)
from reverie.errors import Permanent, Transient
from support.agents import until
from support.endpoint import Answer, Endpoint, chat_endpoint, say, send
from support.misbehaving import early_hints, half_a_body, redirect_to, reset, trickle, trickled_head
from support.scripted import ScriptedLanguageModel


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that answers well until told otherwise."""
    with chat_endpoint(say("Lisbon.")) as made:
        yield made


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[OpenAICompatibleLanguageModel]:
    """A client of that endpoint, with a key, which waits even for a busy machine."""
    spec = ModelSpec(endpoint.url, "m", api_key="sk-secret", timeout_seconds=30)
    made = OpenAICompatibleLanguageModel(spec)
    yield made
    made.close()


class TestRemote(LanguageModelConformance):
    @pytest.fixture
    def model(self, remote: OpenAICompatibleLanguageModel) -> OpenAICompatibleLanguageModel:
        """The real one, over loopback."""
        return remote

    @pytest.fixture
    def structured_model(
        self, endpoint: Endpoint, remote: OpenAICompatibleLanguageModel
    ) -> OpenAICompatibleLanguageModel:
        """The real one, and an endpoint that says JSON."""
        endpoint.answer = say(PLACE)
        return remote


class TestScripted(LanguageModelConformance):
    @pytest.fixture
    def model(self) -> ScriptedLanguageModel:
        """The fake."""
        return ScriptedLanguageModel(["In Portugal."])

    @pytest.fixture
    def structured_model(self) -> ScriptedLanguageModel:
        """The fake, with JSON in its script."""
        return ScriptedLanguageModel([PLACE])


class TestGuarded(LanguageModelConformance):
    @pytest.fixture
    def model(self) -> GuardedLanguageModel:
        """The fake behind a breaker."""
        return GuardedLanguageModel(ScriptedLanguageModel(["In Portugal."]))

    @pytest.fixture
    def structured_model(self) -> GuardedLanguageModel:
        """The fake behind a breaker, with JSON in its script."""
        return GuardedLanguageModel(ScriptedLanguageModel([PLACE]))


def test_the_question_and_the_answer_are_those_of_chat_completions(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel
) -> None:
    """Given a question, then the endpoint gets it as OpenAI's API has it, and its counts come back."""
    found = remote.complete("Be brief.", "Where?", 7, purpose="refinement")
    assert (found.text, found.input_tokens, found.output_tokens) == ("Lisbon.", 11, 3)
    (question,) = endpoint.requests
    assert question["model"] == "m"
    assert question["max_tokens"] == 7
    assert [message["role"] for message in question["messages"]] == ["system", "user"]
    assert endpoint.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503])
def test_what_may_pass_is_unavailable(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel, status: int) -> None:
    """Given an endpoint that is limited, down or does not know the key, then it is to be tried again later."""
    endpoint.answer = send(b'{"error": "key sk-secret\\nis bad"}', status)
    with pytest.raises(LanguageModelUnavailable) as caught:
        remote.complete("", "x", 5, purpose="refinement")
    assert isinstance(caught.value, Transient)
    assert str(status) in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_wait_that_was_asked_for_is_told(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given a 429 with Retry-After, then the error carries it."""
    endpoint.answer = send(b"slow down", 429, Retry_After="7")
    with pytest.raises(LanguageModelUnavailable) as caught:
        remote.complete("", "x", 5, purpose="refinement")
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_question_that_is_refused_is_refused_for_good(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel, status: int
) -> None:
    """Given a refusal, then it is a permanent error."""
    endpoint.answer = send(b"too long", status)
    with pytest.raises(LanguageModelRefused) as caught:
        remote.complete("", "x", 5, purpose="refinement")
    assert isinstance(caught.value, Permanent)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"choices": [{"message": {"content": "ha', LanguageModelUnavailable),
        (b"", LanguageModelUnavailable),
        (b"\xff\xfe", LanguageModelUnavailable),
        (b"[]", LanguageModelRefused),
        (b'{"choices": []}', LanguageModelRefused),
        (b'{"choices": [{"message": {"content": null}}]}', LanguageModelRefused),
        (b'{"choices": [{"message": {"content": "  "}}]}', LanguageModelRefused),
        (b'{"choices": [{"message": {"content": 3}}]}', LanguageModelRefused),
        (b'{"error": "no"}', LanguageModelRefused),
    ],
)
def test_an_answer_of_another_form_is_an_error_in_one_line(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel, body: bytes, error: type[Exception]
) -> None:
    """Given half a JSON, another form or an empty text, then nothing of it is taken for an answer."""
    endpoint.answer = send(body)
    with pytest.raises(error) as caught:
        remote.complete("", "x", 5, purpose="refinement")
    assert "\n" not in str(caught.value)


def test_ten_megabytes_are_no_answer(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given an answer beyond every reason, then it is not read to its end."""
    endpoint.answer = send(b" " * (10 * 1024 * 1024))
    with pytest.raises(LanguageModelRefused, match=str(MAX_RESPONSE_BYTES)):
        remote.complete("", "x", 5, purpose="refinement")


def test_one_that_never_answers_is_given_up(endpoint: Endpoint) -> None:
    """Given an endpoint that keeps silent, then the timeout ends the waiting and is named."""
    endpoint.answer = endpoint.never
    impatient = OpenAICompatibleLanguageModel(ModelSpec(endpoint.url, "m", timeout_seconds=0.2))
    with pytest.raises(LanguageModelUnavailable, match=r"within 0\.2 s"):
        impatient.complete("", "x", 5, purpose="refinement")
    impatient.close()


def test_one_that_is_not_there_is_named() -> None:
    """Given an address where nobody listens, or that is none, then the error says so."""
    for url in ("http://127.0.0.1:1/v1", "http://[bad/v1"):
        model = OpenAICompatibleLanguageModel(ModelSpec(url, "m", timeout_seconds=2))
        with pytest.raises(LanguageModelUnavailable, match="base_url"):
            model.complete("", "x", 5, purpose="refinement")
        model.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (trickle, r"within 0\.5 s"),
        (trickled_head, r"within 0\.5 s"),
        (early_hints, r"within 0\.5 s"),
        (reset, "did not answer"),
        (half_a_body, "did not answer"),
        (redirect_to("http://127.0.0.1:1/elsewhere"), "302"),
        (send(b"<html>Bad gateway</html>", Content_Type="text/html"), "invalid JSON"),
        (send(b"", 500), "500"),
    ],
)
def test_an_endpoint_that_misbehaves_is_unavailable(endpoint: Endpoint, answer: Answer, why: str) -> None:
    """Given a trickle, a connection cut off, a redirect or another page, then it is to be tried again, on one line."""
    endpoint.answer = answer
    timeout_seconds = (
        0.5 if answer in (trickle, trickled_head, early_hints) else 30
    )  # what is not about time is answered on a busy machine, too
    model = OpenAICompatibleLanguageModel(
        ModelSpec(endpoint.url, "m", api_key="sk-secret", timeout_seconds=timeout_seconds)
    )
    with pytest.raises(LanguageModelUnavailable, match=why) as caught:
        model.complete("", "x", 5, purpose="refinement")
    assert "\n" not in str(caught.value)
    until(lambda: endpoint.requests, "the request does not arrive")  # the caller may give up before it is read
    assert len(endpoint.requests) == 1
    model.close()


def test_the_connection_of_a_call_that_was_given_up_is_closed(endpoint: Endpoint) -> None:
    """Given an answer whose head never ends, when its call is given up, then its thread and connection end, too."""
    left = threading.Event()

    def endless(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        try:
            trickled_head(handler, question)
        except OSError:
            left.set()

    endpoint.answer = endless
    model = OpenAICompatibleLanguageModel(ModelSpec(endpoint.url, "m", timeout_seconds=0.3))
    with pytest.raises(LanguageModelUnavailable, match="within"):
        model.complete("", "x", 5, purpose="refinement")
    assert left.wait(8)
    until(lambda: not [one for one in threading.enumerate() if one.name == f"call {model.source}"], "the thread stays")
    model.close()


def test_a_wait_until_a_date_is_told_in_seconds(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given a 429 whose Retry-After is a date, then the error has the seconds until then."""
    began = datetime.now(UTC)
    until = began.replace(microsecond=0) + timedelta(seconds=90)
    endpoint.answer = send(b"slow down", 429, Retry_After=format_datetime(until, usegmt=True))
    with pytest.raises(LanguageModelUnavailable) as caught:
        remote.complete("", "x", 5, purpose="refinement")
    assert caught.value.retry_after_seconds is not None
    wait = timedelta(seconds=caught.value.retry_after_seconds)
    # It is counted from the Date of the answer, which has whole seconds.
    assert until - datetime.now(UTC) <= wait <= until - began + timedelta(seconds=1)


def test_json_under_a_wrong_content_type_is_taken(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given a good answer that is called text, then it is an answer: the header is decoration."""
    body = b'{"choices": [{"message": {"content": "Lisbon."}}]}'
    endpoint.answer = send(body, Content_Type="text/plain")
    assert remote.complete("", "x", 5, purpose="refinement").text == "Lisbon."


@pytest.mark.parametrize(
    "usage",
    ['{"prompt_tokens": -3, "completion_tokens": 1e300}', '"many"', "[]", '{"prompt_tokens": 99999999999999999999}'],
)
def test_counts_that_cannot_be_true_are_unknown(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel, usage: str
) -> None:
    """Given a good answer with odd token counts, then the answer is taken and the counts are not."""
    endpoint.answer = send(b'{"choices": [{"message": {"content": "Lisbon."}}], "usage": ' + usage.encode() + b"}")
    found = remote.complete("", "x", 5, purpose="refinement")
    assert (found.text, found.input_tokens, found.output_tokens) == ("Lisbon.", None, None)


def test_the_key_is_not_shown_and_has_to_fit_into_a_header() -> None:
    """Given a spec, then its text does not hold the key; one with a line end is refused."""
    assert "sk-secret" not in repr(ModelSpec("http://x/v1", "m", api_key="sk-secret"))
    with pytest.raises(ValueError, match="printable"):
        OpenAICompatibleLanguageModel(ModelSpec("http://x/v1", "m", api_key="sk\n"))


def test_the_fake_raises_what_its_script_says() -> None:
    """Given a script with an error, then it is raised in its turn; without a script there is no answer."""
    model = ScriptedLanguageModel(["one", LanguageModelUnavailable("gone")])
    assert model.complete("", "x", 5, purpose="refinement").text == "one"
    with pytest.raises(LanguageModelUnavailable, match="gone"):
        model.complete("", "x", 5, purpose="refinement")
    with pytest.raises(LanguageModelUnavailable):
        ScriptedLanguageModel([]).complete("", "x", 5, purpose="refinement")
