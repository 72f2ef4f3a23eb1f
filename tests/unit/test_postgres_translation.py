"""Statements in SQLite's SQL, and what they are in PostgreSQL's. tests/integration/test_postgres.py runs some."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.postgres.translation import KeptTranslations, for_values, translate

STORE = "store_id = :store_id"


@pytest.mark.parametrize(
    ("written", "translated"),
    [
        ("SELECT 1 FROM memories AS m WHERE m.id = :id", f"SELECT 1 FROM memories AS m WHERE m.id = :id AND m.{STORE}"),
        ("DELETE FROM claims", f"DELETE FROM claims WHERE claims.{STORE}"),
        (
            "SELECT 1 FROM messages AS m LEFT JOIN sessions AS s ON s.row_id = m.session_row",
            f"SELECT 1 FROM messages AS m LEFT JOIN sessions AS s ON s.{STORE} AND s.row_id = m.session_row"
            f" WHERE m.{STORE}",
        ),
        ("SELECT id FROM tokens", "SELECT id FROM tokens"),
        (
            "SELECT id FROM tokens WHERE name IN (SELECT value FROM json_each(:names))",
            "SELECT id FROM tokens WHERE name = ANY(CAST(:names AS TEXT[]))",
        ),
        ("SELECT id FROM tokens WHERE name NOT LIKE 'u:%'", "SELECT id FROM tokens WHERE name NOT ILIKE 'u:%'"),
        (
            "SELECT id FROM tokens ORDER BY id LIMIT :limit",
            "SELECT id FROM tokens ORDER BY id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)",
        ),
        ("SELECT id FROM tokens ORDER BY expires_at", "SELECT id FROM tokens ORDER BY expires_at NULLS FIRST"),
        ("SELECT id FROM tokens WHERE 1", "SELECT id FROM tokens WHERE TRUE"),
        ("SELECT id IS NULL FROM tokens", "SELECT CAST(CAST((id IS NULL) AS INT) AS BIGINT) FROM tokens"),
        (
            "SELECT min(expires_at, :now) FROM tokens",
            "SELECT CASE WHEN expires_at IS NULL THEN NULL ELSE LEAST(expires_at, :now) END FROM tokens",
        ),
        (
            "INSERT INTO claims (stage, item_id) VALUES (:stage, :item) ON CONFLICT (stage, item_id)"
            " DO UPDATE SET attempts = attempts + 1",
            "INSERT INTO claims (stage, item_id) VALUES (:stage, :item) ON CONFLICT(store_id, stage, item_id)"
            " DO UPDATE SET attempts = claims.attempts + 1",
        ),
        (
            "INSERT OR IGNORE INTO tokens (id) VALUES (:id)",
            "INSERT INTO tokens (id) VALUES (:id) ON CONFLICT DO NOTHING",
        ),
    ],
)
def test_a_statement_is_translated(written: str, translated: str) -> None:
    assert translate(written).sql == translated


def test_a_parameter_that_may_be_missing_is_taken_out_where_its_type_is_unknown() -> None:
    written = "SELECT id FROM tokens WHERE :user IS NULL OR user_id = :user"
    assert translate(written).untyped == {"user"}
    assert for_values(written, frozenset()) == "SELECT id FROM tokens WHERE FALSE OR user_id = :user"
    assert for_values(written, frozenset({"user"})) == "SELECT id FROM tokens WHERE NULL IS NULL OR user_id = NULL"


def test_collections_are_bound_as_arrays_or_as_json() -> None:
    assert translate("SELECT 1 FROM tokens WHERE id IN (SELECT value FROM json_each(:ids))").arrays == {"ids"}
    assert translate("SELECT value ->> 0 FROM json_each(:pairs)").arrays == set()


@pytest.mark.parametrize(
    ("written", "translated"),
    [
        (
            "SELECT m.id FROM chunks AS c LEFT JOIN messages AS m ON m.row_id ="
            " (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)",
            "SELECT m.id FROM chunks AS c CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks"
            f" WHERE chunk_id = c.id AND message_chunks.{STORE}) AS row_id OFFSET 0) AS m_keys"
            f" LEFT JOIN messages AS m ON m.{STORE} AND m.row_id = m_keys.row_id WHERE c.{STORE}",
        ),
        (
            "SELECT c.id FROM json_each(:hashes) AS w CROSS JOIN chunks AS c ON c.content_hash = unhex(w.value)",
            "SELECT c.id FROM UNNEST(CAST(:hashes AS TEXT[])) WITH ORDINALITY AS w(value, key) CROSS JOIN LATERAL"
            " (SELECT decode(w.value, 'hex') AS content_hash OFFSET 0) AS c_keys"
            f" JOIN chunks AS c ON c.content_hash = c_keys.content_hash WHERE c.{STORE}",
        ),
        (
            "SELECT s.id FROM chunks AS c JOIN sessions AS s ON s.row_id = coalesce(s.row_id, c.session_row)",
            "SELECT s.id FROM chunks AS c JOIN sessions AS s ON s.row_id = COALESCE(s.row_id, c.session_row)"
            f" WHERE c.{STORE} AND s.{STORE}",
        ),
        (
            "SELECT id FROM chunks WHERE content_hash IN (SELECT unhex(value) FROM json_each(:hashes))",
            "SELECT id FROM chunks WHERE content_hash IN (SELECT decode(value, 'hex') FROM UNNEST(CAST(:hashes AS"
            f" TEXT[])) WITH ORDINALITY AS json_each(value, key) OFFSET 0) AND chunks.{STORE}",
        ),
    ],
)
def test_what_rows_are_looked_up_by_is_computed_before(written: str, translated: str) -> None:
    assert translate(written).sql == translated


def test_a_translation_is_made_once_on_a_host_for_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given what a process translated, and a line that a kill cut off, then the next one of the same code has it."""
    path = tmp_path / "run" / "translations"
    made: list[str] = []

    def find(key: str) -> str:
        kept = KeptTranslations()
        kept.open(path)
        return kept.find(key, lambda: (made.append(key) or f"PG {key}", frozenset("a"), frozenset()))[0]

    assert [find("one"), find("one"), find("two")] == ["PG one", "PG one", "PG two"]
    with path.open("ab") as file:
        file.write(b'["cut')
    assert find("two") == "PG two"
    assert made == ["one", "two"]
    monkeypatch.setattr("storage.postgres.translation._code", lambda: "other")
    assert find("one") == "PG one"
    assert made == ["one", "two", "one"]
    assert len(path.read_bytes().splitlines()) == 1


def test_the_file_of_statements_shows_what_each_function_runs() -> None:
    """Given the source of repositories, then each statement is shown for PostgreSQL, also one of several parts."""
    # `make check` has compared the file with what the source has now, which takes five seconds.
    text = (Path(__file__).parents[2] / "storage" / "postgres" / "statements.sql").read_text("utf-8")
    assert "-- storage.sessions.channels: delete\nDELETE FROM channels\nWHERE (agent_id = :agent AND id = :id" in text
    assert "-- storage.pipeline.work: release\n" not in text  # it calls what runs the statement
    fresh = text.partition("-- storage.pipeline.work: _fresh\n")[2].partition("\n-- storage")[0]
    assert "FROM messages AS waiting" in fresh
    assert fresh.count(f"waiting.{STORE}") > 1
    shown = text.count("-- storage.")
    assert text.count("-- composed of the rows") < shown / 20
