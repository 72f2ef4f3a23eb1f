"""The section of a context for standing instructions: what the agent was told to do from now on, and by whom.

They are asked for by no query: every context has those that are in force, the newest first, within tokens of their own.
Text of them is the only stored text that an agent is told to follow, so one that another user gave is never here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from adapters.tokens import TokenCounter, truncate
from retrieval.context.history import date_of
from retrieval.context.neutral import label, lines_of
from retrieval.twins import normalised
from reverie.memories.types import Provenance
from storage.memories.instructions import MAX_COUNTED, Applies, StandingInstruction
from storage.stores import Store

HEADING: Final = "\n## Standing instructions\n\n"
# Hardly any instruction has fewer tokens, so no more than this many can fit.
_SHORT_TOKENS: Final = 8
# One that is longer than this share (1/n) of the tokens for all is cut: it must not displace all others.
_LONGEST_SHARE: Final = 2
# Whose word needs no mark: that of a user, and what an agent was given for its users.
_OWN_WORD: Final = frozenset({"user", "agent", "unknown"})
# A message that says little more than an instruction repeats it.
_REPEATS_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Instructions:
    """The newest instructions that apply, newest first, how many apply in all, and the section that tells them.

    `provenances` say where they come from, by their ids; `user` is the one that they apply to.
    """

    shown: tuple[StandingInstruction, ...] = ()
    total: int = 0
    section: str = ""
    provenances: Mapping[str, Provenance] = field(default_factory=dict)
    user: str | None = None

    @property
    def left_out(self) -> int:
        """How many apply and are not told."""
        return self.total - len(self.shown)

    def repeats(self, *, memory: str | None, message: str | None, text: str) -> bool:
        """Return whether a memory or message says what is told here."""
        return any(
            one.id == memory
            or (
                message is not None
                and one.source_message == message
                and len(text) <= len(one.content) + _REPEATS_CHARACTERS
            )
            or normalised(one.content) == normalised(text)
            for one in self.shown
        )


def read_instructions(
    stores: Iterable[Store | None], agent: str, applies: Applies, *, limit_tokens: int
) -> Instructions:
    """Return the newest instructions of the workspace and the account that may fit, newest first, not yet written."""
    limit = limit_tokens // _SHORT_TOKENS + 1
    found: list[StandingInstruction] = []
    provenances: dict[str, Provenance] = {}
    total = 0
    if limit_tokens > 0:
        for store in stores:
            if store is not None:
                with store.reading() as tx:
                    rows = tx.for_agent(agent)
                    newest = rows.instructions.newest(applies, limit=limit)
                    found += newest
                    total += len(newest) if len(newest) < limit else rows.instructions.count(applies)
                    if newest:
                        provenances |= rows.provenances.of([one.id for one in newest])
    distinct = _newest_of_each(sorted(found, key=lambda one: (-one.created_at, -one.row_id)))
    total -= len(found) - len(distinct)
    return Instructions(tuple(distinct), total, provenances=provenances, user=applies.user)


def write_section(instructions: Instructions, counter: TokenCounter, *, room: int) -> Instructions:
    """Return what fits into `room` tokens, the newest first, with the section that tells it."""
    if not instructions.shown or room <= 0:
        return replace(instructions, shown=(), section="")
    lines = [_line(one, _mark(one, instructions), counter, room // _LONGEST_SHARE) for one in instructions.shown]
    count = len(lines)
    while count:
        section = HEADING + "".join(lines[:count]) + _more(instructions.total - count)
        if counter.count([section])[0] <= room:
            return replace(instructions, shown=instructions.shown[:count], section=section)
        count -= 1
    return replace(instructions, shown=(), section="")


def _newest_of_each(found: Sequence[StandingInstruction]) -> list[StandingInstruction]:
    """Drop what a newer one of the same owner replaces: one may be of the workspace, the other of the account."""
    subjects: dict[tuple[str | None, str], None] = {}
    kept: list[StandingInstruction] = []
    for one in found:
        key = (one.owner, one.subject or one.id)
        if key not in subjects:
            subjects[key] = None
            kept.append(one)
    return kept


def _mark(one: StandingInstruction, instructions: Instructions) -> str:
    """Return whose an instruction is, if it is neither the user's own nor the agent's; tokens are few here."""
    marks = [] if one.owner in (None, instructions.user) else [f"of {label(one.owner or '')}, for all"]
    provenance = instructions.provenances.get(one.id)
    if provenance is not None and provenance.trust not in _OWN_WORD:
        marks.append(label(provenance.trust))
    return f" ({', '.join(marks)})" if marks else ""


def _line(one: StandingInstruction, mark: str, counter: TokenCounter, limit: int) -> str:
    text = " ".join(line.strip() for line in lines_of(one.content) if line.strip())
    (tokens,) = counter.count([text])
    shown = truncate(text, limit, counter) if tokens > limit else text
    return f"- {date_of(one.created_at)}: {shown}{mark}\n"


def _more(left: int) -> str:
    if left <= 0:
        return ""
    number = f"{MAX_COUNTED:,} or more" if left >= MAX_COUNTED else f"{left:,}"
    return f"- {number} more: `reverie memory list --kind instruction`\n"
