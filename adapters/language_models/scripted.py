"""A language model that says what it was told to say: the fake for tests and for dry runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from adapters.language_models.base import (
    Completion,
    Form,
    LanguageModelUnavailable,
    Purpose,
    Structured,
    require_question,
)
from adapters.language_models.structured import decoded


class ScriptedLanguageModel:
    """Gives the answers of a list in turn, the last of them again and again; an exception among them is raised.

    `asked` has what it was asked, and `purposes` what for. Structured answers are given as JSON.
    """

    name = "scripted"

    def __init__(self, answers: Iterable[str | Exception]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.purposes: list[Purpose] = []
        self._answers = list(answers)
        self._lock = threading.Lock()

    def complete(self, system: str, prompt: str, max_tokens: int, *, purpose: Purpose) -> Completion:
        """The next answer. Raises LanguageModelUnavailable when there is none at all."""
        require_question(system, prompt, max_tokens)
        with self._lock:
            self.asked.append((system, prompt))
            self.purposes.append(purpose)
            if not self._answers:
                raise LanguageModelUnavailable("the script holds no answer")
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        words = answer.split(" ")[:max_tokens]
        return Completion(" ".join(words), len(f"{system} {prompt}".split()), len(words))

    def complete_structured(
        self, system: str, prompt: str, max_tokens: int, *, form: type[Form], purpose: Purpose
    ) -> Structured[Form]:
        """The next answer, read as this struct. Raises as `complete` does; LanguageModelRefused for no such JSON."""
        return decoded(self.complete(system, prompt, max_tokens, purpose=purpose), form, source=self.name)
