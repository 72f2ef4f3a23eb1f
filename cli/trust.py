"""`reverie tokens`, `quotas` and `audit`: who may do what, how much, and who did what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row, all_pages, root
from cli.options import seconds_of, time_since
from cli.output import AsJson, note, print_result, print_table, size, when
from reverie.checks import check_agent, check_workspace
from reverie.counts import counted
from reverie.errors import NotFound, Rejected
from reverie.trust import calls

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|k|m|g|t)(|b|ib)", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

tokens = Group("tokens")
quotas = Group("quotas")


@root.lists(
    "audit",
    calls.ListAudit,
    ("at", "actor", "action", "target", "outcome", "workspace", "agent", "from", "count"),
    none="The audit log has no such entries.",
    helps={"since": "Only entries since this time: 2h, 3d, or a date and time."},
    parsers={"since": time_since},
)
def _audit_row(one: calls.AuditRecord) -> Row:
    """List the audit log, newest first: token changes, deletions, exports, refusals."""
    named = (one.actor or "-", one.action, one.target or "-", one.outcome)
    return when(one.at), *named, one.workspace or "-", one.agent or "-", one.origin or "-", one.count


@tokens.command(
    "create",
    calls.CreateToken,
    options={"expires_seconds": "--expires"},
    helps={
        "agents": "Only for this agent, or several (repeat the option); by default for all.",
        "expires_seconds": "For how long it is valid: 90d, 12h; by default for ever.",
    },
    parsers={"expires_seconds": lambda text: float(seconds_of(text, "expires"))},
)
def create(
    command: Invocation,
    call: calls.CreateToken,
    all_workspaces: Annotated[
        bool, typer.Option("--all-workspaces", help="For all workspaces, instead of --workspace.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it, this once: only a hash of it is stored.

    Its workspace becomes a tenant of its own, with an account tier that no other workspace sees, unless --tenant names
    another.
    """
    call = _with_flags(call, command)
    if (call.workspace is None) != all_workspaces:
        raise Rejected("say what the token is for: either --workspace NAME or --all-workspaces", field="workspace")
    created = command.send(call)
    print_result(created, as_json, _created_text(created))


@tokens.lists(
    "list",
    calls.ListTokens,
    ("name", "workspace", "agents", "user", "scopes", "expires", "last used", "state", "id"),
    none="There are no tokens: `reverie tokens create` makes one.",
    options={"everything": "--all"},
)
def _token_row(token: calls.TokenInfo) -> Row:
    """List the tokens, newest first, without their texts."""
    return (
        token.name,
        token.workspace or "(all)",
        ", ".join(token.agents) or "(all)",
        token.user or "(all)",
        ",".join(token.scopes),
        when(token.expires_at),
        when(token.last_used_at),
        "valid" if token.revoked_at is None else f"revoked {when(token.revoked_at)}",
        token.id,
    )


@tokens.says(
    "rotate",
    calls.RotateToken,
    arguments=("token",),
    options={"grace_seconds": "--grace"},
    helps={"grace_seconds": "For how long the old one stays valid: 1h, 2d; by default it ends at once."},
    parsers={"grace_seconds": lambda text: float(seconds_of(text, "grace"))},
)
def _rotate(created: calls.CreatedToken) -> str:
    """Replace a token by a new one with the same rights, and print it, this once."""
    return _created_text(created)


def _find_token(command: Invocation, call: calls.RevokeToken) -> None:
    """Raise `NotFound` if no valid token has this id or name."""
    if not any(call.token in (token.id, token.name) for token in all_pages(command, calls.ListTokens())):
        raise NotFound(f"there is no valid token {call.token!r}", field="token")


@tokens.says(
    "revoke",
    calls.RevokeToken,
    arguments=("token",),
    finds=_find_token,
    asks="Revoke token {call.token!r}? Whoever uses it is refused from now on.",
)
def _revoke(revoked: calls.TokenList) -> str:
    """Revoke a token by its id, or all tokens of a name. Servers refuse it within a second."""
    return f"{counted(len(revoked), 'token')} revoked."


