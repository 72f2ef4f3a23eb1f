"""Answers from an HTTP endpoint that speaks OpenAI's POST /chat/completions.

Nothing the endpoint says is trusted: size, form and emptiness are checked before a text leaves here. What may pass
is LanguageModelUnavailable, what will not is LanguageModelRefused.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from adapters.endpoint import Answer, AnswerTooLong, Endpoint, EndpointFailed, check_key
from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_question,
)
from adapters.language_models.structured import decoded, instructions_for, schema_of

# 100,000 tokens of text are half a megabyte; eight times that is no answer but an accident.
LONGEST_ANSWER_BYTES: Final = 4 * 1024 * 1024
# No model takes a tenth of this in one call; a count beyond it is a mistake of the endpoint's, and would be summed up.
MOST_TOKENS: Final = 100_000_000
# With these an endpoint refuses a parameter.
_REFUSALS: Final = (400, 422)
_KEY: Final = "Set language_model_api_key to one that this endpoint accepts"


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


class OpenAICompatibleLanguageModel:
    """A chat endpoint, asked with temperature 0: the same question should get the same answer."""

    def __init__(self, spec: LanguageModelSpec) -> None:
        """Raises ValueError for a key that no header can carry."""
        self.name = spec.model
        key = check_key(spec.api_key, whose="language model")
        self._url = spec.base_url.rstrip("/") + "/chat/completions"
        self._endpoint = Endpoint(self._url, key=key, timeout_seconds=spec.timeout_seconds)
        # By form, because an endpoint may refuse one schema and take another. Two threads may both find it out.
        self._taken: dict[type[msgspec.Struct], int] = {}
        self._unwanted: frozenset[str] = frozenset()

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """The answer to one prompt.

        Raises LanguageModelUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and broken JSON;
        LanguageModelRefused for 400, 413, 422 and for an answer that is too long, of another form, or empty.
        """
        del purpose  # what a call is for is not the endpoint's business
        answer = self._ask(system, prompt, max_tokens, None)
        return _completion(self._url, answer)[0]

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """The answer to one prompt as a struct, by the strongest `response_format` that the endpoint takes.

        One that refuses JSON schemas is asked for a JSON object, and one that refuses that too has the instructions
        alone; what it refused for a form it is not asked again. Raises as `complete` does.
        """
        del purpose
        answer = self._ask_for(form, f"{system}\n\n{instructions_for(form)}".strip(), prompt, max_tokens)
        completion, cut_off = _completion(self._url, answer)
        if cut_off:
            raise LanguageModelRefused(
                f"{self._url}: the answer was cut off at {max_tokens} tokens", completion=completion
            )
        return decoded(completion, form, source=self._url)

    def _ask_for(self, form: type[Form], system: str, prompt: str, max_tokens: int) -> Answer:
        formats = [_schema_format(form), {"type": "json_object"}, None]
        for place in range(self._taken.get(form, 0), len(formats)):
            answer = self._ask(system, prompt, max_tokens, formats[place])
            if formats[place] is None or not _refuses_format(answer):
                break
        if answer.status == 200:  # an error may name the format because it repeats the whole question
            self._taken[form] = place
        return answer

    def _ask(self, system: str, prompt: str, max_tokens: int, response_format: dict[str, Any] | None) -> Answer:
        require_question(system, prompt, max_tokens)
        question = {
            "model": self.name,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        if response_format is not None:
            question["response_format"] = response_format
        unwanted = self._unwanted
        answer = self._post(_without(question, unwanted))
        while not _unwanted(answer) <= unwanted:
            unwanted |= _unwanted(answer)
            answer = self._post(_without(question, unwanted))
        if answer.status == 200:
            self._unwanted = unwanted
        return answer

    def _post(self, question: dict[str, Any]) -> Answer:
        try:
            return self._endpoint.post(question, longest_bytes=LONGEST_ANSWER_BYTES)
        except AnswerTooLong as error:
            raise LanguageModelRefused(str(error)) from error
        except EndpointFailed as error:
            raise LanguageModelUnavailable(str(error)) from error

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()


def _completion(url: str, answer: Answer) -> tuple[Completion, bool]:
    """What an endpoint answered, and whether the answer was cut off where its room ended."""
    if answer.status != 200:
        raise _failure(url, answer)
    try:
        found = msgspec.json.decode(answer.body, type=_Answer)
    except msgspec.ValidationError as error:
        raise LanguageModelRefused(f"{url} answered with JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        size = len(answer.body)
        raise LanguageModelUnavailable(f"{url} answered with broken JSON ({size} bytes): {error}") from error
    choice = found.choices[0] if found.choices else _Choice(_Said())
    text = choice.message.content or ""
    completion = Completion(text, _tokens(found.usage, "prompt_tokens"), _tokens(found.usage, "completion_tokens"))
    if not text.strip():
        raise LanguageModelRefused(f"{url} gave an empty answer", completion=completion)
    return completion, choice.finish_reason == "length"


def _tokens(usage: Any, name: str) -> int | None:
    """A count out of an answer, None where there is none or it cannot be true: an odd one spoils no good answer."""
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MOST_TOKENS else None


def _schema_format(form: type[Form]) -> dict[str, Any]:
    schema = {"name": form.__name__.lstrip("_"), "strict": True, "schema": schema_of(form)}
    return {"type": "json_schema", "json_schema": schema}


def _unwanted(answer: Answer) -> frozenset[str]:
    """Which of our parameters an endpoint will not have: OpenAI's newer models count and sample otherwise."""
    if answer.status not in _REFUSALS:
        return frozenset()
    marks = {"max_tokens": b"max_completion_tokens", "temperature": b"temperature"}
    return frozenset(name for name, mark in marks.items() if mark in answer.body)


def _without(question: dict[str, Any], unwanted: frozenset[str]) -> dict[str, Any]:
    """A question in the words that the endpoint takes."""
    kept = {name: value for name, value in question.items() if name not in unwanted}
    return {**kept, "max_completion_tokens": question["max_tokens"]} if "max_tokens" in unwanted else kept


def _refuses_format(answer: Answer) -> bool:
    """Whether an endpoint refused the wanted form of the answer, and not the question."""
    named = b"response_format" in answer.body or b"json_schema" in answer.body or b"json_object" in answer.body
    return answer.status in _REFUSALS and named


def _failure(url: str, answer: Answer) -> LanguageModelUnavailable | LanguageModelRefused:
    """The error for an HTTP status."""
    said = f"{url} answered {answer.status}: {answer.reason}"
    if answer.status in (400, 413, 422):
        return LanguageModelRefused(said)
    if answer.status in (401, 403):
        return LanguageModelUnavailable(f"{said}. {_KEY}")
    if answer.status == 404:
        return LanguageModelUnavailable(f"{said}. Check language_model_base_url and that the endpoint has this model")
    return LanguageModelUnavailable(said, retry_after_seconds=answer.retry_after_seconds)
