"""`reverie db hosts`: the hosts that share a database, and which of them erasures wait for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cli.application import invocation
from cli.output import AsJson, Yes, confirm, print_deleted, print_list, say, when
from cli.upkeep.database import database
from reverie.errors import NotFound


@database.command("hosts")
def hosts(
    context: typer.Context,
    forget: Annotated[
        str | None, typer.Option(help="The id of a host that is gone for good: erasures wait for it no longer.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the hosts that share a PostgreSQL database, or forget one.

    An erasure ends when each host has removed it from its own files. A host that was forgotten and comes back keeps
    only what the database has.
    """
    shared = invocation(context).existing_runtime.stores.hosts()
    if shared is None:
        if forget is not None:
            raise NotFound("the stores are files of this host, and no other host uses them", field="forget")
        if as_json:
            print_list([], as_json, (), (), empty="")
        else:
            say("The stores are files of this host, and no other host uses them.")
        return
    if forget is not None:
        confirm("Is the host gone for good? The receipts of erasures will name it as out of reach.", yes)
        missing = NotFound(f"there is no host {forget!r}: `reverie db hosts` lists them", field="forget")
        print_deleted(shared.forget(forget), as_json, missing=missing)
        return
    found = shared.all()
    print_list(
        [asdict(one) for one in found],
        as_json,
        ("id", "host", "joined", "heard of", "erasures waiting", "error"),
        (
            (one.id, one.name, when(one.joined_at), f"{one.silent_seconds:,.0f} s ago", one.erasures, one.error)
            for one in found
        ),
        empty="No host has joined yet.",
    )
