"""What a language model is: instructions and a question in, a text or a value of a given form out.

What comes back is a stranger's text: whoever asks checks it before anything follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec

from adapters.breaker import Away
from reverie.errors import Permanent

DEFAULT_TIMEOUT_SECONDS: Final = 20.0

# What a call is for: calls, tokens and cost are counted by it.
Purpose = Literal["extraction", "summary", "refinement", "schedule"]

Form = TypeVar("Form", bound=msgspec.Struct)


class LanguageModelUnavailable(Away):
    """The model cannot answer now: endpoint down, limited or slow, key refused. Try again later."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered, and the tokens that the endpoint says it took; None where it says nothing."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class LanguageModelRefused(Permanent):
    """This question will never get an answer from this model: it was refused, or the answer was unusable.

    `completion` is the unusable answer, which took its tokens all the same; None where the question was refused.
    """

    def __init__(self, message: str, *, completion: Completion | None = None) -> None:
        super().__init__(message)
        self.completion = completion


@dataclass(frozen=True, slots=True)
class Structured(Generic[Form]):
    """An answer of the form that was asked for, and the text that it was read from."""

    value: Form
    completion: Completion


class LanguageModel(Protocol):
    """Answers questions. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The model's name, as the endpoint knows it."""

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """The answer to one prompt, of at most `max_tokens` tokens and not empty.

        Raises LanguageModelUnavailable (try again later) or LanguageModelRefused (this question never).
        """

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """The answer to one prompt as a struct of this type; `system` need not describe its JSON.

        The types and limits of the struct hold, and nothing more: what the values say is still a stranger's word.
        Raises as `complete` does, LanguageModelRefused for an answer of another form too.
        """


@dataclass(frozen=True, slots=True)
class LanguageModelSpec:
    """What the settings say of the language model."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


def require_question(system: str, prompt: str, max_tokens: int) -> None:
    """Raises LanguageModelRefused for what no model can be asked: a lone surrogate, nothing, no room for an answer."""
    if not prompt.strip():
        raise LanguageModelRefused("the prompt is empty")
    if max_tokens < 1:
        raise LanguageModelRefused(f"max_tokens is {max_tokens}; it must be at least 1")
    try:
        (system + prompt).encode()
    except UnicodeEncodeError as error:
        raise LanguageModelRefused("the prompt holds a lone surrogate: mend the text where it is made") from error
