"""Converts between numbers and truth values, which are the same in SQLite and not in PostgreSQL."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

_CONDITIONS: Final = (exp.Predicate, exp.Not, exp.And, exp.Or, exp.Exists, exp.Boolean)
_NUMBERS: Final = (
    exp.Add, exp.Anonymous, exp.Case, exp.Coalesce, exp.Column, exp.Div, exp.Literal, exp.Mod, exp.Mul, exp.Neg,
    exp.Placeholder, exp.Sub, exp.Subquery,
)  # fmt: skip
# Functions of the schema that return truth values.
_TRUTH_VALUES: Final = "has_"


def separate_booleans(tree: exp.Expr) -> exp.Expr:
    """Write numbers as conditions where PostgreSQL expects conditions, and conditions as numbers elsewhere."""
    for node in reversed(list(tree.walk())):
        if isinstance(node, _CONDITIONS) and not isinstance(node, exp.Any):
            if not _is_assignment(node) and not _expects_condition(node):
                number = exp.cast(exp.cast(exp.Paren(), "int"), "bigint")
                _wrap(node, number, number.this.this)
        elif isinstance(node, exp.Anonymous) and node.name.startswith(_TRUTH_VALUES):
            continue
        elif isinstance(node, _NUMBERS) and _expects_condition(node):
            if isinstance(node, exp.Literal):
                node.replace(exp.true() if node.name != "0" else exp.false())
            else:
                inside = exp.Paren()
                _wrap(node, exp.NEQ(this=inside, expression=exp.Literal.number(0)), inside)
    return tree


def _wrap(node: exp.Expr, outside: exp.Expr, inside: exp.Expr) -> None:
    """Put a node into another expression, which takes its place."""
    node.replace(outside)
    inside.set("this", node)


def _is_assignment(node: exp.Expr) -> bool:
    return isinstance(node.parent, (exp.Update, exp.OnConflict)) and node.arg_key == "expressions"


def _expects_condition(node: exp.Expr) -> bool:
    """Return whether a condition is expected in the place of a node."""
    parent, key = node.parent, node.arg_key
    while isinstance(parent, exp.Paren):
        key, parent = parent.arg_key, parent.parent
    if isinstance(parent, (exp.And, exp.Or, exp.Not, exp.Where, exp.Having)):
        return True
    if isinstance(parent, exp.Escape):
        return key == "this"
    if isinstance(parent, exp.If):
        return key == "this" and not (isinstance(parent.parent, exp.Case) and parent.parent.this)
    if isinstance(parent, exp.Join):
        return key == "on"
    if isinstance(parent, exp.OnConflict):
        return key == "where"
    if isinstance(parent, exp.Is):
        return key == "expression" or isinstance(parent.expression, exp.Boolean)
    return False
