"""Turn messages into lines of a summary: with a language model if there is one, else with their own sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.language_models import LanguageModel
from adapters.tokens import TokenCounter
from memory.sessions.condensing_by_model import INPUT_TOKENS, NoSummary, condense_by_model
from memory.sessions.line_selection import select_lines
from memory.sessions.passages import ChunkVector, passages_of, passages_of_lines, unquotable_lines
from reverie.errors import Transient
from storage.pipeline.records import MessageRecord
from storage.sessions.summary_text import Line, format_summary

# Calls of the model per step: each may take as long as its timeout, 20 s by default.
_CALLS_PER_STEP: Final = 4


class NotCondensed(Transient):
    """The language model returned no summary and nothing may replace it: nothing has changed; it is tried again."""


@dataclass(frozen=True, slots=True)
class Condensed:
    """Lines of a summary, their author, and why a configured language model did not write them."""

    lines: list[Line]
    author: str
    model_error: str = ""


@dataclass(frozen=True, slots=True)
class Condenser:
    """Condenses messages. With `fallback` their own sentences replace the summary of a model that fails."""

    counter: TokenCounter
    model: LanguageModel | None = None
    fallback: bool = True

    @property
    def max_tokens(self) -> int | None:
        """The tokens to condense in one step, so that a job's lease lasts; None for no limit."""
        return None if self.model is None else _CALLS_PER_STEP * INPUT_TOKENS

    def condense(
        self, messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]], limit_tokens: int
    ) -> Condensed:
        """Return lines that summarise these messages in at most `limit_tokens`. Raises `NotCondensed`.

        `vectors` has the chunks of each message by its row, where there are any.
        """
        unquotable = unquotable_lines(messages)
        room = limit_tokens - (self._tokens(unquotable) + 1 if unquotable else 0)
        has_text = any(message.role in ("user", "assistant") and message.content.strip() for message in messages)
        if room < 1 or not has_text:
            fitting = unquotable if self._tokens(unquotable) <= limit_tokens else []
            return Condensed(fitting, "no text to quote")
        model_error = ""
        if self.model is not None:
            try:
                lines = condense_by_model(self.model, messages, room, self.counter)
                return Condensed([*lines, *unquotable], f"the language model {self.model.name}")
            except NoSummary as error:
                if not self.fallback:
                    raise NotCondensed(f"no summary: {error}") from error
                model_error = str(error)
        lines = select_lines(passages_of(messages, vectors), room, self.counter)
        return Condensed([*lines, *unquotable], "its own sentences", model_error)

    def _tokens(self, lines: Sequence[Line]) -> int:
        return self.counter.count([format_summary(lines)])[0]


def append_lines(old: Sequence[Line], new: Sequence[Line], max_tokens: int, counter: TokenCounter) -> list[Line]:
    """Return a summary with new lines at its end, in at most `max_tokens`; the oldest lines are condensed to fit.

    The oldest lines with twice the tokens that have to go are condensed to half. New lines are kept as they are, unless
    they exceed the limit by themselves.
    """
    lines = [*old, *new]
    while (excess := counter.count([format_summary(lines)])[0] - max_tokens) > 0:
        reducible = len(lines) - len(new) if len(lines) > len(new) else len(lines)
        tokens = [count + 1 for count in counter.count([str(line) for line in lines[:reducible]])]
        block, size = 0, 0
        while block < reducible and size < 2 * excess:
            size += tokens[block]
            block += 1
        room = size - excess
        reduced = select_lines(passages_of_lines(lines[:block]), room, counter) if room > 0 else []
        if len(reduced) == block:  # nothing could be dropped: the oldest line goes
            reduced = reduced[1:] if block > 1 or len(lines) > 1 else []
        lines = [*reduced, *lines[block:]]
    return lines
