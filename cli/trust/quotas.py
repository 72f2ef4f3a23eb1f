"""`reverie quotas`: how much workspaces and tenants hold, and how much they may."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import typer
from msgspec.structs import replace

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_list, size
from reverie.errors import Rejected
from reverie.trust.quota_calls import ListQuotas, SetQuotas
from reverie.trust.quota_types import QuotaUse

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|k|m|g|t)(|b|ib)", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

quotas = typer.Typer(help="Show and set how much workspaces and tenants may hold.", no_args_is_help=True)
application.add_typer(quotas, name="quotas")


@quotas.command("list")
@takes(ListQuotas)
def list_(context: typer.Context, call: ListQuotas, as_json: AsJson = False) -> None:
    """List what each tenant and workspace holds, and its limits; with --workspace, of one."""
    command = invocation(context)
    named = command.flags.get("workspace")
    if call.workspace is None and named is not None:
        call = replace(call, workspace=named)
    _print(command.send(call), as_json)


@quotas.command("set")
@takes(
    SetQuotas,
    arguments=("holder", "name"),
    helps={"bytes": "Bytes of stored texts: 500MB, 2GiB, or a number; 0 is no limit."},
    parsers={"bytes": lambda text: bytes_of(text)},
)
def set_(context: typer.Context, call: SetQuotas, as_json: AsJson = False) -> None:
    """Set quotas of a workspace, or of a tenant for each of its workspaces that has none of its own.

    reverie quotas set workspace acme --messages 100000 --bytes 2GB
    """
    _print(invocation(context).send(call), as_json)


def bytes_of(text: str) -> int:
    """Return the bytes in a text such as `500MB` or `2GiB`. Raises `Rejected`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise Rejected(f"bytes is {text[:40]!r}: write a number, or one with a unit such as 500MB", field="bytes")
    number, unit, kind = found.groups()
    base = 1024 if kind.lower() == "ib" else 1000
    return int(float(number) * base ** _UNITS[unit.lower()])


def _print(listed: Any, as_json: bool) -> None:
    print_list(
        listed,
        as_json,
        ("holder", "name", "quota", "used", "limit", "full", "set for"),
        _rows(listed),
        empty="There are no workspaces yet.",
    )


def _rows(listed: Iterable[QuotaUse]) -> Iterable[tuple[object, ...]]:
    for use in listed:
        shown = [size(number) if use.resource == "bytes" else f"{number:,}" for number in (use.used, use.limit or 0)]
        share = "-" if not use.limit else f"{use.used / use.limit:.0%}"
        limit = "-" if use.limit is None else shown[1]
        yield (
            use.holder,
            use.name,
            use.resource,
            shown[0],
            limit,
            share,
            use.set_for or ("settings" if use.limit else "-"),
        )
