"""`reverie tokens`: create, list, rotate and revoke tokens, and show the one of the local user."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import replace

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, Yes, confirm, note, print_json, print_list, print_result, when
from cli.scheduling.durations import seconds_of
from reverie.checks import check_agent, check_workspace
from reverie.counts import counted
from reverie.errors import NotFound, Rejected
from reverie.trust.calls import CreateToken, ListTokens, RevokeToken, RotateToken
from reverie.trust.types import CreatedToken, TokenInfo
from worker.supervision.local_token import read_local_token

tokens = typer.Typer(help="Create, list, rotate and revoke tokens.", no_args_is_help=True)
application.add_typer(tokens, name="tokens")


@tokens.command("create")
@takes(
    CreateToken,
    options={"expires_seconds": "--expires"},
    helps={
        "agents": "Only for this agent, or several (repeat the option); by default for all.",
        "expires_seconds": "For how long it is valid: 90d, 12h; by default for ever.",
    },
    parsers={"expires_seconds": lambda text: float(seconds_of(text, "expires"))},
)
def create(
    context: typer.Context,
    call: CreateToken,
    all_workspaces: Annotated[
        bool, typer.Option("--all-workspaces", help="For all workspaces, instead of --workspace.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it, this once: only a hash of it is stored.

    Its workspace becomes a tenant of its own, with an account tier that no other workspace sees, unless --tenant names
    another.
    """
    command = invocation(context)
    call = _with_flags(call, command)
    if (call.workspace is None) != all_workspaces:
        raise Rejected("say what the token is for: either --workspace NAME or --all-workspaces", field="workspace")
    _print_created(command.send(call), as_json)


@tokens.command("list")
@takes(ListTokens, options={"everything": "--all"})
def list_(context: typer.Context, call: ListTokens, as_json: AsJson = False) -> None:
    """List the tokens, newest first, without their texts."""
    listed = invocation(context).send(call).tokens
    print_list(
        listed,
        as_json,
        ("name", "workspace", "agents", "user", "scopes", "expires", "last used", "state", "id"),
        (
            (
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
            for token in listed
        ),
        empty="There are no tokens: `reverie tokens create` makes one.",
    )


@tokens.command("rotate")
@takes(
    RotateToken,
    arguments=("token",),
    options={"grace_seconds": "--grace"},
    helps={"grace_seconds": "For how long the old one stays valid: 1h, 2d; by default it ends at once."},
    parsers={"grace_seconds": lambda text: float(seconds_of(text, "grace"))},
)
def rotate(context: typer.Context, call: RotateToken, as_json: AsJson = False) -> None:
    """Replace a token by a new one with the same rights, and print it, this once."""
    _print_created(invocation(context).send(call), as_json)


@tokens.command("revoke")
@takes(RevokeToken, arguments=("token",))
def revoke(context: typer.Context, call: RevokeToken, yes: Yes = False, as_json: AsJson = False) -> None:
    """Revoke a token by its id, or all tokens of a name. Servers refuse it within a second."""
    confirm(f"Revoke token {call.token!r}? Whoever uses it is refused from now on.", yes)
    revoked = invocation(context).send(call)
    print_result(revoked, as_json, f"{counted(len(revoked), 'token')} revoked.")


@tokens.command("show-local")
def show_local(context: typer.Context, as_json: AsJson = False) -> None:
    """Print the token of the user who runs Reverie here: the command line and the client find it themselves.

    Other programs need it: curl -H "Authorization: Bearer $(reverie tokens show-local)" ...
    """
    data = invocation(context).target.existing_data()
    token = read_local_token(data)
    if token is None:
        raise NotFound(
            f"{data} has no local token: the server makes one when it starts (`reverie up`), unless it is --open",
            field="token",
        )
    print_result({"token": token}, as_json, token)


def _with_flags(call: CreateToken, command: Invocation) -> CreateToken:
    """Return a call with the workspace and the agent that were given before the command."""
    workspace, agent = command.flags.get("workspace"), command.flags.get("agent")
    if call.workspace is None and workspace is not None:
        call = replace(call, workspace=check_workspace(workspace))
    if not call.agents and agent is not None:
        call = replace(call, agents=[check_agent(agent)])
    return call


def _print_created(created: CreatedToken, as_json: bool) -> None:
    """Print the token alone to standard output, so that it can be piped, and what it is for to standard error."""
    if as_json:
        print_json(created)
        return
    note(_described(created.info))
    print_result(created, False, created.token)


def _described(token: TokenInfo) -> str:
    whom = f"{'all agents' if not token.agents else 'agent ' + ', '.join(token.agents)}"
    where = "all workspaces" if token.workspace is None else f"workspace {token.workspace} (tenant {token.tenant})"
    of = f", user {token.user}" if token.user else ""
    until = "for ever" if token.expires_at is None else f"until {when(token.expires_at)} UTC"
    return (
        f"Token {token.name!r} for {whom} in {where}{of}: {', '.join(token.scopes)}, {until}."
        " It is shown this once. Use it as REVERIE_TOKEN, or Reverie(token=...)."
    )
