"""Derives PostgreSQL's schema from that of SQLite, which the migrations make, so that both have the same tables."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlglot
from sqlglot import exp

from storage.migrations import Kind, newest_version
from storage.migrations.triggers import recorders
from storage.opening import open_database
from storage.postgres.columns import read_from
from storage.postgres.translation import STEPS, STORE, Dialect, translated_tree

_TYPES: Final = {
    "INTEGER": "bigint",
    "INT": "bigint",
    "TEXT": 'text COLLATE "C"',
    "REAL": "double precision",
    "BLOB": "bytea",
}
# Left out: SQLite's own tables, the versions of its schema, and the search indexes, which each engine makes itself.
_LEFT_OUT: Final = re.compile(r"sqlite_|schema_version$|chunks_fts_|chunks_index_")
# Lets functions find the tables with any search path of a connection, such as a superuser's or pg_restore's.
_OWN_PATH: Final = " SET search_path = reverie, public, pg_temp"
# Additional columns of an index. If a session is longer than sessions were when statistics were made, the planner takes
# the shorter index: to find a chunk by its hash, it would read all chunks of the session.
_MORE_KEYS: Final = {"chunks_by_session": ("content_hash",)}
_INDEX: Final = re.compile(r"CREATE (UNIQUE )?INDEX (\w+) ON (\w+) \(")
# In a database server, all values of a column have its type, so this test is dropped.
_BLOB_TEST: Final = re.compile(r"iif\(typeof\((\w+\.\w+)\) = 'blob', hex\(\1\), \1\)")
_TRIGGER: Final = re.compile(
    r"CREATE TRIGGER (?P<name>\w+)\s+(?P<time>AFTER|BEFORE) (?P<event>INSERT|DELETE|UPDATE)"
    r"(?: OF (?P<columns>[\w, ]+))? ON (?P<table>\w+)",
)


@dataclass(frozen=True)
class _Entry:
    """One table, index, view or trigger of an SQLite file."""

    kind: str
    name: str
    sql: str


def schema() -> str:
    """Return the schema of the newest migrations."""
    try:
        return _derived()
    finally:
        read_from(None)


def _derived() -> str:
    workspace, account = _entries("workspace"), _entries("account")
    shared = {entry.name for entry in workspace}
    own = [entry for entry in account if entry.name not in shared]
    views = [entry for entry in workspace if entry.kind == "view"]
    read_from("\n".join(f"CREATE VIEW {view.name} " for view in views))
    tables = [*_tables(workspace, scoped=True), *_tables(own, scoped=False)]
    read_from("\n".join([*tables, *(f"CREATE VIEW {view.name} " for view in views)]))
    parts = [
        f"-- Derived from the SQLite schemas {newest_version('workspace')} (workspaces) and"
        f" {newest_version('account')} (account) by `make docs`.",
        _file("foundation.sql"),
        *tables,
        *_indexes(workspace, scoped=True),
        *_indexes(own, scoped=False),
        *map(_view, views),
        *_triggers(workspace, scoped=True),
        *_triggers(own, scoped=False),
        _file("additions.sql"),
        *_row_security(["text_index", "vector_index", "deleted_numbers"]),
        *_row_security(entry.name for entry in workspace if entry.kind == "table"),
    ]
    return "\n".join(parts) + "\n"


def _entries(kind: Kind) -> list[_Entry]:
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(Path(folder) / "store.db", kind, Path(folder))
        try:
            with database.reading() as connection:
                rows = connection.exec_driver_sql(
                    "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
                )
                entries = [_Entry(*row) for row in rows if not _LEFT_OUT.match(row[1])]
                recording = recorders(connection) if kind == "workspace" else ()
                return [*entries, *(_Entry("trigger", name, f"CREATE TRIGGER {name} {sql}") for name, sql in recording)]
        finally:
            database.close()


def _tables(entries: Sequence[_Entry], *, scoped: bool) -> Iterator[str]:
    references = []
    for entry in entries:
        if entry.kind != "table":
            continue
        table = _Table(entry, scoped=scoped)
        yield table.create()
        references += table.references
    yield from references


class _Table:
    """One table with its columns and constraints."""

    def __init__(self, entry: _Entry, *, scoped: bool) -> None:
        tree = sqlglot.parse_one(re.sub(r"WITHOUT ROWID", "", entry.sql), read="sqlite")
        assert isinstance(tree, exp.Create)
        self.name, self._scoped = entry.name, scoped
        self._lines: list[str] = []
        self.references: list[str] = []
        if scoped:
            self._lines.append(f"{STORE} bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint")
        for part in tree.this.expressions:
            if isinstance(part, exp.ColumnDef):
                self._add_column(part)
            else:
                self._add_constraint(part)

    def create(self) -> str:
        """Return the statement that creates the table, without its references."""
        body = ",\n    ".join(self._lines)
        return f"CREATE TABLE {self.name} (\n    {body}\n);"

    def _key(self, columns: Iterable[str]) -> str:
        return ", ".join([STORE, *columns] if self._scoped else columns)

    def _add_column(self, column: exp.ColumnDef) -> None:
        words = [column.name, _TYPES[column.args["kind"].sql("sqlite").upper()]]
        for constraint in column.constraints:
            kind = constraint.kind
            if isinstance(kind, exp.PrimaryKeyColumnConstraint):
                if words[1] == "bigint" and column.name in ("row_id", "id", "seq"):
                    words.append("GENERATED BY DEFAULT AS IDENTITY")
                self._lines_later(f"PRIMARY KEY ({self._key([column.name])})")
            elif isinstance(kind, exp.AutoIncrementColumnConstraint):
                continue
            elif isinstance(kind, exp.NotNullColumnConstraint):
                words.append("NOT NULL")
            elif isinstance(kind, exp.UniqueColumnConstraint):
                self._lines_later(f"UNIQUE ({self._key([column.name])})")
            elif isinstance(kind, exp.DefaultColumnConstraint):
                words.append(f"DEFAULT {kind.this.sql('postgres')}")
            elif isinstance(kind, exp.CheckColumnConstraint):
                words.append(f"CHECK ({_translate_expression(kind.this, is_condition=True)})")
            elif isinstance(kind, exp.Reference):
                self._add_reference([column.name], kind)
            elif isinstance(kind, (exp.GeneratedAsIdentityColumnConstraint, exp.ComputedColumnConstraint)):
                source = kind.this if isinstance(kind, exp.ComputedColumnConstraint) else kind.args["expression"]
                words.append(f"GENERATED ALWAYS AS ({_translate_expression(source)}) STORED")
            else:
                raise TypeError(f"{self.name}.{column.name}: {constraint!r}")
        self._lines.insert(
            len([line for line in self._lines if not line.startswith(("PRIMARY", "UNIQUE"))]), " ".join(words)
        )

    def _lines_later(self, line: str) -> None:
        self._lines.append(line)

    def _add_constraint(self, part: exp.Expr) -> None:
        if isinstance(part, exp.Constraint):
            part = part.expressions[0]
        if isinstance(part, exp.PrimaryKey):
            self._lines.append(f"PRIMARY KEY ({self._key(_names(part.expressions))})")
        elif isinstance(part, exp.UniqueColumnConstraint):
            self._lines.append(f"UNIQUE ({self._key(_names(part.this.expressions))})")
        elif isinstance(part, exp.ForeignKey):
            self._add_reference(_names(part.expressions), part.args["reference"])
        else:
            raise TypeError(f"{self.name}: {part!r}")

    def _add_reference(self, columns: Sequence[str], reference: exp.Reference) -> None:
        target = reference.this
        there = self._key(_names(target.expressions))
        cascade = " ON DELETE CASCADE" if "CASCADE" in reference.sql("sqlite") else ""
        name = f"{self.name}_{'_'.join(columns)}_fkey"
        self.references.append(
            f"ALTER TABLE {self.name} ADD CONSTRAINT {name} FOREIGN KEY ({self._key(columns)})"
            f" REFERENCES {target.this.name} ({there}){cascade} DEFERRABLE;"
        )


def _names(parts: Iterable[Any]) -> list[str]:
    return [part.this.name if isinstance(part, exp.Ordered) else part.name for part in parts]


def _indexes(entries: Sequence[_Entry], *, scoped: bool) -> Iterator[str]:
    for entry in entries:
        if entry.kind != "index":
            continue
        sql = " ".join(entry.sql.split())
        found = _INDEX.match(sql)
        assert found, sql
        unique, name, table = found.groups()
        keys, _, condition = sql[found.end() :].partition(") WHERE ")
        keys = keys if condition else keys.removesuffix(")")
        columns = [STORE] if scoped else []
        for key in sqlglot.parse_one(f"SELECT {keys}", read="sqlite").expressions:
            columns.append(key.name if isinstance(key, exp.Column) else f"({_translate_expression(key)})")
        where = (
            f" WHERE {_translate_expression(sqlglot.parse_one(condition, read='sqlite'), is_condition=True)}"
            if condition
            else ""
        )
        columns += _MORE_KEYS.get(name, ())
        yield f"CREATE {unique or ''}INDEX {name} ON {table} ({', '.join(columns)}){where};"


def _view(entry: _Entry) -> str:
    query = entry.sql.split(" AS", 1)[1]
    body = _translate_body(query, store="c.store_id").replace("SELECT ", f"SELECT c.{STORE} AS {STORE}, ", 1)
    return f"CREATE VIEW {entry.name} WITH (security_invoker = true) AS\n{body};"


def _triggers(entries: Sequence[_Entry], *, scoped: bool) -> Iterator[str]:
    for entry in entries:
        if entry.kind != "trigger":
            continue
        sql = _BLOB_TEST.sub(r"\1", entry.sql.strip())
        found = _TRIGGER.match(sql)
        assert found, sql
        condition, _, statements = sql[found.end() :].partition("BEGIN")
        row = "OLD" if found["event"] == "DELETE" else "NEW"
        store = f"{row}.{STORE}" if scoped else None
        lines = [_statement(one, store) for one in statements.removesuffix("END").split(";") if one.strip()]
        if condition.strip():
            asked = _translate_body(f"SELECT 1 WHERE {condition.strip().removeprefix('WHEN')}", store=store)
            lines = [f"IF {asked.removeprefix('SELECT 1 WHERE ')} THEN", *(f"    {line}" for line in lines), "END IF;"]
        if scoped:
            lines = ["IF is_copying() THEN", "    RETURN NULL;", "END IF;", *lines]
        result = "RETURN NULL;" if found["time"] == "AFTER" else f"RETURN {row};"
        columns = f" OF {found['columns']}" if found["columns"] else ""
        body = "\n    ".join([*lines, result])
        yield (
            f"CREATE FUNCTION {entry.name}() RETURNS trigger LANGUAGE plpgsql{_OWN_PATH} AS $$\nBEGIN\n    {body}\n"
            "END $$;\n"
            f"CREATE TRIGGER {entry.name} {found['time']} {found['event']}{columns} ON {found['table']}"
            f" FOR EACH ROW EXECUTE FUNCTION {entry.name}();"
        )


def _statement(statement: str, store: str | None) -> str:
    raised = re.match(r"SELECT RAISE\(ABORT, ('.*')\)", statement.strip())
    if raised:
        return f"RAISE EXCEPTION {raised[1]};"
    return _translate_body(statement, store=store) + ";"


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def _row_security(tables: Iterable[str]) -> Iterator[str]:
    """Yield statements that limit tables to one store and hide from the planner how many rows each store has.

    A store that was not there when statistics were collected would be taken for one without rows, and joined with
    itself row by row.
    """
    for table in tables:
        yield f"ALTER TABLE {table} ALTER COLUMN {STORE} SET STATISTICS 0;"
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY;"
        yield (
            f"CREATE POLICY one_store ON {table} USING ({STORE} = (SELECT current_setting('reverie.store')::bigint));"
        )


def _translate_body(sql: str, *, store: str | None) -> str:
    """Return a statement of a trigger or view, limited to the store that `store`, an SQL expression, names."""
    tree = translated_tree(sql)
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if placeholder.name == STORE:
            assert store is not None
            placeholder.replace(sqlglot.parse_one(store, read="postgres"))
    return tree.sql(Dialect)


def _translate_expression(tree: exp.Expr, *, is_condition: bool = False) -> str:
    """Return an expression of a schema in PostgreSQL's SQL."""
    value = exp.Select(expressions=[exp.paren(tree.copy())])
    query: exp.Expr = exp.select("1").where(tree.copy()) if is_condition else value
    for step in STEPS:
        query = step(query)
    found: exp.Expr = query.args["where"].this if is_condition else query.expressions[0].unnest()
    return found.sql(Dialect)
