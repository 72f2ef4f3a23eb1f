"""Lets PostgreSQL look rows up by what a join computes.

Row-level security keeps conditions that call functions from finding rows, for they could show those of others: only
columns and parameters that are compared as they are do so by an index. With `ON m.row_id = (SELECT max(...))`, or
`ON c.content_hash = unhex(...)`, all rows of the store would be read and then compared. So what is computed gets a name
before the join, and the join compares columns.
"""

from __future__ import annotations

from typing import Final

import sqlglot
from sqlglot import exp

from storage.postgres.columns import shared_tables

# What can be compared as it is.
_PLAIN: Final = (exp.Column, exp.Literal, exp.Placeholder, exp.Null, exp.Boolean)
# OFFSET keeps the planner from putting the expressions back.
_COMPUTED: Final = "SELECT 1 FROM a CROSS JOIN LATERAL (SELECT 1 OFFSET 0) AS {name}"


def name_join_keys(tree: exp.Expr) -> exp.Expr:
    """Compute what rows are looked up by before they are."""
    for condition in tree.find_all(exp.In):
        query = condition.args.get("query")
        inner = query.this if isinstance(query, exp.Subquery) else query
        if isinstance(inner, exp.Select) and not isinstance(inner.expressions[0].unalias(), _PLAIN):
            inner.set("offset", inner.args.get("offset") or exp.Offset(expression=exp.Literal.number(0)))
    for select in list(tree.find_all(exp.Select)):
        joins: list[exp.Expr] = []
        for join in select.args.get("joins") or []:
            joins += [*_computed(join), join]
        if joins:
            select.set("joins", joins)
    return tree


def _computed(join: exp.Join) -> list[exp.Expr]:
    """Replace what is computed in the condition of a join; return the join that computes it, if there is anything."""
    table, condition = join.this, join.args.get("on")
    if condition is None or not isinstance(table, exp.Table) or table.name not in shared_tables():
        return []
    name = f"{table.alias_or_name}_keys"
    computed: list[exp.Expr] = []
    for comparison in list(condition.flatten() if isinstance(condition, exp.And) else [condition]):
        if not isinstance(comparison, exp.EQ):
            continue
        for one, other in (("this", "expression"), ("expression", "this")):
            column, value = comparison.args[one].unnest(), comparison.args[other]
            if _is_of(column, table.alias_or_name) and _can_be_computed_before(value, table.alias_or_name):
                comparison.set(other, exp.column(column.name, name))
                computed.append(exp.alias_(value, column.name))
                break
    return [_joined(computed, name)] if computed else []


def _is_of(column: exp.Expr, table: str) -> bool:
    return isinstance(column, exp.Column) and column.table == table


def _can_be_computed_before(value: exp.Expr, table: str) -> bool:
    """Return whether a value is computed, and from other tables than the one that is joined."""
    outer = [column for column in value.find_all(exp.Column) if column.parent_select is value.parent_select]
    return not isinstance(value.unnest(), _PLAIN) and all(column.table not in ("", table) for column in outer)


def _joined(computed: list[exp.Expr], name: str) -> exp.Expr:
    statement = sqlglot.parse_one(_COMPUTED.format(name=name), read="postgres")
    join: exp.Expr = statement.args["joins"][0]
    inner = join.find(exp.Select)
    assert inner is not None
    inner.set("expressions", computed)
    return join
