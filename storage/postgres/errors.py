"""Translates errors of PostgreSQL: try again later, a person has to act, or the statement is at fault.

The SQLSTATE decides. Only failed attempts to connect have no SQLSTATE, because libpq does not pass it on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from sqlalchemy import ExceptionContext, exc

from reverie.errors import Permanent, ReverieError, StoreUnavailable, StoreUnusable

_READ_ONLY: Final = "25006"
# Another writer, or another transaction, was in the way.
_BUSY: Final = ("40001", "40P01", "55P03")


class ServerUnavailable(StoreUnavailable):
    """The database server is away for the moment, as at a restart: callers over HTTP may try again."""

    retry_after_seconds: Final = 2


@dataclass(frozen=True, slots=True)
class _Rule:
    """Reverie's class and text for an error: `{name}` is the database, `{text}` the text of the server."""

    kind: type[ReverieError]
    message: str


_BUSY_RULE: Final = _Rule(
    StoreUnavailable, "{name} cannot be written now ({text}): others write to it without a pause, try again"
)
_UNREACHABLE: Final = _Rule(
    ServerUnavailable, "{name} cannot be reached ({text}): check that it runs and accepts connections"
)
_REFUSED: Final = _Rule(
    StoreUnusable, "{name} refuses this user ({text}): check the user and the password, and the server's pg_hba.conf"
)
_OTHER_SCHEMA: Final = _Rule(
    StoreUnusable,
    "{name} does not have the tables of this version ({text}): use the same version of Reverie on all hosts, and start"
    " it again",
)
# By SQLSTATE or its beginning: the longest key that fits counts.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_RULES: Final = {
    **dict.fromkeys(_BUSY, _BUSY_RULE),
    "08": _UNREACHABLE,
    "57": _UNREACHABLE,
    "40003": _UNREACHABLE,
    "57014": _Rule(
        StoreUnavailable,
        "{name} ended a statement ({text}): somebody cancelled it, or the server's statement_timeout is too short",
    ),
    "25P03": _Rule(
        StoreUnavailable,
        "{name} ended a transaction ({text}): the server's idle_in_transaction_session_timeout is too short",
    ),
    "25P04": _Rule(
        StoreUnavailable, "{name} ended a transaction ({text}): the server's transaction_timeout is too short"
    ),
    _READ_ONLY: _Rule(
        ServerUnavailable,
        "{name} can only be read ({text}): it is a standby, or was made read-only. Promote it, or name the primary in"
        " REVERIE_DATABASE; what is to be written waits",
    ),
    "53": _Rule(StoreUnavailable, "{name} cannot be written now ({text}): the server lacks a resource, see its log"),
    "53100": _Rule(
        StoreUnavailable, "{name} cannot be written now ({text}): check the free space of the database server's disk"
    ),
    "53200": _Rule(
        StoreUnavailable, "{name} cannot be used now ({text}): check the free memory of the database server"
    ),
    "53300": _Rule(
        ServerUnavailable,
        "{name} has no connection left ({text}): raise the server's max_connections or the limit of the user or"
        " database, or run fewer processes (docs/scale.md, Connections)",
    ),
    "58": _Rule(
        StoreUnavailable, "{name} cannot be used now ({text}): the server cannot use its files, check its disk and log"
    ),
    # The text of an item is too long for an index, a limit of the server: trying again cannot help.
    "54": _Rule(Permanent, "{name}: {text}"),
    "28": _REFUSED,
    "3D000": _Rule(StoreUnusable, "{name} does not exist ({text}): create it (docs/scale.md), or correct its name"),
    "42501": _Rule(
        StoreUnusable,
        "{name} does not let this user work in it ({text}): the user must own the database and its tables",
    ),
    "42P01": _OTHER_SCHEMA,
    "42883": _OTHER_SCHEMA,
    "42703": _OTHER_SCHEMA,
    "3F000": _OTHER_SCHEMA,
    # Errors that Reverie's own functions raise: see the head of `schema.sql`.
    "RV001": _Rule(
        StoreUnusable,
        "{name} was upgraded while this process ran ({text}): install the same version of Reverie on all hosts, and"
        " restart it",
    ),
    # A table was changed while this connection had a plan for it: the next transaction makes a new plan.
    "0A000": _Rule(StoreUnavailable, "{name} was changed meanwhile ({text}): try again"),
    "XX001": _Rule(StoreUnusable, "{name} is damaged ({text}): stop Reverie and restore a backup of the database"),
    "XX002": _Rule(StoreUnusable, "{name} is damaged ({text}): stop Reverie and restore a backup of the database"),
}
# Why a connection was not made, by the text of libpq or the server. Texts in other languages get the rule for a server
# that cannot be reached: the call is retried, and the text is shown.
_CONNECTING: Final = (
    (re.compile(r"too many clients|connection slots are reserved|too many connections for"), "53300"),
    (re.compile(r"session is read-only|hot standby mode is"), _READ_ONLY),
    (re.compile(r"database \"[^\"]*\" does not exist"), "3D000"),
    (
        re.compile(
            r"authentication failed|no password supplied|pg_hba\.conf"
            r"|not permitted to log in|role \"[^\"]*\" does not exist"
        ),
        "28000",
    ),
)
_UNKNOWN_HOST: Final = re.compile(r"resolve host|translate host name")
_UNKNOWN_HOST_RULE: Final = _Rule(
    ServerUnavailable, "{name} cannot be reached ({text}): check the name of its host in REVERIE_DATABASE"
)
_INVALID_ADDRESS: Final = _Rule(StoreUnusable, "{name} is no valid address ({text}): correct REVERIE_DATABASE")


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Raise errors of PostgreSQL and SQLAlchemy as Reverie's own, naming the database and what to do."""
    try:
        yield
    except ReverieError:
        raise
    except exc.TimeoutError as error:
        raise StoreUnavailable(f"{name}: all connections of this process are in use, try again") from error
    except (exc.DBAPIError, psycopg.Error) as error:
        raise translated(name, _cause(error)) from error


def translated(name: str, error: BaseException) -> ReverieError:
    """Return Reverie's error for one of psycopg; `name` is the address of the database."""
    rule = _rule_of(error)
    # The first line says what is wrong; later lines have hints and other attempts.
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if isinstance(error, psycopg.IntegrityError):  # the text of the error names tables and columns
        return Permanent("a database refused a row that contradicts others, so nothing was stored: this is a defect")
    if rule is None:
        return Permanent(f"{name}: {text}")
    return rule.kind(rule.message.format(name=name, text=text))


def is_locked(error: BaseException) -> bool:
    """Return whether an error of a store says that another writer held it for too long."""
    return getattr(_cause(error.__cause__), "sqlstate", None) in _BUSY


def end_of_primary(context: ExceptionContext) -> None:
    """Make the pool replace its connections once a server is read-only: another server may be the primary now."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _rule_of(error: BaseException) -> _Rule | None:
    state = getattr(error, "sqlstate", None)
    if state is None:
        text = str(error)
        if "connection option" in text:
            return _INVALID_ADDRESS
        if not isinstance(error, psycopg.OperationalError):
            return None
        if _UNKNOWN_HOST.search(text):
            return _UNKNOWN_HOST_RULE
        state = next((state for pattern, state in _CONNECTING if pattern.search(text)), "08")
    return next((_RULES[state[:length]] for length in (5, 2) if state[:length] in _RULES), None)


def _cause(error: BaseException | None) -> BaseException:
    return getattr(error, "orig", None) or error or Exception()
