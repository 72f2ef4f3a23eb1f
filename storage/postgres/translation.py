"""Translates statements from SQLite's SQL, in which repositories write them, to PostgreSQL's.

Besides the syntax, each table that holds rows of many stores is limited to the rows of one: the parameter `store_id`.
Row-level security limits it a second time. A statement is translated once for each process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from storage.postgres.collections import bind_collections
from storage.postgres.columns import shared_tables
from storage.postgres.conditions import separate_booleans
from storage.postgres.join_keys import name_join_keys
from storage.postgres.types import can_be_null, type_of

STORE: Final = "store_id"


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement of PostgreSQL.

    `arrays` are the parameters that are bound as arrays rather than as JSON. `untyped` are those that are compared with
    NULL: PostgreSQL cannot tell their type, so a statement with a value differs from one without (`for_values`).
    """

    sql: str
    arrays: frozenset[str]
    untyped: frozenset[str]


class Dialect(Postgres):
    """PostgreSQL with parameters written as SQLAlchemy does."""

    class Generator(Postgres.Generator):  # type: ignore[misc, valid-type]
        """Writes a tree as PostgreSQL's SQL."""

        TRANSFORMS: ClassVar = {
            **Postgres.Generator.TRANSFORMS,
            exp.Placeholder: lambda _self, node: f":{node.name}",
            exp.Hex: lambda self, node: f"upper(encode({self.sql(node, 'this')}, 'hex'))",
            exp.LowerHex: lambda self, node: f"encode({self.sql(node, 'this')}, 'hex')",
            exp.Unhex: lambda self, node: f"decode({self.sql(node, 'this')}, 'hex')",
            exp.HexString: lambda _self, node: f"CAST('\\x{node.name}' AS bytea)",
            exp.Cast: lambda self, node: self.cast_sql(_widened(node)),
            exp.BitwiseLeftShift: lambda self, node: (
                f"CAST({self.sql(node, 'this')} AS BIGINT) << CAST({self.sql(node, 'expression')} AS INT)"
            ),
            exp.Chr: lambda self, node: " || ".join(f"chr({self.sql(code)})" for code in node.expressions),
            exp.JSONArrayAgg: lambda self, node: f"CAST(coalesce(json_agg({self.sql(node, 'this')}), '[]') AS text)",
        }


@lru_cache(maxsize=2048)
def translate(sql: str) -> Translated:
    """Return a statement in PostgreSQL's SQL, limited to one store. Raises `sqlglot.ParseError`."""
    tree = _translated(sql)
    casts = (node for node in tree.find_all(exp.Cast) if isinstance(node.this, exp.Placeholder))
    arrays = frozenset(node.this.name for node in casts if node.to.this == exp.DataType.Type.ARRAY)
    return Translated(tree.sql(Dialect), arrays, frozenset(_untyped(tree)))


@lru_cache(maxsize=2048)
def for_values(sql: str, missing: frozenset[str]) -> str:
    """Return a statement with untyped parameters, those in `missing` without a value and the others with one."""
    tree = _translated(sql)
    untyped = set(_untyped(tree))
    for node in list(tree.find_all(exp.Is)):
        if isinstance(node.this, exp.Placeholder) and node.this.name in untyped - missing:
            node.replace(exp.false())
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if placeholder.name in missing:
            placeholder.replace(exp.null())
    return tree.sql(Dialect)


def translate_body(sql: str, *, store: str | None) -> str:
    """Return a statement of a trigger or view, limited to the store that `store`, an SQL expression, names."""
    tree = _translated(sql)
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if placeholder.name == STORE:
            assert store is not None
            placeholder.replace(sqlglot.parse_one(store, read="postgres"))
    return tree.sql(Dialect)


