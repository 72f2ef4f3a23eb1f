"""Settings of recall and of contexts."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings


class RecallSettings(BaseSettings):
    """How much recall keeps in memory, records, and puts into a context."""

    title: ClassVar[str] = "Recall and context"

    recall_memory_mb: int = Field(
        1024,
        ge=16,
        description="Memory for the in-memory indexes of recently used agents, in MB for each server process."
        " 1,000 chunks take 0.6 MB.",
    )
    recall_events: bool = Field(
        True,
        description="Record what recalls return. Decay and dream sweeps depend on it: without it, memories that are"
        " recalled fade like others, and nothing is promoted.",
    )
    recall_event_min_score: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Relevance from which a result counts as found: results below it are returned, but not recorded.",
    )
    recall_events_days: float = Field(90.0, gt=0, le=36_500, description="Days for which recall events are kept.")
    recency_window: int = Field(
        10,
        ge=1,
        le=100,
        description="Number of newest messages of a session that come first in its context, within the maximum.",
    )
    max_context_messages: int = Field(
        20,
        ge=1,
        le=1000,
        description="Maximum number of messages of a session in its context: recent ones, then important ones, then"
        " relevant ones.",
    )
    max_context_memories: int = Field(
        100, ge=0, le=100, description="Maximum number of memories and other results in a context."
    )
    context_memory_tokens: int = Field(
        1_000,
        ge=0,
        description="Maximum number of tokens of memories and other results in a context, unless the call gives"
        " `memory_tokens` or a `token_budget`, all of which may be filled.",
    )
    context_instruction_tokens: int = Field(
        150,
        ge=0,
        description="Maximum number of tokens of the standing instructions in a context, unless the call gives"
        " `instruction_tokens`; 0 leaves them out.",
    )
    context_min_score: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Relevance that at least one memory or other result must reach for any to be put into a context,"
        " unless the call gives a `min_score`. The context of a schedule's goal leaves out every result below it.",
    )
