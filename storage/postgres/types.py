"""Finds the tables of columns in a statement, and so their types."""

from __future__ import annotations

from sqlglot import exp

from storage.postgres.columns import nullable_columns, tables


def type_of(node: exp.Expr) -> str:
    """Return the type of a column, text if it is not known."""
    node = node.unnest()
    table = _table_of(node)
    return "text" if table is None else tables()[table][node.name]


def can_be_null(column: exp.Column) -> bool:
    """Return whether a column can be NULL, as those that are not columns of a table may be."""
    table = _table_of(column)
    return table is None or column.name in nullable_columns().get(table, ())


def _table_of(node: exp.Expr) -> str | None:
    if not isinstance(node, exp.Column):
        return None
    scope = node.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    while scope is not None:
        for table in scope.find_all(exp.Table):
            if node.name in tables().get(table.name, {}) and node.table in ("", table.alias_or_name):
                return table.name
        scope = scope.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    return None
