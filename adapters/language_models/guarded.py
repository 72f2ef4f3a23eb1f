"""A language model behind a circuit breaker that counts calls, tokens and cost by purpose.

Every call that reached the endpoint is counted once, including failures. Counting never fails a call: usage that cannot
be recorded now is recorded with the next call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from adapters.breaker import CircuitBreaker, GuardedService
from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModel,
    LanguageModelRefused,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_prompt,
)
from adapters.language_models.structured import json_instructions
from adapters.tokens import EstimatedTokens
from reverie.errors import ReverieError
from reverie.inert import inert

_TOKENS_PER_PRICE: Final = 1_000_000
# A prompt that every model answers. If even this one is refused, the model is at fault and not the prompt.
_KNOWN_SYSTEM: Final = "Answer with one word."
_KNOWN_PROMPT: Final = "Say hello."
_KNOWN_TOKENS: Final = 16
_KNOWN_TO_WORK_SECONDS: Final = 60.0

T = TypeVar("T")


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
    """The usage of a model for one purpose: calls, failures among them, tokens and cost."""

    model: str
    purpose: Purpose
    calls: int = 1
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

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
        )


class GuardedLanguageModel(GuardedService):
    """A language model that, once unavailable, is not called for 1 s, then 2, 4, up to 60 s (or Retry-After).

    `record` gets the usage of each call. Token counts that the endpoint does not report are estimated; a call without
    an answer counts no tokens, since it is unknown whether it was billed. A call that was not sent, because the breaker
    is open or the prompt is invalid, is not counted. `clock` returns monotonic seconds.

    Every prompt is made inert, whoever wrote it: a server of models would take a control token in it for a real one.
    """

    def __init__(
        self,
        inner: LanguageModel,
        *,
        prices: Prices | None = None,
        record: Callable[[ModelUsage], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self._prices = prices or Prices()
        self._record = record
        self._breaker = CircuitBreaker(inner.name, LanguageModelUnavailable, clock=clock)
        self._clock = clock
        self._worked_at: float | None = None
        self._refusals = 0
        self._unrecorded: dict[Purpose, ModelUsage] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Return the name of the model at the endpoint."""
        return self.inner.name

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """Complete with the inner model. Raises LanguageModelUnavailable at once while the breaker is open."""
        require_prompt(system, prompt, max_tokens)
        prompt = inert(prompt)
        sent = _Sent(system + prompt, purpose)
        return self._breaker.call(
            lambda: self._counted(
                sent, lambda: self.inner.complete(system, prompt, max_tokens, purpose=purpose), lambda answer: answer
            )
        )

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """Complete with the inner model. Raises LanguageModelUnavailable at once while the breaker is open."""
        require_prompt(system, prompt, max_tokens)
        prompt = inert(prompt)
        sent = _Sent(system + json_instructions(form) + prompt, purpose)
        return self._breaker.call(
            lambda: self._counted(
                sent,
                lambda: self.inner.complete_structured(system, prompt, max_tokens, form=form, purpose=purpose),
                lambda answer: answer.completion,
            )
        )

    def close(self) -> None:
        """Close the inner model's connections, and record pending usage."""
        closing = getattr(self.inner, "close", None)
        if closing is not None:
            closing()
        self._record_usage(None)

    def _counted(self, sent: _Sent, call: Callable[[], T], get_completion: Callable[[T], Completion]) -> T:
        try:
            answer = call()
        except LanguageModelRefused as error:
            self._record_usage(self._usage(sent, error.completion, failed=True))
            if error.completion is None and self._refuses_all(sent.purpose):
                raise LanguageModelUnavailable(f"{self.name} refuses every prompt: {error}") from error
            raise
        except LanguageModelUnavailable:
            self._record_usage(self._usage(sent, None, failed=True))
            raise
        self._record_usage(self._usage(sent, get_completion(answer), failed=False))
        self._refusals = 0
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
            self._record_usage(self._usage(_Sent(_KNOWN_PROMPT, purpose), error.completion, failed=True))
            self._worked_at = None
            return error.completion is None
        self._record_usage(self._usage(_Sent(_KNOWN_PROMPT, purpose), answer, failed=False))
        self._worked_at = self._clock()
        return False

    def _usage(self, sent: _Sent, answer: Completion | None, *, failed: bool) -> ModelUsage:
        input_tokens = output_tokens = 0
        if answer is not None:
            input_tokens = _reported_or_estimated(answer.input_tokens, sent.text)
            output_tokens = _reported_or_estimated(answer.output_tokens, answer.text)
        return ModelUsage(
            self.name,
            sent.purpose,
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


@dataclass(frozen=True, slots=True)
class _Sent:
    """What was sent to the model, to estimate its tokens."""

    text: str
    purpose: Purpose


def _reported_or_estimated(reported: int | None, text: str) -> int:
    return EstimatedTokens().count([text])[0] if reported is None else reported
