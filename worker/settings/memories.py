"""Settings of the extraction of memories."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings


class MemorySettings(BaseSettings):
    """Which memories are extracted from messages, and when."""

    title: ClassVar[str] = "Extraction of memories"

    extraction_enabled: bool = Field(True, description="Extract memories from the messages of users.")
    extraction_model: str | None = Field(
        None, description="Name of the language model for extraction. Default: `language_model`."
    )
    extraction_min_message_length: int = Field(
        20, ge=1, description="Minimum length in characters of a message that memories are extracted from."
    )
    extraction_debounce_seconds: float = Field(
        30.0, ge=0, le=3_600, description="Seconds without a message after which memories are extracted from a session."
    )
    extraction_confidence_threshold: float = Field(
        0.7, ge=0, le=1, description="Minimum confidence of an extracted memory; those below are dropped."
    )
