"""The calls about quotas; they need the scope operate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, get_args

from msgspec import Meta

from reverie.calls import Call, Paged
from reverie.checks import check_workspace
from reverie.errors import Rejected
from reverie.fields import MAX_COUNT, checked, label
from reverie.trust.quota_types import Holder, Quota, QuotaList

QUOTAS: Final[tuple[Quota, ...]] = get_args(Quota)


def _check_workspace(_: str, name: str) -> str:
    return check_workspace(name)


def _check_quotas(field: str, names: Sequence[Any]) -> list[Quota]:
    """Return names of quotas in their order. Each text may name several, separated by commas."""
    named = [part.strip() for text in names for part in str(text).split(",") if part.strip()]
    unknown = sorted(set(named) - set(QUOTAS))
    if unknown:
        raise Rejected(f"{field}: {', '.join(unknown)} is not a quota; use {', '.join(QUOTAS)}", field=field)
    return [name for name in QUOTAS if name in named]


def _amount(what: str) -> Meta:
    return Meta(ge=0, le=MAX_COUNT, description=f"{what}; 0 is no limit.")


class ListQuotas(Paged[QuotaList], kw_only=True, frozen=True):
    """List how much each workspace and tenant holds, and its limits. Pages count workspaces and tenants."""

    route: ClassVar = "GET /v1/quotas"
    required_scope: ClassVar = "operate"
    workspace: Annotated[str | None, checked(_check_workspace, "Only of this workspace.")] = None


class SetQuotas(Call[QuotaList], frozen=True):
    """Set the quotas of a workspace, or of a tenant: those of its workspaces that have none of their own.

    What is not given stays unchanged. Returns the use and the limits. Raises `Rejected` for `workspaces` of a
    workspace.
    """

    route: ClassVar = "PUT /v1/quotas/{holder}/{name}"
    required_scope: ClassVar = "operate"
    holder: Annotated[Holder, Meta(description="Whose quotas they are: workspace or tenant.")]
    name: Annotated[str, label("The name of the workspace or the tenant.")]
    messages: Annotated[int, _amount("Messages and files")] | None = None
    bytes: Annotated[int, _amount("Bytes of stored texts")] | None = None
    memories: Annotated[int, _amount("Memories, facts and notes")] | None = None
    schedules: Annotated[int, _amount("Schedules, and reminders to deliver")] | None = None
    workspaces: Annotated[int, _amount("Workspaces of the tenant")] | None = None
    inherit: Annotated[
        Sequence[str], checked(_check_quotas, "Remove these quotas, so that the wider one holds: tenant, settings.")
    ] = ()

    def checked(self) -> SetQuotas:
        """Raise `Rejected` for a name that no workspace can have, and for what does not fit."""
        if self.holder == "workspace":
            check_workspace(self.name)
            if self.workspaces is not None or "workspaces" in self.inherit:
                raise Rejected("workspaces is a quota of tenants: name the tenant", field="workspaces")
        twice = sorted(set(self.inherit) & {name for name, amount in self.given().items() if amount is not None})
        if twice:
            raise Rejected(f"{twice[0]} has an amount and is to be inherited: give one of the two", field="inherit")
        if not self.given():
            raise Rejected(f"name a quota: {', '.join(QUOTAS)}", field="messages")
        return self

    def given(self) -> Mapping[Quota, int | None]:
        """Return the amounts that are given, and None for the quotas to remove."""
        amounts: dict[Quota, int | None] = {name: getattr(self, name) for name in QUOTAS}
        given = {name: amount for name, amount in amounts.items() if amount is not None}
        removed: dict[Quota, int | None] = {name: None for name in QUOTAS if name in self.inherit}
        return {**removed, **given}
