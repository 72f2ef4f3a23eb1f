"""Writes collections as arrays of PostgreSQL, where SQLite reads them from JSON with `json_each`."""

from __future__ import annotations

from typing import Final

import sqlglot
from sqlglot import exp

from storage.postgres.types import type_of

_CALL: Final = "json_each"


def bind_collections(tree: exp.Expr) -> exp.Expr:
    """Replace `json_each`: of a parameter by an array, or by JSON if its values are collections themselves."""
    for node in list(tree.find_all(exp.In)):
        source = _only_source(node.args.get("query"))
        if isinstance(source, exp.Placeholder):
            array = exp.cast(source.copy(), f"{type_of(node.this)}[]")
            node.replace(exp.EQ(this=node.this, expression=exp.Any(this=exp.paren(array))))
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == "json_array_length" and isinstance(call.expressions[0], exp.Placeholder):
            call.replace(exp.Anonymous(this="cardinality", expressions=[exp.cast(call.expressions[0], "text[]")]))
    for table in list(tree.find_all(exp.Table)):
        if _is_call(table):
            table.replace(_elements(tree, table))
    return tree


def _is_call(table: exp.Expr) -> bool:
    call = table.this if isinstance(table, exp.Table) else None
    return isinstance(call, exp.Anonymous) and call.name.lower() == _CALL


def _only_source(query: exp.Expr | None) -> exp.Expr | None:
    """Return what `SELECT value FROM json_each(...)` reads, if a query is just that."""
    query = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Select) or {name for name, value in query.args.items() if value} != {
        "expressions",
        "from_",
    }:
        return None
    table = query.args["from_"].this
    if [column.sql() for column in query.expressions] != ["value"] or not _is_call(table):
        return None
    found: exp.Expr = table.this.expressions[0]
    return found


def _elements(tree: exp.Expr, table: exp.Table) -> exp.Expr:
    alias = table.alias or _CALL
    source, *path = table.this.expressions
    if not isinstance(source, exp.Placeholder):
        keys = path[0].name.removeprefix("$.").replace("$", "") if path else ""
        call = f"json_elements({source.sql('postgres')}, '{keys}')"
    elif _holds_collections(tree, table):
        call = f"jsonb_array_elements(CAST(:{source.name} AS jsonb))"
    else:
        call = f"unnest(CAST(:{source.name} AS {_type_of_value(tree, table)}[]))"
    parsed = sqlglot.parse_one(f"SELECT 1 FROM {call} WITH ORDINALITY AS {alias}(value, key)", read="postgres")
    found: exp.Expr = parsed.args["from_"].this
    return found


def _values(tree: exp.Expr, table: exp.Table) -> list[exp.Column]:
    select = table.find_ancestor(exp.Select) or tree
    names = {"", table.alias or _CALL}
    return [column for column in select.find_all(exp.Column) if column.name == "value" and column.table in names]


def _holds_collections(tree: exp.Expr, table: exp.Table) -> bool:
    return any(isinstance(value.parent, (exp.JSONExtract, exp.JSONExtractScalar)) for value in _values(tree, table))


def _type_of_value(tree: exp.Expr, table: exp.Table) -> str:
    for value in _values(tree, table):
        if isinstance(value.parent, exp.EQ):
            other = value.parent.expression if value.parent.this is value else value.parent.this
            return type_of(other)
    return "text"
