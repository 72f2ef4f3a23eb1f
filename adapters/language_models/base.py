"""What a language model is: instructions and a question in, a text out.

What comes back is a stranger's text: whoever asks checks it before anything follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from reverie.errors import Permanent, Unavailable

DEFAULT_TIMEOUT_SECONDS: Final = 20.0


class LanguageModelUnavailable(Unavailable):
    """The model cannot answer now: endpoint down, limited or slow, key refused. Try again later.

    `retry_after_seconds` is the wait that the endpoint asked for, or None.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class LanguageModelRefused(Permanent):
    """This question will never get an answer from this model: it was refused, or the answer was unusable."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered, and the tokens that the endpoint says it took; None where it says nothing."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class LanguageModel(Protocol):
    """Answers questions. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The model's name, as the endpoint knows it."""

    def complete(self, system: str, prompt: str, max_tokens: int) -> Completion:
        """The answer to one prompt, of at most `max_tokens` tokens and not empty.

        Raises LanguageModelUnavailable (try again later) or LanguageModelRefused (this question never).
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