def translate_expression(tree: exp.Expr, *, is_condition: bool = False) -> str:
    """Return an expression of a schema in PostgreSQL's SQL."""
    value = exp.Select(expressions=[exp.paren(tree.copy())])
    query: exp.Expr = exp.select("1").where(tree.copy()) if is_condition else value
    for step in _STEPS:
        query = step(query)
    found: exp.Expr = query.args["where"].this if is_condition else query.expressions[0].unnest()
    return found.sql(Dialect)


def _translated(sql: str) -> exp.Expr:
    tree = sqlglot.parse_one(sql, read="sqlite")
    for step in _STEPS:
        tree = step(tree)
    return tree


def _untyped(tree: exp.Expr) -> list[str]:
    tested = (node.this for node in tree.find_all(exp.Is) if isinstance(node.expression, exp.Null))
    return [node.name for node in tested if isinstance(node, exp.Placeholder)]


def _name_conflicts(tree: exp.Expr) -> exp.Expr:
    """Name the store in the key of a conflict, and read `INSERT OR IGNORE` as one without a key."""
    for insert in tree.find_all(exp.Insert):
        if insert.args.get("alternative") == "IGNORE":
            insert.set("alternative", None)
            insert.set("conflict", exp.OnConflict(action=exp.Var(this="DO NOTHING")))
        conflict = insert.args.get("conflict")
        if conflict is None:
            continue
        target = insert.this.this if isinstance(insert.this, exp.Schema) else insert.this
        keys = conflict.args.get("conflict_keys") or []
        for key in keys:
            if isinstance(key, exp.Ordered):
                key.replace(key.this)
        if keys and target.name in shared_tables():
            conflict.set("conflict_keys", [exp.column(STORE), *conflict.args["conflict_keys"]])
        read = [value.expression for value in conflict.expressions]
        for part in [*read, conflict.args.get("where")]:
            for column in part.find_all(exp.Column) if part is not None else ():
                if not column.table:
                    column.set("table", exp.to_identifier(target.alias_or_name))
    return tree


def _limit_to_store(tree: exp.Expr) -> exp.Expr:
    """Limit every table to the rows of one store."""
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if table.name not in shared_tables() or table.name in named or not isinstance(table.this, exp.Identifier):
            continue
        condition = exp.EQ(this=exp.column(STORE, table.alias_or_name), expression=exp.Placeholder(this=STORE))
        parent = table.parent
        if isinstance(parent, exp.Join) and parent.side:
            parent.set("on", exp.and_(condition, parent.args.get("on"), copy=False))
        elif isinstance(parent, (exp.Update, exp.Delete)):
            parent.where(condition, copy=False)
        elif isinstance(parent, (exp.From, exp.Join)) and isinstance(parent.parent, (exp.Select, exp.Update)):
            parent.parent.where(condition, copy=False)
    return tree


def _name_plainly(tree: exp.Expr) -> exp.Expr:
    """Drop what only guides SQLite's planner, and write `rowid` as the place of a row."""
    for join in tree.find_all(exp.Join):
        if join.kind == "CROSS" and join.args.get("on") is not None:
            join.set("kind", None)
    for table in tree.find_all(exp.Table):
        table.set("indexed", None)
    for column in tree.find_all(exp.Column):
        if column.name == "rowid":
            column.this.set("this", "ctid")
    return tree


def _know_numbers(tree: exp.Expr) -> exp.Expr:
    """Ask a function for the highest number that a table has used, which SQLite keeps in a table."""
    for select in list(tree.find_all(exp.Select)):
        source = select.args.get("from_")
        if source is not None and source.this.name == "sqlite_sequence":
            name = select.args["where"].this.expression
            asked = exp.alias_(exp.Anonymous(this="highest_number", expressions=[name.copy()]), "seq")
            select.replace(exp.Select(expressions=[asked])) if select.parent else None
            if select is tree:
                tree = exp.Select(expressions=[asked])
    return tree


