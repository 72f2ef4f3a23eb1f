"""Translates statements from SQLite's SQL, in which repositories write them, to PostgreSQL's.

Besides changing the syntax, it limits each table with rows of many stores to one store: the parameter `store_id`.
Row-level security limits it a second time.

Row-level security keeps conditions that call functions from finding rows, for they could show those of others: only
columns and parameters that are compared as they are do so by an index. With `ON m.row_id = (SELECT max(...))`, or
`ON c.content_hash = unhex(...)`, all rows of the store would be read and then compared. So what is computed gets a name
before the join, and the join compares columns.

To translate a statement takes 2 to 12 ms of the processor, and it is first needed within a transaction, which holds
the lock of a store meanwhile. So it is done once for each version of Reverie on a host, and not in each process: the
translations are kept in a file of the host.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import sqlglot
from blake3 import blake3
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from storage.postgres.columns import shared_tables, tables

FILE: Final = "translations"
_Line = tuple[str, str, str, frozenset[str], frozenset[str]]
_decode = msgspec.json.Decoder(_Line).decode
# PostgreSQL's SQL, and two sets of parameters.
Translation = tuple[str, frozenset[str], frozenset[str]]


class KeptTranslations:
    """The known translations, by statement. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Translation] = {}
        self._path: Path | None = None
        self._code = ""

    def open(self, path: Path) -> None:
        """Load the translations in a file, unless other code made them, and add new ones to it."""
        self._path, self._code = path, _code()
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            found: dict[str, Translation] = {}
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # cut off by a kill
                    code, key, sql, arrays, untyped = _decode(line)
                    if code == self._code:
                        found[key] = (sql, arrays, untyped)
            if not found:
                path.unlink()
            self._known |= found

    def find(self, key: str, make: Callable[[], Translation]) -> Translation:
        """Return the known translation of a statement; without one, call `make` and keep its result."""
        if key not in self._known:
            self._known[key] = make()
            if self._path is not None:
                line = msgspec.json.encode((self._code, key, *self._known[key])) + b"\n"
                with contextlib.suppress(OSError):  # the next process translates it again
                    file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    try:
                        os.write(file, line)
                    finally:
                        os.close(file)
        return self._known[key]


def _code() -> str:
    """Return a hash of the code that translates: this package and the parser."""
    content = blake3(version("sqlglot").encode())
    for module in sorted(Path(__file__).parent.glob("*.py")):
        content.update(module.read_bytes())
    return content.hexdigest(length=8)


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
    """Replace a node by another expression around it."""
    node.replace(outside)
    inside.set("this", node)


def _is_assignment(node: exp.Expr) -> bool:
    return isinstance(node.parent, (exp.Update, exp.OnConflict)) and node.arg_key == "expressions"


def _expects_condition(node: exp.Expr) -> bool:
    """Return whether PostgreSQL expects a condition in the place of a node."""
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


# Expressions that an index can look up without being computed first.
_PLAIN: Final = (exp.Column, exp.Literal, exp.Placeholder, exp.Null, exp.Boolean)
# OFFSET keeps the planner from putting the expressions back.
_COMPUTED: Final = "SELECT 1 FROM a CROSS JOIN LATERAL (SELECT 1 OFFSET 0) AS {name}"


def name_join_keys(tree: exp.Expr) -> exp.Expr:
    """Compute the values by which rows are looked up before the look-up."""
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
    """Replace computed expressions in the condition of a join; return the joins that compute them."""
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
    """Return whether a value is computed from other tables than the one that is joined."""
    outer = [column for column in value.find_all(exp.Column) if column.parent_select is value.parent_select]
    return not isinstance(value.unnest(), _PLAIN) and all(column.table not in ("", table) for column in outer)


def _joined(computed: list[exp.Expr], name: str) -> exp.Expr:
    statement = sqlglot.parse_one(_COMPUTED.format(name=name), read="postgres")
    join: exp.Expr = statement.args["joins"][0]
    inner = join.find(exp.Select)
    assert inner is not None
    inner.set("expressions", computed)
    return join


