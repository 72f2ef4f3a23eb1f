"""The quotas that calls return."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from reverie.types import ListResult

# What quotas limit, of a workspace; the last one of a tenant.
Quota: TypeAlias = Literal["messages", "bytes", "memories", "schedules", "workspaces"]
Holder: TypeAlias = Literal["workspace", "tenant"]


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of something a workspace holds, or a tenant: its workspaces, and its part of the account tier.

    `limit` None is no limit. `set_for` says where the limit comes from; empty for the settings.
    """

    holder: Holder
    name: str
    tenant: str
    resource: Quota
    used: int
    limit: int | None = None
    set_for: Literal["", "workspace", "tenant"] = ""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is accepted."""
        return self.limit is not None and self.used >= self.limit


class QuotaList(ListResult[QuotaUse], frozen=True, kw_only=True):
    """Use and limits, by workspace and tenant."""

    quotas: list[QuotaUse]