def _compare_nulls(tree: exp.Expr) -> exp.Expr:
    """Return NULL from `max(a, b)` and `min(a, b)` if either is: PostgreSQL leaves it out."""
    for node in list(tree.find_all(exp.Max, exp.Min, exp.Greatest, exp.Least)):
        values = [node.this, *node.expressions]
        if len(values) < 2:
            continue
        tests = [exp.Is(this=value.copy(), expression=exp.null()) for value in values if _can_be_null(value)]
        if tests:
            case = exp.Case(ifs=[exp.If(this=exp.or_(*tests), true=exp.null())])
            node.replace(case)
            case.set("default", node)
    return tree


def _can_be_null(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return can_be_null(node)
    return not isinstance(node, (exp.Literal, exp.Coalesce)) and any(
        isinstance(part, exp.Column) and can_be_null(part) for part in node.find_all(exp.Column)
    )


def _limit_rows(tree: exp.Expr) -> exp.Expr:
    """Have a limit of -1 mean all rows, which PostgreSQL refuses."""
    for limit in tree.find_all(exp.Limit):
        if isinstance(limit.expression, exp.Placeholder):
            number = exp.cast(limit.expression.copy(), "bigint")
            limit.set("expression", exp.Nullif(this=number, expression=exp.Literal.number(-1)))
    return tree


def _ignore_case(tree: exp.Expr) -> exp.Expr:
    """Compare patterns without regard to case, as SQLite's LIKE does."""
    for like in list(tree.find_all(exp.Like)):
        like.replace(exp.ILike(**like.args))
    return tree


def _order_nulls(tree: exp.Expr) -> exp.Expr:
    """Say where NULL comes only for what can be NULL: otherwise no index would be used for the order."""
    for ordered in tree.find_all(exp.Ordered):
        key = ordered.this
        if not isinstance(key, exp.Column) or not can_be_null(key):
            ordered.set("nulls_first", bool(ordered.args.get("desc")))
    return tree


def _read_json(tree: exp.Expr) -> exp.Expr:
    """Convert texts to JSON before they are read, and what is read of them to the type it is compared with."""

    def as_document(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.JSONExtract, exp.JSONExtractScalar)) and not node.meta.get("read"):
            node.set("this", exp.cast(exp.paren(node.this), "json"))
            node.meta["read"] = True
        elif isinstance(node, exp.Cast) and node.is_type("text") and type_of(node.this) == "bytea":
            return exp.Anonymous(this="bytes_text", expressions=[node.this])
        return node

    tree = tree.transform(as_document)
    for node in list(tree.find_all(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        for one, other in (("this", "expression"), ("expression", "this")):
            read, compared = node.args[one].unnest(), node.args[other].unnest()
            if not isinstance(read, (exp.JSONExtract, exp.JSONExtractScalar)):
                continue
            if type_of(compared) == "bigint" or isinstance(node, _ORDERINGS):
                node.set(one, exp.cast(read.copy(), "bigint"))
            elif isinstance(compared, exp.Placeholder) or (
                isinstance(compared, exp.Literal) and not compared.is_string
            ):
                node.set(other, exp.cast(compared.copy(), "text"))
    return tree


def _widened(node: exp.Cast) -> exp.Cast:
    """Return a conversion to the type that SQLite means: its integers have 64 bits, its reals too."""
    wide = {"INT": "bigint", "FLOAT": "double precision", "REAL": "double precision"}.get(node.to.sql("sqlite").upper())
    wide = wide or {"INTEGER": "bigint"}.get(node.to.sql("sqlite").upper())
    return exp.cast(node.this, wide) if wide and not isinstance(node.parent, exp.Cast) else node


_ORDERINGS: Final = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_STEPS: Final[tuple[Callable[[exp.Expr], exp.Expr], ...]] = (
    bind_collections,
    _know_numbers,
    _compare_nulls,
    _name_plainly,
    _name_conflicts,
    _limit_to_store,
    _limit_rows,
    _ignore_case,
    _order_nulls,
    _read_json,
    separate_booleans,
    name_join_keys,
)
