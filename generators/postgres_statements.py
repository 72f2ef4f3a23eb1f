"""Makes `storage/postgres/statements.sql`: the SQL of repositories, translated for PostgreSQL.

Statements are found in the source of `storage/` where they are run, and are translated as in production. A statement
that is composed at run time is shown in the forms that its parts allow: names stand for values that are assigned to
them or passed by callers in the module, or else for samples of their types.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from storage.engines import OPTION
from storage.index.search_index import SearchIndex
from storage.postgres.columns import tables
from storage.postgres.search_index import PostgresSearchIndex
from storage.postgres.translation import translate
from storage.viewer import Viewer

_ROOT: Final = Path(__file__).parents[1]
_HEAD: Final = """\
-- Written by `make docs`: what the repositories of storage/ run on PostgreSQL, by module and function. Statements that
-- are composed while the program runs are shown in some of their forms, with samples of names ('x') and numbers (1).
-- Where a parameter is compared with NULL, production has another form without a value. What storage/postgres/ runs
-- besides is written in PostgreSQL's SQL there.
"""
# Functions that run a statement: the position of the statement among the arguments, and whether it is a method.
_RUNNER: Final = re.compile(r"self\._(execute|execute_many|integer|pages|stream|values?)")
_SECOND: Final = re.compile(r"self\._records?|execute|execute_many|stream")
# Modules that are for SQLite alone, run statements of other modules, or have PostgreSQL's own SQL.
_LEFT_OUT: Final = re.compile(r"/(engine|rows|repository|opening|postgres/(?!search_index)\w+)\.py")
_CLAUSE: Final = re.compile(r"FROM|WHERE|LEFT|CROSS|JOIN|GROUP|ORDER|UNION|VALUES|SET|RETURNING")
_MOST_FORMS: Final = 6
# Stands for a connection to a database with all tables.
_DATABASE: Final = SimpleNamespace(tables=lambda _: {name: table.columns for name, table in tables().items()})
_CONNECTION: Final = SimpleNamespace(get_execution_options=lambda: {OPTION: _DATABASE})


class _Module:
    """A module whose expressions are evaluated with all values of their names."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self._values = {**vars(builtins), **vars(importlib.import_module(self.name))}
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        self._calls = sorted(calls, key=lambda call: (call.lineno, call.col_offset))
        self._open: set[tuple[ast.AST, str]] = set()  # the names that are being evaluated

    def statements(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the name of each function that runs statements, and the forms of each statement."""
        for call in self._calls:
            called = ast.unparse(call.func)
            if self._is_overridden(call):
                continue
            place = 0 if _RUNNER.fullmatch(called) else 1 if _SECOND.fullmatch(called) else len(call.args)
            for statement in call.args[place : place + 1]:
                forms = dict.fromkeys(form for form in self._evaluate(statement) if isinstance(form, str))
                yield self._function_of(call).name, list(forms)[:_MOST_FORMS]

    def _is_overridden(self, node: ast.AST) -> bool:
        """Return whether a node is in a method of `SearchIndex` in place of which PostgreSQL has one of its own."""
        while node in self._parents and not isinstance(node, ast.FunctionDef):
            node = self._parents[node]
        owner = self._parents.get(node)
        is_of_index = isinstance(owner, ast.ClassDef) and self._values[owner.name] is SearchIndex
        return is_of_index and isinstance(node, ast.FunctionDef) and node.name in vars(PostgresSearchIndex)

    def _function_of(self, node: ast.AST) -> ast.FunctionDef:
        while not isinstance(node, ast.FunctionDef):
            node = self._parents[node]
        return node

    def _evaluate(self, expression: ast.expr) -> Iterator[Any]:
        """Yield the values of an expression, except for combinations of values of its names that raise errors."""
        bound = (_names(node.target) for node in ast.walk(expression) if isinstance(node, ast.comprehension))
        unknown = sorted(_names(expression).difference(self._values, *bound))
        for chosen in islice(product(*(self._values_of(name, expression) for name in unknown)), 64):
            with suppress(Exception):
                scope = self._values | dict(zip(unknown, chosen, strict=True))
                yield eval(compile(ast.Expression(expression), self.name, "eval"), scope)  # noqa: S307 - our own source

    def _values_of(self, name: str, at: ast.AST) -> list[Any]:
        """Return the values of a name in a function: those assigned to it, else the arguments passed for it."""
        function = self._function_of(at)
        if (function, name) in self._open:
            return []
        self._open.add((function, name))
        found: list[Any] = []
        for node in ast.walk(function):
            if isinstance(node, ast.AugAssign) and name in _names(node.target):
                found += [
                    one + more for one, more in product(found, self._evaluate(node.value)) if isinstance(one, str)
                ]
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found += _parts(name, target, self._evaluate(node.value)) if name in _names(target) else ()
            elif isinstance(node, (ast.For, ast.comprehension)) and name in _names(node.target):
                with suppress(TypeError):
                    found += _parts(name, node.target, chain.from_iterable(self._evaluate(node.iter)))
        found = found or list(self._passed(name, function))
        self._open.remove((function, name))
        return found

    def _passed(self, name: str, function: ast.FunctionDef) -> Iterator[Any]:
        """Yield the arguments that callers in this module pass to a parameter, or else samples of its type."""
        parent = self._parents[function]
        owner = self._values[parent.name] if isinstance(parent, ast.ClassDef) else None
        if name == "self" and owner is not None:
            for kind in (owner, *owner.__subclasses__()):
                instance = object.__new__(kind)
                instance.__dict__.update(_viewer=Viewer("x", "x"), _agent="x", _connection=_CONNECTION, _bound={})
                yield instance
            return
        names = [argument.arg for argument in function.args.args][owner is not None :]
        defaults = dict(zip(names[::-1], function.args.defaults[::-1], strict=False))
        found = list(self._evaluate(defaults[name])) if name in defaults else []
        for call in self._calls:
            if ast.unparse(call.func).removeprefix("self.") == function.name:
                given = dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords}
                found += self._evaluate(given[name]) if name in given else ()
        hints = dict[str, Any]()
        with suppress(TypeError, NameError):  # a type that does not exist at run time does not affect statements
            hints = typing.get_type_hints(getattr(owner, function.name) if owner else self._values[function.name])
        yield from found or (_samples(hints[name]) if name in hints else ())


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _parts(name: str, target: ast.expr, values: Any) -> Iterator[Any]:
    """Yield the parts of assigned values that a name in the target gets."""
    for value in values:
        if isinstance(target, ast.Tuple):
            for part, one in zip(target.elts, value, strict=False):
                yield from _parts(name, part, [one]) if name in _names(part) else ()
        elif isinstance(target, ast.Name):
            yield value


def _samples(hint: Any) -> Iterator[Any]:
    """Yield the values of a type that may give a statement different forms."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        yield from chain.from_iterable(map(_samples, arguments))
    elif hasattr(hint, "__dataclass_fields__") or hasattr(hint, "_fields"):
        values = {name: next(_samples(one)) for name, one in typing.get_type_hints(hint).items()}
        required = [one.name for one in inspect.signature(hint).parameters.values() if one.default is one.empty]
        yield hint(**{name: values[name] for name in required})
        yield hint(**values)
    elif origin is not None:
        yield from arguments if origin is typing.Literal else (tuple(_samples(arguments[0])),)
    else:
        known = {bool: (True, False), int: (1,), float: (1.0,), str: ("x",), Any: ("x",)}
        yield from known.get(hint, (_CONNECTION if getattr(hint, "__name__", "") == "Connection" else None,))


def _laid_out(statement: str) -> str:
    """Return a statement in PostgreSQL's SQL, with each of its outer clauses on a line of its own."""
    clauses, depth, before = [""], 0, ""
    for word in f"{translate(statement).sql};".split(" "):
        if _CLAUSE.fullmatch(word) and not depth and before not in ("DISTINCT", "DELETE", "LEFT", "CROSS"):
            clauses.append("")
        clauses[-1] += f" {word}"
        depth, before = depth + word.count("(") - word.count(")"), word
    return "\n".join(
        textwrap.fill(one.strip(), 120, subsequent_indent="    ", break_on_hyphens=False) for one in clauses
    )


def content() -> str:
    """Return the content of the file."""
    parts = [_HEAD]
    for path in sorted((_ROOT / "storage").rglob("*.py")):
        if not _LEFT_OUT.search(path.as_posix()):
            module = _Module(path)
            for function, forms in module.statements():
                shown = map(_laid_out, forms) if forms else ["-- composed of the rows and columns that it is given"]
                parts += [f"-- {module.name}: {function}", *shown]
    return "\n".join(parts) + "\n"
