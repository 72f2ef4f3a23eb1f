"""Finds every regular expression of the code: those that its modules hold, and those that are compiled where used."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[2]
# The folders of the product with the package that their files are imported as.
_FOLDERS: Final = ("memory", "retrieval", "storage", "adapters", "server", "worker", "tasks", "cli", "client/reverie")
_DEPTH: Final = 5
# Functions of `re` whose first argument is a pattern, with the place of their flags.
_FLAGS_AT: Final = {
    "compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4, "subn": 4,
}  # fmt: skip

AnyPattern = re.Pattern[str] | re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class FoundPattern:
    """A pattern and where it was found: `memory/memories/secrets.py _PLACEHOLDER`, or the line of its use."""

    where: str
    pattern: AnyPattern


@dataclass(frozen=True, slots=True)
class UnknownPattern:
    """The place of a pattern that only exists while its function runs."""

    where: str
    code: str


def find_patterns() -> tuple[list[FoundPattern], list[UnknownPattern]]:
    """Return every pattern of the product, each once, and the uses of `re` whose pattern could not be found."""
    found: dict[tuple[str | bytes, int], FoundPattern] = {}
    unknown: list[UnknownPattern] = []
    for path in _modules():
        module = importlib.import_module(_name_of(path))
        where = str(path.relative_to(_ROOT))
        held = [one for name, value in vars(module).items() for one in _held(value, f"{where} {name}", _DEPTH)]
        used, missing = _used(ast.parse(path.read_text(encoding="utf-8")), module, where)
        for one in [*held, *used]:
            found.setdefault((one.pattern.pattern, one.pattern.flags), one)
        unknown += [] if held else missing  # a pattern of a comprehension is held by the module
    return list(found.values()), unknown


def _modules() -> Iterator[Path]:
    yield _ROOT / "beat_schedule.py"
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if "migrations" not in path.parts and path.name != "__main__.py":
                yield path


def _name_of(path: Path) -> str:
    relative = path.relative_to(_ROOT).with_suffix("")
    parts = [part for part in relative.parts if part not in ("client", "__init__")]
    return ".".join(parts)


def _held(value: object, where: str, depth: int) -> Iterator[FoundPattern]:
    if isinstance(value, re.Pattern):
        yield FoundPattern(where, value)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _held(item, where, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _held(item, where, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _held(getattr(value, field.name, None), where, depth - 1)


def _used(tree: ast.AST, module: ModuleType, where: str) -> tuple[list[FoundPattern], list[UnknownPattern]]:
    found: list[FoundPattern] = []
    unknown: list[UnknownPattern] = []
    for node in ast.walk(tree):
        if not _is_use(node):
            continue
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        place = f"{where}:{node.lineno}"
        flags_at = _FLAGS_AT[node.func.attr]
        flag_nodes = [key.value for key in node.keywords if key.arg == "flags"] + node.args[flags_at : flags_at + 1]
        try:
            pattern, *flags = (_evaluate(one, module) for one in [node.args[0], *flag_nodes])
        except NameError:
            unknown.append(UnknownPattern(place, ast.unparse(node)[:120]))
            continue
        if isinstance(pattern, str | bytes):
            found.append(FoundPattern(place, re.compile(pattern, *flags)))
    return found, unknown


def _is_use(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in _FLAGS_AT
        and bool(node.args)
    )


def _evaluate(node: ast.expr, module: ModuleType) -> Any:
    # The code of this repository, which has been imported already.
    return eval(compile(ast.Expression(node), module.__name__, "eval"), vars(module))
