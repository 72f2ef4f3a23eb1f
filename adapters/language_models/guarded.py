"""A language model behind a circuit breaker, whose calls, tokens and cost are counted by what they were for.

Every call that reached the endpoint is counted once, a failed one too. Counting never fails a call: what cannot be
recorded now is handed over with the next call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from adapters.breaker import CircuitBreaker
from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModel,
    LanguageModelRefused,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_question,
)
from adapters.language_models.structured import instructions_for
from adapters.tokens import EstimatedTokens
from reverie.errors import ReverieError

_TOKENS_A_PRICE: Final = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in whatever currency the bill is in."""

    input: float = 0.0
    output: float = 0.0

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What these tokens cost."""
        return (input_tokens * self.input + output_tokens * self.output) / _TOKENS_A_PRICE


@dataclass(frozen=True, slots=True)
class Used:
    """What calls of one purpose took: how many, how many of them failed, their tokens and their cost."""

    model: str
    purpose: Purpose
    calls: int = 1
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Used) -> Used:
        """Both together; they are of the same model and purpose."""
        return Used(
            self.model,
            self.purpose,
            self.calls + other.calls,
            self.failures + other.failures,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )


class GuardedLanguageModel:
    """Once unavailable, the model is left alone for 1 s, then 2, 4, up to 60 s (or Retry-After).

    `record` is told of each call after it has ended. Where the endpoint does not say how many tokens a call took, they
    are estimated; a call that got no answer counts none, for nobody can say whether it was billed. A call that the
    open breaker refuses, or that no model can be asked, is not counted: nothing was sent. `clock` is monotonic seconds.
    """

    def __init__(
        self,
        inner: LanguageModel,
        *,
        prices: Prices | None = None,
        record: Callable[[Used], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self._prices = prices or Prices()
        self._record = record
        self._breaker = CircuitBreaker(inner.name, LanguageModelUnavailable, clock=clock)
        self._unrecorded: dict[Purpose, Used] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model's name, as the endpoint knows it."""
        return self.inner.name

    @property
    def state(self) -> Literal["up", "down"]:
        """ "down" from a failure until the next success."""
        return self._breaker.state

    @property
    def last_error(self) -> str:
        """Why it is down; empty while it is up."""
        return self._breaker.last_error

    @property
    def retry_at(self) -> float | None:
        """When it may be asked again, in seconds of the clock; None while it is up."""
        return self._breaker.retry_at

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """As the inner model. Raises LanguageModelUnavailable at once while the breaker is open."""
        require_question(system, prompt, max_tokens)
        asked = _Asked(system + prompt, purpose)
        return self._breaker.through(
            lambda: self._counted(
                asked, lambda: self.inner.complete(system, prompt, max_tokens, purpose=purpose), lambda answer: answer
            )
        )

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """As the inner model. Raises LanguageModelUnavailable at once while the breaker is open."""
        require_question(system, prompt, max_tokens)
        asked = _Asked(system + instructions_for(form) + prompt, purpose)
        return self._breaker.through(
            lambda: self._counted(
                asked,
                lambda: self.inner.complete_structured(system, prompt, max_tokens, form=form, purpose=purpose),
                lambda answer: answer.completion,
            )
        )

    def close(self) -> None:
        """Close the inner model's connections, where it has any, and hand over what is not recorded yet."""
        closing = getattr(self.inner, "close", None)
        if closing is not None:
            closing()
        self._hand_over(None)

    def _counted(self, asked: _Asked, ask: Callable[[], T], completion_of: Callable[[T], Completion]) -> T:
        try:
            answer = ask()
        except LanguageModelRefused as error:
            self._hand_over(self._used(asked, error.completion, failed=True))
            raise
        except LanguageModelUnavailable:
            self._hand_over(self._used(asked, None, failed=True))
            raise
        self._hand_over(self._used(asked, completion_of(answer), failed=False))
        return answer

    def _used(self, asked: _Asked, answer: Completion | None, *, failed: bool) -> Used:
        input_tokens = output_tokens = 0
        if answer is not None:
            input_tokens = _known(answer.input_tokens, asked.text)
            output_tokens = _known(answer.output_tokens, answer.text)
        return Used(
            self.name,
            asked.purpose,
            failures=int(failed),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=self._prices.of(input_tokens, output_tokens),
        )

    def _hand_over(self, used: Used | None) -> None:
        """Record this and what could not be recorded before."""
        if self._record is None:
            return
        with self._lock:
            waiting, self._unrecorded = self._unrecorded, {}
        if used is not None:
            waiting[used.purpose] = waiting[used.purpose].plus(used) if used.purpose in waiting else used
        for one in waiting.values():
            try:
                self._record(one)
            except ReverieError:
                self._keep(one)

    def _keep(self, used: Used) -> None:
        with self._lock:
            before = self._unrecorded.get(used.purpose)
            self._unrecorded[used.purpose] = before.plus(used) if before else used


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, for the estimate of its tokens."""

    text: str
    purpose: Purpose


def _known(said: int | None, text: str) -> int:
    return EstimatedTokens().count([text])[0] if said is None else said
