"""Answers from an HTTP endpoint that speaks OpenAI's POST /chat/completions.

Nothing the endpoint says is trusted: size, form and emptiness are checked before a text leaves here. What may pass
is LanguageModelUnavailable, what will not is LanguageModelRefused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.endpoint import Answer, AnswerTooLong, Endpoint, EndpointFailed, check_key
from adapters.language_models.base import (
    Completion,
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
    require_question,
)

# 100,000 tokens of text are half a megabyte; eight times that is no answer but an accident.
LONGEST_ANSWER_BYTES: Final = 4 * 1024 * 1024
_KEY: Final = "Set language_model_api_key to one that this endpoint accepts"


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class OpenAICompatibleLanguageModel:
    """A chat endpoint, asked with temperature 0: the same question should get the same answer."""

    def __init__(self, spec: LanguageModelSpec) -> None:
        """Raises ValueError for a key that no header can carry."""
        self.name = spec.model
        key = check_key(spec.api_key, whose="language model")
        self._url = spec.base_url.rstrip("/") + "/chat/completions"
        self._endpoint = Endpoint(self._url, key=key, timeout_seconds=spec.timeout_seconds)

    def complete(self, system: str, prompt: str, max_tokens: int) -> Completion:
        """The answer to one prompt.

        Raises LanguageModelUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and broken JSON;
        LanguageModelRefused for 400, 413, 422 and for an answer that is too long, of another form, or empty.
        """
        require_question(system, prompt, max_tokens)
        question = {
            "model": self.name,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        try:
            answer = self._endpoint.post(question, longest_bytes=LONGEST_ANSWER_BYTES)
        except AnswerTooLong as error:
            raise LanguageModelRefused(str(error)) from error
        except EndpointFailed as error:
            raise LanguageModelUnavailable(str(error)) from error
        if answer.status != 200:
            raise _failure(self._url, answer)
        return _completion(self._url, answer.body)

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()


def _completion(url: str, body: bytes) -> Completion:
    try:
        found = msgspec.json.decode(body, type=_Answer)
    except msgspec.ValidationError as error:
        raise LanguageModelRefused(f"{url} answered with JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LanguageModelUnavailable(f"{url} answered with broken JSON ({len(body)} bytes): {error}") from error
    text = found.choices[0].message.content if found.choices else None
    if not text or not text.strip():
        raise LanguageModelRefused(f"{url} gave an empty answer")
    usage = found.usage or _Usage()
    return Completion(text, usage.prompt_tokens, usage.completion_tokens)


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
