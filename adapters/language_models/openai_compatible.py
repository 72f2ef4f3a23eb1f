"""Completions from an HTTP endpoint with OpenAI's POST /chat/completions.

The response is not trusted: size, format and emptiness are checked before a text is returned. Temporary errors are
LanguageModelUnavailable, lasting ones LanguageModelRefused.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from adapters.endpoint import Endpoint, EndpointErrors, Response
from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_prompt,
)
from adapters.language_models.structured import decode_struct, json_instructions, strict_schema

# 100,000 tokens of text are half a megabyte; eight times that must be a mistake.
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
# No model uses a tenth of this in one call; a larger count is a mistake of the endpoint and must not be added up.
MAX_TOKENS: Final = 100_000_000
# Statuses with which an endpoint refuses a parameter.
_PARAMETER_REFUSED: Final = (400, 422)
_ERRORS: Final = EndpointErrors(
    LanguageModelUnavailable, LanguageModelRefused, "language_model_base_url", "language_model_api_key"
)


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class _ChatCompletion(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


class OpenAICompatibleLanguageModel:
    """A chat endpoint, called with temperature 0: the same prompt should get the same completion."""

    def __init__(self, spec: LanguageModelSpec) -> None:
        """Raises ValueError for a key that no header can contain."""
        self.name = spec.model
        self._url = spec.base_url.rstrip("/") + "/chat/completions"
        self._endpoint = Endpoint(self._url, key=spec.api_key, timeout_seconds=spec.timeout_seconds, errors=_ERRORS)
        # By form, because an endpoint may refuse one schema and accept another. Two threads may both find this out.
        self._accepted_formats: dict[type[msgspec.Struct], int] = {}
        self._unsupported: frozenset[str] = frozenset()

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """Return the completion of one prompt.

        Raises LanguageModelUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and invalid JSON;
        LanguageModelRefused for 400, 413, 422 and for a response that is too long, empty or of another format.
        """
        del purpose  # the endpoint does not need it
        response = self._request(system, prompt, max_tokens, None)
        return self._completion(response)[0]

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """Return the completion of one prompt as a struct, with the strictest `response_format` that is accepted.

        If the endpoint refuses a JSON schema, a JSON object is requested; if it refuses this too, it gets only the
        instructions. A format that was refused for a form is not tried again. Raises as `complete` does.
        """
        del purpose
        response = self._request_struct(form, f"{system}\n\n{json_instructions(form)}".strip(), prompt, max_tokens)
        completion, cut_off = self._completion(response)
        if cut_off:
            raise LanguageModelRefused(
                f"{self._url}: the answer was cut off at {max_tokens} tokens", completion=completion
            )
        return decode_struct(completion, form, source=self._url)

    def _request_struct(self, form: type[Form], system: str, prompt: str, max_tokens: int) -> Response:
        formats = [_schema_format(form), {"type": "json_object"}, None]
        for number in range(self._accepted_formats.get(form, 0), len(formats)):
            response = self._request(system, prompt, max_tokens, formats[number])
            if formats[number] is None or not _refuses_format(response):
                break
        if response.status == 200:  # other errors may mention the format only because they repeat the request
            self._accepted_formats[form] = number
        return response

    def _request(self, system: str, prompt: str, max_tokens: int, response_format: dict[str, Any] | None) -> Response:
        require_prompt(system, prompt, max_tokens)
        request = {
            "model": self.name,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        if response_format is not None:
            request["response_format"] = response_format
        unsupported = self._unsupported
        response = self._post(_without(request, unsupported))
        while not _unsupported(response) <= unsupported:
            unsupported |= _unsupported(response)
            response = self._post(_without(request, unsupported))
        if response.status == 200:
            self._unsupported = unsupported
        return response

    def _post(self, request: dict[str, Any]) -> Response:
        return self._endpoint.post(request, max_bytes=MAX_RESPONSE_BYTES)

    def _completion(self, response: Response) -> tuple[Completion, bool]:
        """Return the completion in a response, and whether it was cut off at the token limit."""
        if response.status != 200:
            raise self._endpoint.status_error(response)
        try:
            found = msgspec.json.decode(response.body, type=_ChatCompletion)
        except msgspec.ValidationError as error:
            raise LanguageModelRefused(f"{self._url} answered with unexpected JSON: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            size = len(response.body)
            raise LanguageModelUnavailable(f"{self._url} answered with invalid JSON ({size} bytes): {error}") from error
        choice = found.choices[0] if found.choices else _Choice(_Message())
        text = choice.message.content or ""
        completion = Completion(text, _tokens(found.usage, "prompt_tokens"), _tokens(found.usage, "completion_tokens"))
        if not text.strip():
            raise LanguageModelRefused(f"{self._url} returned an empty answer", completion=completion)
        return completion, choice.finish_reason == "length"

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()


def _tokens(usage: Any, name: str) -> int | None:
    """Return a token count of a response, or None if it is missing or implausible, which is not an error."""
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MAX_TOKENS else None


def _schema_format(form: type[Form]) -> dict[str, Any]:
    schema = {"name": form.__name__.lstrip("_"), "strict": True, "schema": strict_schema(form)}
    return {"type": "json_schema", "json_schema": schema}


def _unsupported(response: Response) -> frozenset[str]:
    """Return the parameters that an endpoint refused: newer OpenAI models have other ones for length and sampling."""
    if response.status not in _PARAMETER_REFUSED:
        return frozenset()
    marks = {"max_tokens": b"max_completion_tokens", "temperature": b"temperature"}
    return frozenset(name for name, mark in marks.items() if mark in response.body)


def _without(request: dict[str, Any], unsupported: frozenset[str]) -> dict[str, Any]:
    """Return a request without unsupported parameters, or with their replacement."""
    supported = {name: value for name, value in request.items() if name not in unsupported}
    if "max_tokens" in unsupported:
        supported["max_completion_tokens"] = request["max_tokens"]
    return supported


def _refuses_format(response: Response) -> bool:
    """Return whether an endpoint refused the response format, rather than the prompt."""
    named = b"response_format" in response.body or b"json_schema" in response.body or b"json_object" in response.body
    return response.status in _PARAMETER_REFUSED and named
