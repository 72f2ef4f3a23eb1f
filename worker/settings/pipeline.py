"""Settings of the ingest pipeline."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings


class PipelineSettings(BaseSettings):
    """How messages become searchable."""

    title: ClassVar[str] = "Pipeline"

    worker_concurrency: int = Field(
        2, ge=1, le=64, description="Number of processes of the pipeline worker that `reverie up` starts."
    )
    embedding_batch_size: int = Field(
        256, ge=1, le=2048, description="Maximum number of chunks that the embed worker claims and embeds at once."
    )
    sweep_interval_seconds: float = Field(
        15.0,
        ge=1,
        le=60,
        description="Seconds between recovery sweeps, which resume work whose task was lost, and between checks for"
        " sessions to extract memories from.",
    )
    backfill_interval_minutes: float = Field(
        30.0, gt=0, description="Minutes between backfill runs, which embed chunks that still have no vector."
    )
    backfill_batch_size: int = Field(
        50, ge=1, le=2048, description="Maximum number of chunks that a backfill run claims and embeds at once."
    )
