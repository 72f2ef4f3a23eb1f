"""A language model with scripted answers: a fake for tests and dry runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_prompt,
)
from adapters.language_models.structured import decode_struct


class ScriptedLanguageModel:
    """Returns answers from a list in turn, repeating the last one; an exception among them is raised.

    `prompts` records (system, prompt) pairs, and `purposes` their purposes. Structured answers are given as JSON.
    """

    name = "scripted"

    def __init__(self, answers: Iterable[str | Exception]) -> None:
        self.prompts: list[tuple[str, str]] = []
        self.purposes: list[Purpose] = []
        self._answers = list(answers)
        self._lock = threading.Lock()

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """Return the next answer. Raises LanguageModelUnavailable if the list is empty."""
        require_prompt(system, prompt, max_tokens)
        with self._lock:
            self.prompts.append((system, prompt))
            self.purposes.append(purpose)
            if not self._answers:
                raise LanguageModelUnavailable("the script has no more answers")
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        words = answer.split(" ")[:max_tokens]
        return Completion(" ".join(words), len(f"{system} {prompt}".split()), len(words))

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """Return the next answer as a struct. Raises as `complete` does, and LanguageModelRefused for other JSON."""
        return decode_struct(self.complete(system, prompt, max_tokens, purpose=purpose), form, source=self.name)
