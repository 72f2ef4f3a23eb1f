"""Language models: one conformance suite for the real one and the fake, and an endpoint that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from language_model_conformance import LanguageModelConformance

from adapters.language_models import (
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
    OpenAICompatibleLanguageModel,
    ScriptedLanguageModel,
    openai_compatible,
)
from reverie.errors import Permanent, Transient
from support.endpoint import Endpoint, chat_endpoint, say, send


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that answers well until told otherwise."""
    with chat_endpoint(say("Lisbon.")) as made:
        yield made


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[OpenAICompatibleLanguageModel]:
    """A client of that endpoint, with a key and little patience."""
    spec = LanguageModelSpec(endpoint.url, "m", api_key="sk-secret", timeout_seconds=2)
    made = OpenAICompatibleLanguageModel(spec)
    yield made
    made.close()


class TestRemote(LanguageModelConformance):
    @pytest.fixture
    def model(self, remote: OpenAICompatibleLanguageModel) -> OpenAICompatibleLanguageModel:
        """The real one, over loopback."""
        return remote


class TestScripted(LanguageModelConformance):
    @pytest.fixture
    def model(self) -> ScriptedLanguageModel:
        """The fake."""
        return ScriptedLanguageModel(["In Portugal."])


def test_the_question_and_the_answer_are_those_of_chat_completions(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel
) -> None:
    """Given a question, then the endpoint gets it as OpenAI's API has it, and its counts come back."""
    found = remote.complete("Be brief.", "Where?", 7)
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
        remote.complete("", "x", 5)
    assert isinstance(caught.value, Transient)
    assert str(status) in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_wait_that_was_asked_for_is_told(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given a 429 with Retry-After, then the error carries it."""
    endpoint.answer = send(b"slow down", 429, Retry_After="7")
    with pytest.raises(LanguageModelUnavailable) as caught:
        remote.complete("", "x", 5)
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_question_that_is_refused_is_refused_for_good(
    endpoint: Endpoint, remote: OpenAICompatibleLanguageModel, status: int
) -> None:
    """Given a refusal, then it is a permanent error."""
    endpoint.answer = send(b"too long", status)
    with pytest.raises(LanguageModelRefused) as caught:
        remote.complete("", "x", 5)
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
        remote.complete("", "x", 5)
    assert "\n" not in str(caught.value)


def test_ten_megabytes_are_no_answer(endpoint: Endpoint, remote: OpenAICompatibleLanguageModel) -> None:
    """Given an answer beyond every reason, then it is not read to its end."""
    endpoint.answer = send(b" " * (10 * 1024 * 1024))
    with pytest.raises(LanguageModelRefused, match=str(openai_compatible.LONGEST_ANSWER_BYTES)):
        remote.complete("", "x", 5)


def test_one_that_never_answers_is_given_up(endpoint: Endpoint) -> None:
    """Given an endpoint that keeps silent, then the timeout ends the waiting and is named."""
    endpoint.answer = endpoint.never
    impatient = OpenAICompatibleLanguageModel(LanguageModelSpec(endpoint.url, "m", timeout_seconds=0.2))
    with pytest.raises(LanguageModelUnavailable, match=r"within 0\.2 s"):
        impatient.complete("", "x", 5)
    impatient.close()


def test_one_that_is_not_there_is_named() -> None:
    """Given an address where nobody listens, or that is none, then the error says so."""
    for url in ("http://127.0.0.1:1/v1", "http://[bad/v1"):
        model = OpenAICompatibleLanguageModel(LanguageModelSpec(url, "m", timeout_seconds=2))
        with pytest.raises(LanguageModelUnavailable, match="base_url"):
            model.complete("", "x", 5)
        model.close()


def test_the_key_is_not_shown_and_has_to_fit_into_a_header() -> None:
    """Given a spec, then its text does not hold the key; one with a line end is refused."""
    assert "sk-secret" not in repr(LanguageModelSpec("http://x/v1", "m", api_key="sk-secret"))
    with pytest.raises(ValueError, match="printable"):
        OpenAICompatibleLanguageModel(LanguageModelSpec("http://x/v1", "m", api_key="sk\n"))


def test_the_fake_raises_what_its_script_says() -> None:
    """Given a script with an error, then it is raised in its turn; without a script there is no answer."""
    model = ScriptedLanguageModel(["one", LanguageModelUnavailable("gone")])
    assert model.complete("", "x", 5).text == "one"
    with pytest.raises(LanguageModelUnavailable, match="gone"):
        model.complete("", "x", 5)
    with pytest.raises(LanguageModelUnavailable):
        ScriptedLanguageModel([]).complete("", "x", 5)
