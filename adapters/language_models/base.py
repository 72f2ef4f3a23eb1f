"""The Protocol of language models: instructions and a prompt in, a text or a struct out.

The output is untrusted text: callers check it before they act on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec

from adapters.breaker import ServiceUnavailable
from reverie.errors import Permanent

DEFAULT_TIMEOUT_SECONDS: Final = 20.0

# The purpose of a call; calls, tokens and cost are counted by purpose.
Purpose = Literal["extraction", "summary", "refinement", "schedule"]

Form = TypeVar("Form", bound=msgspec.Struct)


class LanguageModelUnavailable(ServiceUnavailable):
    """The model cannot answer now (endpoint down, limited or slow, key refused): try again later."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The text of a completion, and the token counts reported by the endpoint, or None."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None


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

    @property
    def name(self) -> str:
        """The name of the model at the endpoint."""

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """Return the completion of one prompt: not empty, at most `max_tokens` tokens.

        Raises LanguageModelUnavailable (try again later) or LanguageModelRefused (never for this prompt).
        """

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """Return the completion of one prompt as a struct of type `form`; `system` need not describe its JSON.

        Only the types and limits of the struct are checked; the values are still untrusted. Raises as `complete` does,
        and LanguageModelRefused for an answer of another form.
        """


@dataclass(frozen=True, slots=True)
class LanguageModelSpec:
    """The settings of a language model."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


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
