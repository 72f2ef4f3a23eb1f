"""Session restore (R14): the newest messages of a session that fit into a number of tokens, and its summary.

What was asked of a tool and what it answered stay together: language models refuse an answer without its question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from adapters.tokens import TokenCounter, cut, newest_lines
from memory.sessions.exchanges import beginnings
from memory.sessions.exchanges import costs as costs_of
from memory.sessions.sessions import to_message
from reverie.errors import Rejected
from reverie.types import Restored
from storage.pipeline.records import MessageRecord
from storage.sessions.summary_text import without_quoted
from storage.stores import Store
from storage.transaction import AgentRepositories

_PAGE: Final = 100
# A summary says what the messages do not: at most this part of the budget.
_SUMMARY_SHARE: Final = 4


def restore_session(store: Store, counter: TokenCounter, *, agent: str, session: str, token_budget: int) -> Restored:
    """The newest messages of a session that fit, oldest first, and its summary; both count.

    A message counts its content, its tool calls as JSON, and 4 tokens for what stands round it. Where not even the
    newest fits, it is cut at the end of a word, and with it what belongs to it. Of the summary, lines that quote a
    message shown are left out, and the oldest where it is too long. Raises `NotFound`, and `Rejected` for a budget
    below 1.
    """
    if token_budget < 1:
        raise Rejected(f"token_budget is {token_budget}; it must be a whole number above 0", field="token_budget")
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        record = rows.sessions.get(session)
        whole = rows.sessions.summary(record.row_id) or ""
        (used,) = counter.count([newest_lines(whole, token_budget // _SUMMARY_SHARE, counter)])
        newest, costs = _newest(rows, record.row_id, counter, token_budget - used)
        uncovered = rows.summaries.coverage(record.row_id).uncovered
    first = _first_that_fits(newest, costs, token_budget - used)
    kept = newest[first:]
    shortened = 0
    if newest and not kept:
        kept, shortened = _shortened(_last_exchange(newest), counter, token_budget - used)
        costs = costs_of(kept, counter)
        first = 0
    summary = newest_lines(without_quoted(whole, [message.content for message in kept]), used, counter)
    (used,) = counter.count([summary])
    return Restored(
        session=session,
        messages=[to_message(message) for message in kept],
        tokens=used + sum(costs[first:]),
        left_out=record.messages - len(kept),
        summary=summary or None,
        shortened=shortened,
        uncovered=uncovered - sum(message.consolidated_at is None for message in kept),
    )


def _newest(
    rows: AgentRepositories, session_row: int, counter: TokenCounter, room: int
) -> tuple[list[MessageRecord], list[int]]:
    """The newest messages with their tokens, oldest first: enough of them to fill the room, and no more pages."""
    found: list[MessageRecord] = []
    costs: list[int] = []
    while True:
        page = rows.messages.of_session(session_row, limit=_PAGE, newest=True, offset=len(found))
        found, costs = [*page, *found], [*costs_of(page, counter), *costs]
        if len(page) < _PAGE or (sum(costs) > room and found[0].role != "tool"):
            return found, costs


def _first_that_fits(messages: Sequence[MessageRecord], costs: Sequence[int], room: int) -> int:
    """Where the longest tail begins that fits and does not tear a tool's answer from its question."""
    first = len(messages)
    while first and costs[first - 1] <= room:
        first -= 1
        room -= costs[first]
    allowed = beginnings(messages)
    while first < len(messages) and not allowed[first]:
        first += 1
    return first


def _last_exchange(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The newest message, with what it cannot do without."""
    allowed = beginnings(messages)
    first = next((place for place in range(len(messages) - 1, -1, -1) if allowed[place]), len(messages))
    return list(messages[first:])


def _shortened(messages: list[MessageRecord], counter: TokenCounter, room: int) -> tuple[list[MessageRecord], int]:
    """Messages cut so that together they fit, the longest most; none where not even their frames do."""
    contents = counter.count([message.content for message in messages])
    room -= sum(costs_of(messages, counter)) - sum(contents)
    (least,) = counter.count(["…"])
    if not messages or room < least * len(messages):
        return [], 0
    most = _level(contents, room)
    cut_down = [
        replace(message, content=cut(message.content, most, counter)) if size > most else message
        for message, size in zip(messages, contents, strict=True)
    ]
    return cut_down, sum(size > most for size in contents)


def _level(sizes: Sequence[int], room: int) -> int:
    """The highest level to which sizes can be cut so that their sum fits into the room."""
    left, level = room, 0
    for place, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - place)
        if size > level:
            return level
        left -= size
    return level
