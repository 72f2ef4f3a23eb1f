"""Finds the types of columns in a statement."""

from __future__ import annotations

from sqlglot import exp

from storage.postgres.columns import tables


def type_of(node: exp.Expr) -> str:
    """Return the type of a column, text if it is not known."""
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return "text"
    scope = node.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    while scope is not None:
        for table in scope.find_all(exp.Table):
            columns = tables().get(table.name, {})
            if node.name in columns and node.table in ("", table.alias_or_name):
                return columns[node.name]
        scope = scope.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    return "text"
