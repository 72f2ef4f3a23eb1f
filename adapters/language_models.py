"""Language models: instructions and a prompt in, a text or a struct out, from OpenAI's POST /chat/completions.

They are optional: Reverie uses one to refine, extract and condense. The output is untrusted text: callers check it
before they act on it. A structured completion must be JSON that fits the struct, bare or in a code fence.

Every call that reached the endpoint is counted once by its purpose, including failures. Counting never fails a call:
usage that cannot be recorded now is recorded with the next call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from adapters.calls import (
    CircuitBreaker,
    Endpoint,
    EndpointErrors,
    GuardedService,
    ModelSpec,
    Response,
    ServiceUnavailable,
)
from adapters.tokens import EstimatedTokens
from reverie.errors import Permanent, ReverieError
from reverie.inert import inert

# The purpose of a call; calls, tokens and cost are counted by purpose.
Purpose = Literal["extraction", "summary", "refinement", "schedule"]

Form = TypeVar("Form", bound=msgspec.Struct)

# Called before each request with a prompt; if it raises, the prompt is not sent.
Check = Callable[[], None]


def unchecked() -> None:
    """Let every prompt be sent."""


class LanguageModelUnavailable(ServiceUnavailable):
    """The model cannot answer now (endpoint down, limited or slow, key refused): try again later."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The text of a completion, and the token counts reported by the endpoint, or None."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None

    def after(self, other: Completion) -> Completion:
        """Return this completion with the tokens of both, where they are known."""
        return Completion(
            self.text,
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class LanguageModelRefused(Permanent):
    """The prompt will never get an answer from this model: it was refused, or the answer was unusable.

    `completion` is the unusable answer, whose tokens were used all the same; None if the prompt was refused.
    """

    def __init__(self, message: str, *, completion: Completion | None = None) -> None:
        super().__init__(message)
        self.completion = completion


@dataclass(frozen=True, slots=True)
class Structured(Generic[Form]):
    """A completion decoded as the requested struct, with its text."""

    value: Form
    completion: Completion


class LanguageModel(Protocol):
    """Completes prompts. Safe to use from several threads."""

    # The name of the model at the endpoint, and what errors name: the URL of the endpoint.
    name: str
    source: str

    def complete(
        self,
        system: str,
        prompt: str,
        max_tokens: int,
        *,
        purpose: Purpose,
        check: Check = unchecked,
        form: type[msgspec.Struct] | None = None,
    ) -> Completion:
        """Return the completion of one prompt: not empty, at most `max_tokens` tokens.

        With a `form` the model is asked for its JSON, which `system` need not describe. One completion may take several
        requests: `check` is called before each, and its errors are raised. Raises LanguageModelUnavailable (try
        again later) or LanguageModelRefused (never for this prompt).
        """

    def complete_structured(
        self,
        system: str,
        prompt: str,
        max_tokens: int,
        *,
        form: type[Form],
        purpose: Purpose,
        check: Check = unchecked,
    ) -> Structured[Form]:
        """Return the completion of one prompt as a struct of type `form`.

        Only the types and limits of the struct are checked; the values are still untrusted. Raises as `complete` does,
        and LanguageModelRefused for an answer of another form.
        """
        completion = self.complete(system, prompt, max_tokens, purpose=purpose, check=check, form=form)
        return decode_struct(completion, form, source=self.source)

    def note_read(self, messages: int, *, purpose: Purpose) -> None:
        """Add messages of conversations that the model has read to its usage; does nothing by default."""
        del messages, purpose

    def note_found(self, found: bool) -> bool:
        """Note whether the model found anything in a passage with something to find.

        Return whether it may be relied on, which it always is by default.
        """
        del found
        return True


def require_prompt(system: str, prompt: str, max_tokens: int) -> None:
    """Raise LanguageModelRefused for an empty prompt, a lone surrogate, or `max_tokens` below 1."""
    if not prompt.strip():
        raise LanguageModelRefused("the prompt is empty")
    if max_tokens < 1:
        raise LanguageModelRefused(f"max_tokens is {max_tokens}; it must be at least 1")
    try:
        (system + prompt).encode()
    except UnicodeEncodeError as error:
        raise LanguageModelRefused("the prompt contains a lone surrogate: fix the source of the text") from error


# Enough to locate the error; the text of the answer, which some errors contain, must not appear in logs.
_MAX_REASON_CHARACTERS: Final = 200
# Keywords that OpenAI's strict schemas do not support; msgspec checks the limits when the answer is decoded.
_NOT_STRICT: Final = frozenset({"default", "title", "minLength", "maxLength"})
_TYPES: Final[dict[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@cache
def strict_schema(form: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct for OpenAI's strict mode.

    It has no references, requires every property (optional ones may be null or empty) and allows no others. Raises
    TypeError for a recursive struct.
    """
    schema = msgspec.json.schema(form)
    found: dict[str, Any] = _strict(schema, schema.get("$defs", {}), ())
    if found.get("type") != "object":
        raise TypeError(f"{form.__name__} is not a struct with named fields: a model answers with a JSON object")
    return found


# Instructions where the schema goes with the request.
_JSON_ALONE: Final = "Answer with one JSON object that fits the schema, and nothing else."


def json_instructions(form: type[msgspec.Struct]) -> str:
    """Return the instructions to answer in this form, for endpoints that take no schema or ignore it."""
    schema = msgspec.json.encode(strict_schema(form)).decode()
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema: {schema}"


def unfenced(answer: str) -> str:
    """Return an answer without the Markdown fence around it, if it has one."""
    text = answer.strip()
    first, _, rest = text.partition("\n")
    return rest.removesuffix("```") if first.rstrip().lower() in ("```", "```json") and rest.endswith("```") else text


def decode_struct(completion: Completion, form: type[Form], *, source: str) -> Structured[Form]:
    """Decode the JSON of a completion, bare or in a ```json fence. Raises LanguageModelRefused for anything else."""
    text = unfenced(completion.text)
    try:
        return Structured(msgspec.json.decode(text, type=form), completion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARACTERS]
        raise LanguageModelRefused(
            f"{source} did not answer with a {form.__name__}: {reason}", completion=completion
        ) from error


def _fits(completion: Completion, form: type[msgspec.Struct], source: str) -> bool:
    try:
        decode_struct(completion, form, source=source)
    except LanguageModelRefused:
        return False
    return True


def _strict(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema with references inlined, objects closed, and unsupported keywords removed."""
    if isinstance(schema, list):
        return [_strict(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise TypeError(f"{name} is recursive: a strict schema cannot express it")
        return _strict(definitions[name], definitions, (*inside, name))
    strict = {key: value for key, value in schema.items() if key not in _NOT_STRICT and key != "$defs"}
    if "enum" in strict:
        # The strict mode requires the types of an enumeration's values.
        types = sorted({_TYPES[type(value)] for value in strict["enum"]})
        strict["type"] = types[0] if len(types) == 1 else types
        return strict
    if "properties" not in strict:
        return {key: _strict(value, definitions, inside) for key, value in strict.items()}
    properties = {key: _strict(value, definitions, inside) for key, value in strict["properties"].items()}
    return {**strict, "properties": properties, "required": list(properties), "additionalProperties": False}


_TOKENS_PER_PRICE: Final = 1_000_000
# A prompt that every model answers. If even this one is refused, the model is at fault and not the prompt.
_KNOWN_SYSTEM: Final = "Answer with one word."
_KNOWN_PROMPT: Final = "Say hello."
_KNOWN_TOKENS: Final = 16
_KNOWN_TO_WORK_SECONDS: Final = 60.0
# Patterns find little that a good model would leave out, and never so often in a row.
_EMPTY_PASSAGES: Final = 20


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens, in any currency."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of these tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / _TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage of a model for one purpose: calls, failures among them, messages that were read, tokens and cost."""

    model: str
    purpose: Purpose
    calls: int = 1
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    messages: int = 0

    def plus(self, other: ModelUsage) -> ModelUsage:
        """Return the sum of both, which must be of the same model and purpose."""
        return ModelUsage(
            self.model,
            self.purpose,
            self.calls + other.calls,
            self.failures + other.failures,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.messages + other.messages,
        )


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How many tokens a model may use in a day (UTC), and a function that returns how many it has used today."""

    tokens: int
    used: Callable[[], int]


class GuardedLanguageModel(GuardedService, LanguageModel):
    """A language model that, once unavailable, is not called for 1 s, then 2, 4, up to 60 s (or Retry-After).

    `record` gets the usage of each call. Token counts that the endpoint does not report are estimated; a call without
    an answer counts no tokens, since it is unknown whether it was billed. A call that was not sent, because the breaker
    is open or the prompt is invalid, is not counted. When the tokens of a `budget` are used up, the model counts as
    unavailable. `clock` returns monotonic seconds.

    Every prompt is made inert, whoever wrote it: a server of models would take a control token in it for a real one.
    """

    def __init__(
        self,
        inner: LanguageModel,
        *,
        prices: Prices | None = None,
        record: Callable[[ModelUsage], None] | None = None,
        budget: TokenBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self.name, self.source = inner.name, inner.source
        self._prices = prices or Prices()
        self._record = record
        self.budget = budget
        self._breaker = CircuitBreaker(inner.name, LanguageModelUnavailable, clock=clock)
        self._clock = clock
        self._worked_at: float | None = None
        self._refusals = 0
        self._unusable = ""
        self._found_nothing = 0
        self.is_used = False
        self._unrecorded: dict[Purpose, ModelUsage] = {}
        self._lock = threading.Lock()

    @property
    def last_error(self) -> str:
        """Return why it is down, why its last answer was unusable, or that it finds nothing; empty after a success."""
        nothing = f"it found nothing in the last {self._found_nothing} passages that patterns find something in"
        is_empty = self._found_nothing >= _EMPTY_PASSAGES
        return self._breaker.last_error or self._unusable or (nothing if is_empty else "")

    def complete(
        self,
        system: str,
        prompt: str,
        max_tokens: int,
        *,
        purpose: Purpose,
        check: Check = unchecked,
        form: type[msgspec.Struct] | None = None,
    ) -> Completion:
        """Complete with the inner model.

        Raises LanguageModelUnavailable at once while the breaker is open, or when the day's budget is spent.
        """
        require_prompt(system, prompt, max_tokens)
        if self.budget is not None and self.budget.used() >= self.budget.tokens:
            raise LanguageModelUnavailable(
                f"{self.name} has used its {self.budget.tokens} tokens of today: it is called again after midnight UTC."
                " Raise language_model_daily_tokens to call it before"
            )
        prompt = inert(prompt)

        def call() -> Completion:
            answer = self.inner.complete(system, prompt, max_tokens, purpose=purpose, check=check, form=form)
            if form is not None:  # an answer of another form counts as a failure
                decode_struct(answer, form, source=self.inner.source)
            return answer

        sent = system + (json_instructions(form) if form is not None else "") + prompt
        return self._breaker.call(lambda: self._counted(purpose, sent, call))

    def note_read(self, messages: int, *, purpose: Purpose) -> None:
        """Record messages that the model has read."""
        self._record_usage(ModelUsage(self.name, purpose, calls=0, messages=messages))

    def note_found(self, found: bool) -> bool:
        """Note whether the model found anything in a passage with something to find.

        Return whether it may be relied on: not after it found nothing twenty times in a row.
        """
        self._found_nothing = 0 if found else self._found_nothing + 1
        return self._found_nothing < _EMPTY_PASSAGES

    def close(self) -> None:
        """Close the inner model's connections, and record pending usage."""
        closing = getattr(self.inner, "close", None)
        if closing is not None:
            closing()
        self._record_usage(None)

    def _counted(self, purpose: Purpose, sent: str, call: Callable[[], Completion]) -> Completion:
        self.is_used = True
        try:
            answer = call()
        except LanguageModelRefused as error:
            self._record_usage(self._usage(purpose, sent, error.completion, failed=True))
            if error.completion is not None:
                self._unusable = str(error)
            elif self._refuses_all(purpose):
                raise LanguageModelUnavailable(f"{self.name} refuses every prompt: {error}") from error
            raise
        except LanguageModelUnavailable:
            self._record_usage(self._usage(purpose, sent, None, failed=True))
            raise
        self._record_usage(self._usage(purpose, sent, answer, failed=False))
        self._refusals, self._unusable = 0, ""
        return answer

    def _refuses_all(self, purpose: Purpose) -> bool:
        """Return whether the model refuses a known prompt, too: asked after the second refusal in a row, once a minute.

        Raises LanguageModelUnavailable if it does not answer.
        """
        self._refusals += 1
        if self._refusals == 1:  # one prompt may be at fault
            return False
        if self._worked_at is not None and self._clock() - self._worked_at < _KNOWN_TO_WORK_SECONDS:
            return False
        try:
            answer = self.inner.complete(_KNOWN_SYSTEM, _KNOWN_PROMPT, _KNOWN_TOKENS, purpose=purpose)
        except LanguageModelRefused as error:
            self._record_usage(self._usage(purpose, _KNOWN_PROMPT, error.completion, failed=True))
            self._worked_at = None
            return error.completion is None
        self._record_usage(self._usage(purpose, _KNOWN_PROMPT, answer, failed=False))
        self._worked_at = self._clock()
        return False

    def _usage(self, purpose: Purpose, sent: str, answer: Completion | None, *, failed: bool) -> ModelUsage:
        """Return the usage of a call that sent this text; tokens that the endpoint did not report are estimated."""
        input_tokens = output_tokens = 0
        if answer is not None:
            input_tokens = _reported_or_estimated(answer.input_tokens, sent)
            output_tokens = _reported_or_estimated(answer.output_tokens, answer.text)
        return ModelUsage(
            self.name,
            purpose,
            failures=int(failed),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=self._prices.cost(input_tokens, output_tokens),
        )

    def _record_usage(self, usage: ModelUsage | None) -> None:
        """Record this usage and any pending one."""
        if self._record is None:
            return
        with self._lock:
            waiting, self._unrecorded = self._unrecorded, {}
        if usage is not None:
            waiting[usage.purpose] = waiting[usage.purpose].plus(usage) if usage.purpose in waiting else usage
        for pending in waiting.values():
            try:
                self._record(pending)
            except ReverieError:
                self._add_unrecorded(pending)

    def _add_unrecorded(self, usage: ModelUsage) -> None:
        with self._lock:
            before = self._unrecorded.get(usage.purpose)
            self._unrecorded[usage.purpose] = before.plus(usage) if before else usage


def _reported_or_estimated(reported: int | None, text: str) -> int:
    return EstimatedTokens().count([text])[0] if reported is None else reported


# 100,000 tokens of text are half a megabyte; eight times that must be a mistake.
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
# No model uses a tenth of this in one call: a larger count is a mistake of the endpoint, and is not added to the usage.
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


class OpenAICompatibleLanguageModel(LanguageModel):
    """A chat endpoint, called with temperature 0: the same prompt should get the same completion."""

    def __init__(self, spec: ModelSpec) -> None:
        """Raises ValueError for a key that no header can contain."""
        self.name = spec.model
        self.source = spec.base_url.rstrip("/") + "/chat/completions"
        self._endpoint = Endpoint(self.source, key=spec.api_key, timeout_seconds=spec.timeout_seconds, errors=_ERRORS)
        # By form, because an endpoint may refuse one schema and accept another. Two threads may both find this out.
        self._accepted_formats: dict[type[msgspec.Struct], int] = {}
        self._unsupported: frozenset[str] = frozenset()

    def complete(
        self,
        system: str,
        prompt: str,
        max_tokens: int,
        *,
        purpose: Purpose,
        check: Check = unchecked,
        form: type[msgspec.Struct] | None = None,
    ) -> Completion:
        """Return the completion of one prompt.

        Raises LanguageModelUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and invalid JSON;
        LanguageModelRefused for 400, 413, 422 and for a response that is too long, empty or of another format.
        """
        del purpose  # the endpoint does not need it
        if form is None:
            return self._completion(self._request(system, prompt, max_tokens, None, check))[0]
        return self._completed_form(form, system, prompt, max_tokens, check)

    def _completed_form(
        self, form: type[msgspec.Struct], system: str, prompt: str, max_tokens: int, check: Check
    ) -> Completion:
        """Complete a prompt with the strictest `response_format` that the endpoint accepts and follows.

        The first request has the schema as its format. If the endpoint refuses or ignores that, the next one has the
        schema in its instructions, and asks for any JSON object. If it refuses that, too, the last one asks for no
        format. The next prompt for this form begins with what succeeded. The tokens are those of all answers.
        """
        described = json_instructions(form)
        ways = [(_schema_format(form), _JSON_ALONE), ({"type": "json_object"}, described), (None, described)]
        ignored: Completion | None = None
        for number in range(self._accepted_formats.get(form, 0), len(ways)):
            response_format, instructions = ways[number]
            response = self._request(f"{system}\n\n{instructions}".strip(), prompt, max_tokens, response_format, check)
            if response_format is not None and _refuses_format(response):
                continue
            completion, cut_off = self._completion(response)
            if ignored is not None:
                completion = completion.after(ignored)
            if cut_off:
                raise LanguageModelRefused(
                    f"{self.source}: the answer was cut off at {max_tokens} tokens", completion=completion
                )
            if _fits(completion, form, self.source):
                self._accepted_formats[form] = number
            elif number == 0:
                ignored = completion
                continue
            break
        return completion

    def _request(
        self, system: str, prompt: str, max_tokens: int, response_format: dict[str, Any] | None, check: Check
    ) -> Response:
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
        response = self._post(_without_unsupported(request, unsupported), check)
        while not _unsupported(response) <= unsupported:
            unsupported |= _unsupported(response)
            response = self._post(_without_unsupported(request, unsupported), check)
        if response.status == 200:
            self._unsupported = unsupported
        return response

    def _post(self, request: dict[str, Any], check: Check) -> Response:
        check()
        return self._endpoint.post(request, max_bytes=MAX_RESPONSE_BYTES)

    def _completion(self, response: Response) -> tuple[Completion, bool]:
        """Return the completion in a response, and whether it was cut off at the token limit."""
        if response.status != 200:
            raise self._endpoint.status_error(response)
        found = self._endpoint.decoded(response, _ChatCompletion)
        choice = found.choices[0] if found.choices else _Choice(_Message())
        text = choice.message.content or ""
        completion = Completion(text, _tokens(found.usage, "prompt_tokens"), _tokens(found.usage, "completion_tokens"))
        if not text.strip():
            raise LanguageModelRefused(f"{self.source} returned an empty answer", completion=completion)
        return completion, choice.finish_reason == "length"

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()


def _tokens(usage: Any, name: str) -> int | None:
    """Return a token count of a response, or None if it is missing or implausible, which is not an error."""
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MAX_TOKENS else None


def _schema_format(form: type[msgspec.Struct]) -> dict[str, Any]:
    schema = {"name": form.__name__.lstrip("_"), "strict": True, "schema": strict_schema(form)}
    return {"type": "json_schema", "json_schema": schema}


def _unsupported(response: Response) -> frozenset[str]:
    """Return the parameters that an endpoint refused: newer OpenAI models have other ones for length and sampling."""
    if response.status not in _PARAMETER_REFUSED:
        return frozenset()
    marks = {"max_tokens": b"max_completion_tokens", "temperature": b"temperature"}
    return frozenset(name for name, mark in marks.items() if mark in response.body)


def _without_unsupported(request: dict[str, Any], unsupported: frozenset[str]) -> dict[str, Any]:
    """Return a request without unsupported parameters, or with their replacement."""
    supported = {name: value for name, value in request.items() if name not in unsupported}
    if "max_tokens" in unsupported:
        supported["max_completion_tokens"] = request["max_tokens"]
    return supported


def _refuses_format(response: Response) -> bool:
    """Return whether an endpoint refused the response format, rather than the prompt."""
    named = b"response_format" in response.body or b"json_schema" in response.body or b"json_object" in response.body
    return response.status in _PARAMETER_REFUSED and named
