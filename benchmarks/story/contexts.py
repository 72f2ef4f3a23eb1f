"""Coverage of contexts: how much of an answer's evidence is in the document that a fresh session asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from benchmarks.harness.haystack import DatasetMessage
from benchmarks.harness.locomo import TurnQuestion
from benchmarks.story.world import World

# Tokens of the whole document.
CONTEXT_TOKENS: Final = 500
CONTEXT_ANY: Final = f"context_any_at_{CONTEXT_TOKENS}"
_CONTEXT_SHARE: Final = f"context_share_at_{CONTEXT_TOKENS}"
_SESSION: Final = "asking-now"


def greet(world: World, agents: Iterable[str]) -> None:
    """Start the session of each agent in which its contexts are built."""
    greeting = DatasetMessage(id="greeting", session=_SESSION, role="user", content="Hello!")
    for agent in agents:
        world.say(agent, _SESSION, [greeting])


def context_measures(world: World, asked: Sequence[tuple[str, TurnQuestion]]) -> dict[str, float]:
    """Return in percent how often any turn of the evidence is in the context, and the share of it that is.

    A turn counts as itself or by a memory made from it. Empty if no question has marked evidence.
    """
    shares = []
    for agent, question in asked:
        if question.evidence:
            built = world.context(agent, _SESSION, question.text, tokens=CONTEXT_TOKENS)
            found = {memory.source_message or memory.id for memory in built.memories}
            shares.append(len(question.evidence & found) / len(question.evidence))
    if not shares:
        return {}
    return {CONTEXT_ANY: 100 * fmean(share > 0 for share in shares), _CONTEXT_SHARE: 100 * fmean(shares)}
