"""What each error of PostgreSQL becomes: the stages try again, a person has to act, or the item is at fault."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import exc

from reverie.errors import Permanent, Rejected, ReverieError, StoreUnavailable, StoreUnusable
from storage.postgres.engine import PostgresServer
from storage.postgres.errors import ServerUnavailable, is_locked, translate_errors

NAME = "postgresql://reverie:***@db/reverie"

# Code, class, and a word of what to do about it.
STATES = [
    ("40001", StoreUnavailable, "try again"),
    ("40P01", StoreUnavailable, "try again"),
    ("55P03", StoreUnavailable, "try again"),
    ("40003", ServerUnavailable, "check that it runs"),
    ("08006", ServerUnavailable, "check that it runs"),
    ("08007", ServerUnavailable, "check that it runs"),
    ("57P01", ServerUnavailable, "check that it runs"),
    ("57P02", ServerUnavailable, "check that it runs"),
    ("57P03", ServerUnavailable, "check that it runs"),
    ("57P05", ServerUnavailable, "check that it runs"),
    ("57014", StoreUnavailable, "statement_timeout"),
    ("25P03", StoreUnavailable, "idle_in_transaction_session_timeout"),
    ("25P04", StoreUnavailable, "transaction_timeout"),
    ("25006", ServerUnavailable, "standby"),
    ("53000", StoreUnavailable, "see its log"),
    ("53100", StoreUnavailable, "free space"),
    ("53200", StoreUnavailable, "free memory"),
    ("53300", ServerUnavailable, "max_connections"),
    ("58030", StoreUnavailable, "disk and log"),
    ("58P01", StoreUnavailable, "disk and log"),
    ("0A000", StoreUnavailable, "try again"),
    ("28P01", StoreUnusable, "password"),
    ("28000", StoreUnusable, "pg_hba.conf"),
    ("3D000", StoreUnusable, "create it"),
    ("42501", StoreUnusable, "own the database"),
    ("42P01", StoreUnusable, "same version"),
    ("42703", StoreUnusable, "same version"),
    ("42883", StoreUnusable, "same version"),
    ("3F000", StoreUnusable, "same version"),
    ("XX001", StoreUnusable, "restore a backup"),
    ("XX002", StoreUnusable, "restore a backup"),
    # The item is at fault: trying again without end would help nobody.
    ("22021", Permanent, ""),
    ("54000", Permanent, ""),
    ("XX000", Permanent, ""),
]


def _translated(error: Exception) -> ReverieError:
    with pytest.raises(ReverieError) as raised, translate_errors(NAME):
        raise error
    return raised.value


@pytest.mark.parametrize("wrapped", [False, True], ids=["of the driver", "of SQLAlchemy"])
@pytest.mark.parametrize(("state", "kind", "advice"), STATES, ids=[state for state, _, _ in STATES])
def test_an_error_has_the_class_of_its_code(state: str, kind: type[ReverieError], advice: str, wrapped: bool) -> None:
    error: Exception = errors.lookup(state)("it failed\nDETAIL: of no use here")
    found = _translated(exc.DBAPIError("SELECT 1", None, error) if wrapped else error)
    assert type(found) is kind
    assert advice in str(found)
    assert str(found).startswith(NAME)
    assert "it failed" in str(found)
    assert "DETAIL" not in str(found)
    assert is_locked(found) is (state in ("40001", "40P01", "55P03"))


def test_a_constraint_is_no_text_for_callers() -> None:
    found = _translated(errors.UniqueViolation('duplicate key value violates "messages_key"'))
    assert type(found) is Permanent
    assert "messages" not in str(found)
    assert NAME not in str(found)


def test_a_process_of_an_older_version_is_told_to_be_upgraded() -> None:
    error = psycopg.DatabaseError("its schema is 2, that of the process 1")
    error.sqlstate = "RV001"
    found = _translated(error)
    assert (type(found), "on all hosts" in str(found)) == (StoreUnusable, True)


# What libpq and the server report when no connection is made, for which there is no code.
CONNECTING = [
    ("FATAL:  sorry, too many clients already", ServerUnavailable, "raise the server's max_connections"),
    ("FATAL:  remaining connection slots are reserved for roles with", ServerUnavailable, "max_connections"),
    ('FATAL:  too many connections for role "reverie"', ServerUnavailable, "the limit of the user"),
    ('FATAL:  too many connections for database "reverie"', ServerUnavailable, "database"),
    ("FATAL:  the database system is starting up", ServerUnavailable, "check that it runs"),
    ("connection to server failed: session is read-only", ServerUnavailable, "standby"),
    ("Connection refused\n\tIs the server running on that host", ServerUnavailable, "check that it runs"),
    ("failed to resolve host 'db': [Errno -2] Name or service not known", ServerUnavailable, "name of its host"),
    ('FATAL:  password authentication failed for user "reverie"', StoreUnusable, "password"),
    ("fe_sendauth: no password supplied", StoreUnusable, "password"),
    ('FATAL:  no pg_hba.conf entry for host "10.0.0.2"', StoreUnusable, "pg_hba.conf"),
    ('FATAL:  role "reverie" does not exist', StoreUnusable, "user"),
    ('FATAL:  role "reverie" is not permitted to log in', StoreUnusable, "user"),
    ('FATAL:  database "reverie" does not exist', StoreUnusable, "create it"),
    ("FATAL:  Verbindungen sind aufgebraucht", ServerUnavailable, "Verbindungen sind aufgebraucht"),
]


@pytest.mark.parametrize(("text", "kind", "advice"), CONNECTING, ids=[text[:50] for text, _, _ in CONNECTING])
def test_a_connection_that_is_not_made_says_why(text: str, kind: type[ReverieError], advice: str) -> None:
    found = _translated(psycopg.OperationalError(text))
    assert type(found) is kind
    assert advice in str(found)


def test_an_option_that_does_not_exist_is_named() -> None:
    found = _translated(psycopg.ProgrammingError('invalid connection option "sslmod"'))
    assert (type(found), "sslmod" in str(found), "correct REVERIE_DATABASE" in str(found)) == (
        StoreUnusable,
        True,
        True,
    )


def test_all_connections_in_use_is_tried_again() -> None:
    assert type(_translated(exc.TimeoutError())) is StoreUnavailable


@pytest.mark.parametrize("url", ["postgresql://reverie@db:port/reverie", "postgresql//db/reverie"])
def test_an_address_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(Rejected, match="postgresql://USER:PASSWORD@HOST"):
        PostgresServer(url)


@pytest.mark.parametrize(
    "url",
    ["postgresql://reverie:secret@db/reverie", "postgresql://reverie@db/reverie?password=secret&sslpassword=secret"],
)
def test_no_password_is_shown(url: str) -> None:
    server = PostgresServer(url)
    assert "secret" not in server.name
    server.close()


def test_what_the_address_sets_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an address with parameters, then they go before Reverie's own, and its search path stays."""
    given: dict[str, str] = {}

    def connect(*_arguments: object, **parameters: str) -> Callable[[], None]:
        given.update(parameters)
        raise psycopg.OperationalError("not now")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    server = PostgresServer("postgresql://u@db/d?application_name=mine&options=-c%20work_mem%3D8MB&connect_timeout=3")
    with pytest.raises(StoreUnavailable, match="not now"), server.writing():
        pass
    assert (given["application_name"], given["connect_timeout"]) == ("mine", "3")
    assert given["options"].startswith("-c work_mem=8MB -c search_path=reverie,public")
    assert given["keepalives_idle"] == "15"