def type_of(node: exp.Expr) -> str:
    """Return the type of a column, text if it is not known."""
    node = node.unnest()
    table = _table_of(node)
    return "text" if table is None else tables()[table].columns[node.name]


def can_be_null(column: exp.Column) -> bool:
    """Return whether a column can be NULL; True for columns that belong to no table."""
    table = _table_of(column)
    return table is None or column.name in tables()[table].nullable


def _table_of(node: exp.Expr) -> str | None:
    if not isinstance(node, exp.Column):
        return None
    scope = node.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    while scope is not None:
        for table in scope.find_all(exp.Table):
            if node.table in ("", table.alias_or_name) and node.name in _columns_of(table.name):
                return table.name
        scope = scope.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
    return None


def _columns_of(table: str) -> Collection[str]:
    found = tables().get(table)
    return () if found is None else found.columns


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
    """Return the argument of `SELECT value FROM json_each(...)` if a query is nothing else."""
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


STORE: Final = "store_id"
# The translations that this process knows.
KEPT: Final = KeptTranslations()


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

    def make() -> Translation:
        tree = translated_tree(sql)
        casts = (node for node in tree.find_all(exp.Cast) if isinstance(node.this, exp.Placeholder))
        arrays = frozenset(node.this.name for node in casts if node.to.this == exp.DataType.Type.ARRAY)
        return tree.sql(Dialect), arrays, frozenset(_untyped(tree))

    return Translated(*KEPT.find(sql, make))


@lru_cache(maxsize=2048)
def for_values(sql: str, missing: frozenset[str]) -> str:
    """Return a statement with untyped parameters, those in `missing` without a value and the others with one."""

    def make() -> Translation:
        tree = translated_tree(sql)
        untyped = set(_untyped(tree))
        for node in list(tree.find_all(exp.Is)):
            if isinstance(node.this, exp.Placeholder) and node.this.name in untyped - missing:
                node.replace(exp.false())
        for placeholder in list(tree.find_all(exp.Placeholder)):
            if placeholder.name in missing:
                placeholder.replace(exp.null())
        return tree.sql(Dialect), frozenset(), missing

    return KEPT.find("\x1f".join((sql, *sorted(missing))) + "\x1f", make)[0]


def translated_tree(sql: str) -> exp.Expr:
    """Return the syntax tree of a statement in PostgreSQL's SQL. Raises `sqlglot.ParseError`."""
    tree = sqlglot.parse_one(sql, read="sqlite")
    for step in STEPS:
        tree = step(tree)
    return tree


def _untyped(tree: exp.Expr) -> list[str]:
    tested = (node.this for node in tree.find_all(exp.Is) if isinstance(node.expression, exp.Null))
    return [node.name for node in tested if isinstance(node, exp.Placeholder)]


def _name_conflicts(tree: exp.Expr) -> exp.Expr:
    """Add the store to the key of a conflict; `INSERT OR IGNORE` becomes a conflict without a key."""
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
    """Read the highest number that a table has used from a function; SQLite has it in a table."""
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
    """Make `max(a, b)` and `min(a, b)` NULL if either is NULL: PostgreSQL ignores NULL."""
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
    """Translate a limit of -1, which PostgreSQL refuses, to no limit."""
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
    """State the position of NULL only for columns that can be NULL: for others, it would rule out an index."""
    for ordered in tree.find_all(exp.Ordered):
        key = ordered.this
        if not isinstance(key, exp.Column) or not can_be_null(key):
            ordered.set("nulls_first", bool(ordered.args.get("desc")))
    return tree


def _read_json(tree: exp.Expr) -> exp.Expr:
    """Convert texts to JSON before a value is read from them, and the value to the type it is compared with."""

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
# The steps of a translation, in their order.
STEPS: Final[tuple[Callable[[exp.Expr], exp.Expr], ...]] = (
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
