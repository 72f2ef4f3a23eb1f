"""How messages become lines of a summary: by a language model where there is one, else by their own sentences (B12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.language_models import LanguageModel
from adapters.tokens import TokenCounter
from memory.sessions.condensing_by_model import INPUT_TOKENS, NoSummary, condense_by_model
from memory.sessions.line_selection import extract
from memory.sessions.passages import ChunkVector, passages_of, passages_of_lines, unquoted
from reverie.errors import Transient
from storage.pipeline.records import MessageRecord
from storage.sessions.summary_text import Line, format_summary

# A question may take as long as the model's timeout: 20 s by default.
_QUESTIONS_A_STEP: Final = 4


class NotCondensed(Transient):
    """The language model gave no summary and nothing may stand in for it: nothing is changed, and it is tried again."""


@dataclass(frozen=True, slots=True)
class Condensed:
    """Lines of a summary, who wrote them, and why not the language model where there is one."""

    lines: list[Line]
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Condenser:
    """Condenses messages. With `fallback` their own sentences stand in for a model that gives no summary."""

    counter: TokenCounter
    model: LanguageModel | None = None
    fallback: bool = True

    @property
    def most_tokens(self) -> int | None:
        """How much of a conversation to condense at once, so that a job's lease lasts; None where all can be."""
        return None if self.model is None else _QUESTIONS_A_STEP * INPUT_TOKENS

    def condense(
        self, messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]], limit_tokens: int
    ) -> Condensed:
        """The lines that stand for these messages, of at most so many tokens. Raises NotCondensed.

        `vectors` has the chunks of each message's row, as far as they have any.
        """
        told = unquoted(messages)
        room = limit_tokens - (self.counter.count([format_summary(told)])[0] + 1 if told else 0)
        if room < 1 or not any(
            message.role in ("user", "assistant") and message.content.strip() for message in messages
        ):
            return Condensed(self._within(told, limit_tokens), "no text to quote")
        why = ""
        if self.model is not None:
            try:
                lines = condense_by_model(self.model, messages, room, self.counter)
                return Condensed([*lines, *told], f"the language model {self.model.name}")
            except NoSummary as error:
                if not self.fallback:
                    raise NotCondensed(f"no summary: {error}") from error
                why = str(error)
        return Condensed(
            [*extract(passages_of(messages, vectors), room, self.counter), *told], "its own sentences", why
        )

    def _within(self, lines: list[Line], limit_tokens: int) -> list[Line]:
        return lines if self.counter.count([format_summary(lines)])[0] <= limit_tokens else []


def appended(old: Sequence[Line], new: Sequence[Line], most_tokens: int, counter: TokenCounter) -> list[Line]:
    """A summary with new lines at its end, of at most so many tokens: what is too much, the oldest lines lose.

    Twice as many of the oldest tokens as have to go are condensed to half; the newest lines stay as they are, unless
    they are too many by themselves.
    """
    lines = [*old, *new]
    while (excess := counter.count([format_summary(lines)])[0] - most_tokens) > 0:
        fading = len(lines) - len(new) if len(lines) > len(new) else len(lines)
        costs = [tokens + 1 for tokens in counter.count([str(line) for line in lines[:fading]])]
        block, size = 0, 0
        while block < fading and size < 2 * excess:
            size += costs[block]
            block += 1
        kept = _thinned(lines[:block], size - excess, counter)
        if len(kept) == block:  # nothing of it could go: its oldest line does
            kept = kept[1:] if block > 1 or len(lines) > 1 else []
        lines = [*kept, *lines[block:]]
    return lines


def _thinned(lines: Sequence[Line], room: int, counter: TokenCounter) -> list[Line]:
    return extract(passages_of_lines(lines), room, counter) if room > 0 else []
