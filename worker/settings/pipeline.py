"""Settings of the ingest pipeline."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings

from reverie.pipeline.inbox_limits import InboxLimits


class PipelineSettings(BaseSettings):
    """How messages become searchable."""

    title: ClassVar[str] = "Pipeline"

    worker_concurrency: int = Field(
        2, ge=1, le=64, description="Number of processes of the pipeline worker that `reverie up` starts."
    )
    inbox_workspace_items: int = Field(
        200_000,
        ge=1_000,
        description="Maximum number of messages and files of a workspace that wait to be stored. Further ones are"
        " refused with `Unavailable` (HTTP status 429) until workers have stored some; what waits is kept.",
    )
    inbox_workspace_mb: float = Field(
        256.0, ge=32, description="Maximum size of what waits to be stored in a workspace, in MB (10^6 bytes)."
    )
    inbox_items: int = Field(
        500_000, ge=1_000, description="Maximum number of messages and files of all workspaces that wait to be stored."
    )
    inbox_mb: float = Field(
        512.0,
        ge=32,
        description="Maximum size of what waits to be stored in all workspaces, in MB. It is in the broker's memory,"
        " which needs about twice as much.",
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

    @property
    def inbox_limits(self) -> InboxLimits:
        """How much may wait to be stored."""
        return InboxLimits(
            workspace_items=self.inbox_workspace_items,
            workspace_bytes=int(self.inbox_workspace_mb * 1e6),
            items=self.inbox_items,
            bytes=int(self.inbox_mb * 1e6),
        )