@tokens.command("show-local")
def show_local(command: Invocation, as_json: AsJson = False) -> None:
    """Print the token of the user who runs Reverie here: the command line and the client find it themselves.

    Other programs need it: curl -H "Authorization: Bearer $(reverie tokens show-local)" ...
    """
    from worker.supervision.local_token import read_local_token

    data = command.target.existing_data()
    token = read_local_token(data)
    if token is None:
        raise NotFound(
            f"{data} has no local token: the server makes one when it starts (`reverie up`), unless it is --open",
            field="token",
        )
    print_result({"token": token}, as_json, token)


def _with_flags(call: calls.CreateToken, command: Invocation) -> calls.CreateToken:
    """Return a call with the workspace and the agent that were given before the command."""
    workspace, agent = command.flags.get("workspace"), command.flags.get("agent")
    if call.workspace is None and workspace is not None:
        call = replace(call, workspace=check_workspace(workspace))
    if not call.agents and agent is not None:
        call = replace(call, agents=[check_agent(agent)])
    return call


def _created_text(created: calls.CreatedToken) -> str:
    """Return the token alone, so that it can be piped; what it is for is printed to standard error."""
    note(_described(created.info))
    return created.token


def _described(token: calls.TokenInfo) -> str:
    whom = f"{'all agents' if not token.agents else 'agent ' + ', '.join(token.agents)}"
    where = "all workspaces" if token.workspace is None else f"workspace {token.workspace} (tenant {token.tenant})"
    of = f", user {token.user}" if token.user else ""
    until = "for ever" if token.expires_at is None else f"until {when(token.expires_at)} UTC"
    return (
        f"Token {token.name!r} for {whom} in {where}{of}: {', '.join(token.scopes)}, {until}."
        " It is shown this once. Use it as REVERIE_TOKEN, or Reverie(token=...)."
    )


@quotas.command("list", calls.ListQuotas)
def list_(command: Invocation, call: calls.ListQuotas, as_json: AsJson = False) -> None:
    """List what each tenant and workspace holds, and its limits; with --workspace, of one."""
    named = command.flags.get("workspace")
    if call.workspace is None and named is not None:
        call = replace(call, workspace=named)
    listed = command.send(call)
    print_result(listed, as_json, lambda: _print_quotas(listed))


def bytes_of(text: str) -> int:
    """Return the bytes in a text such as `500MB` or `2GiB`. Raises `Rejected`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise Rejected(f"bytes is {text[:40]!r}: write a number, or one with a unit such as 500MB", field="bytes")
    number, unit, kind = found.groups()
    base = 1024 if kind.lower() == "ib" else 1000
    return int(float(number) * base ** _UNITS[unit.lower()])


@quotas.says(
    "set",
    calls.SetQuotas,
    arguments=("holder", "name"),
    helps={"bytes": "Bytes of stored texts: 500MB, 2GiB, or a number; 0 is no limit."},
    parsers={"bytes": bytes_of},
)
def _print_quotas(listed: calls.QuotaList) -> None:
    """Set quotas of a workspace, or of a tenant for each of its workspaces that has none of its own.

    reverie quotas set workspace acme --messages 100000 --bytes 2GB
    """
    columns = ("holder", "name", "quota", "used", "limit", "full", "set for")
    print_table(columns, _rows(listed), empty="There are no workspaces yet.")


def _rows(listed: Iterable[calls.QuotaUse]) -> Iterable[Row]:
    for use in listed:
        shown = [size(number) if use.resource == "bytes" else f"{number:,}" for number in (use.used, use.limit or 0)]
        share = "-" if not use.limit else f"{use.used / use.limit:.0%}"
        limit = "-" if use.limit is None else shown[1]
        set_for = use.set_for or ("settings" if use.limit else "-")
        yield use.holder, use.name, use.resource, shown[0], limit, share, set_for
