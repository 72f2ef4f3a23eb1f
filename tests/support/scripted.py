"""A language model, a reranker and a webhook sender that call nothing: they answer by a script, and note each call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from adapters.language_models import (
    Check,
    Completion,
    LanguageModel,
    LanguageModelUnavailable,
    Purpose,
    require_prompt,
    unchecked,
)
from adapters.rerankers import require_unicode
from adapters.webhooks.addresses import AllowedHosts, WebhookPolicy, check_webhook_url
from adapters.webhooks.sender import Body, WebhookAnswer, WebhookFailed, WebhookRefused
from adapters.webhooks.signing import Signer, check_message
from reverie.errors import Rejected


class ScriptedLanguageModel(LanguageModel):
    """Returns answers from a list in turn, repeating the last one; an exception among them is raised.

    `prompts` records (system, prompt) pairs, and `purposes` their purposes. Structured answers are given as JSON.
    """

    name = source = "scripted"

    def __init__(self, answers: Iterable[str | Exception]) -> None:
        self.prompts: list[tuple[str, str]] = []
        self.purposes: list[Purpose] = []
        self.messages_read = 0
        self._answers = list(answers)
        self._lock = threading.Lock()

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
        """Return the next answer. Raises LanguageModelUnavailable if the list is empty."""
        require_prompt(system, prompt, max_tokens)
        check()
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

    def note_read(self, messages: int, *, purpose: Purpose) -> None:
        """Add to `messages_read`."""
        self.messages_read += messages


class ScriptedReranker:
    """Scores each text by `score`, a function of the query and the text. `asked` has all calls."""

    name: Final = "scripted"

    def __init__(self, score: Callable[[str, str], float]) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self._score = score

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text. Raises RerankRefused for a text that is not valid Unicode."""
        require_unicode(query, texts)
        self.asked.append((query, list(texts)))
        return [self._score(query, text) for text in texts]


@dataclass(frozen=True, slots=True)
class Posted:
    """One message as the receiver would have got it; `body` is the decoded JSON."""

    url: str
    message_id: str
    body: Any
    timeout_seconds: float
    now: datetime
    signer: Signer | None = None


Scripted: TypeAlias = WebhookAnswer | Exception | Callable[[Posted], WebhookAnswer]


class ScriptedWebhookSender:
    """Returns answers from a list in turn, repeating the last one, and records the messages in `posted`.

    An exception among the answers is raised; a function is called with the message. URLs are checked as by the real
    sender before a name is resolved; without `allow` every address is allowed.
    """

    def __init__(self, answers: Iterable[Scripted] = (WebhookAnswer(200),), allow: AllowedHosts | None = None) -> None:
        self.posted: list[Posted] = []
        self._answers = list(answers)
        self._policy = WebhookPolicy(AllowedHosts(everything=True) if allow is None else allow, https_only=False)
        self._lock = threading.Lock()

    def post(
        self,
        url: str,
        *,
        message_id: str,
        body: Body,
        timeout_seconds: float,
        now: datetime,
        signer: Signer | None = None,
    ) -> WebhookAnswer:
        """Return the next answer. Raises WebhookFailed if the list is empty."""
        check_message(message_id, now)
        try:
            check_webhook_url(url, self._policy)
        except Rejected as error:
            raise WebhookRefused(str(error)) from error
        decoded = msgspec.json.decode(msgspec.json.encode(body))
        posted = Posted(url, message_id, decoded, timeout_seconds, now, signer)
        answer = self._next(posted)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, WebhookAnswer) else answer(posted)

    def _next(self, posted: Posted) -> Scripted:
        with self._lock:
            self.posted.append(posted)
            if not self._answers:
                raise WebhookFailed("the script has no more answers", passing=True)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
