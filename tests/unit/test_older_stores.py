"""Stores of older versions get the owners of what they hold when they are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.migrate import newest_version, schema_version
from storage.upkeep.verify import verify
from support.older_store import made_older
from support.pipeline import Pipeline

pytestmark = pytest.mark.sqlite("migrates older files")

AMOUNTS = "SELECT * FROM stored_amounts"
AUDIENCES = "SELECT f.chunk_id, f.audience FROM forward_index AS f ORDER BY f.chunk_id"
SCHEMA = "SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"


def read(pipe: Pipeline, query: str) -> list[tuple[object, ...]]:
    with pipe.store.reading() as tx:
        return [tuple(row) for row in tx.connection.exec_driver_sql(query)]


@pytest.mark.parametrize("version", ["0003", "0004", "0005", "0006", "0007", "0008"])
def test_an_older_store_is_migrated_with_the_users_of_its_sessions(tmp_path: Path, version: str) -> None:
    """Given a store with a user's session, when it is opened, then only that user's chunks have an audience."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("I moved to Lisbon", session="a", user="kate")
    pipe.say("for all", session="b")
    pipe.settle()
    audiences, schema, amounts = read(pipe, AUDIENCES), read(pipe, SCHEMA), read(pipe, AMOUNTS)
    assert {audience for _, audience in audiences} == {"u:kate", None}
    made_older(pipe.store.database, version)
    assert schema_version(pipe.store.database) == version
    pipe.close()

    pipe = Pipeline(tmp_path / "data")
    assert schema_version(pipe.store.database) == newest_version("workspace")
    assert (read(pipe, AUDIENCES), read(pipe, SCHEMA)) == (audiences, schema)
    assert read(pipe, AMOUNTS) == amounts == [("", 2, 0, 0, len("I moved to Lisbon" + "for all") + 2 * len("{}"))]
    pipe.say("and on", session="a")
    pipe.settle()
    assert [audience for _, audience in read(pipe, AUDIENCES)].count("u:kate") == 2
    assert verify(pipe.store).wrong == []
    pipe.close()


def test_schedules_of_an_older_store_get_the_users_of_their_sessions(tmp_path: Path) -> None:
    """Given schedules and notifications of an agent for no user, then they are of their session's user or of nobody."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("I moved to Lisbon", session="hers", user="kate")
    pipe.say("I came along", session="group", user="kate")
    pipe.say("me too", session="group", user="luis")
    pipe.settle()
    add = (
        "INSERT INTO schedules (id, agent_id, user_id, goal, cadence, executor, notification_policy, status,"
        " timeout_seconds, recall_limit, session_id, created_at, updated_at)"
        " VALUES (?, 'ana', ?, 'g', '{}', '{}', 'always', 'active', 1, 1, ?, 1, 1)"
    )
    report = (
        "INSERT INTO notifications (id, agent_id, user_id, kind, schedule_id, session_id, title, body, created_at)"
        " VALUES (?, 'ana', ?, 'run', ?, ?, 't', 'b', 1)"
    )
    rows = [("named", "mara", None), ("hers", "ana", "hers"), ("group", "ana", "group"), ("nobodys", "ana", None)]
    with pipe.store.writing() as tx:
        for name, user, session in rows:
            tx.connection.exec_driver_sql(add, (name, user, session))
            tx.connection.exec_driver_sql(report, (name, user, name, session))
        tx.connection.exec_driver_sql(report, ("gone", "ana", "deleted", "hers"))
    made_older(pipe.store.database, "0008")
    pipe.close()

    pipe = Pipeline(tmp_path / "data")
    users = [("group", None), ("hers", "kate"), ("named", "mara"), ("nobodys", None)]
    assert read(pipe, "SELECT id, user_id FROM schedules ORDER BY id") == users
    assert read(pipe, "SELECT id, user_id FROM notifications ORDER BY id") == [("gone", "kate"), *users]
    assert verify(pipe.store).wrong == []
    pipe.close()
