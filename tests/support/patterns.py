"""Finds every regular expression of the code, and derives texts on which each is slow if it can be.

A pattern that takes more than linear time does so where it repeats something: after what leads there, a long run of
what is repeated, and then something that does not fit. So each repeat of a pattern is reached, pumped and failed.
"""

from __future__ import annotations

import ast
import importlib
import math
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from memory.memories.patterns.matching import Anchored

_ROOT: Final = Path(__file__).resolve().parents[2]
# The folders of the product with the package that their files are imported as.
_FOLDERS: Final = ("memory", "retrieval", "storage", "adapters", "server", "worker", "tasks", "cli", "client/reverie")
# Imports torch for more than a second, and has no pattern.
_LEFT_OUT: Final = "packed_bert.py"
_DEPTH: Final = 5
# Functions of `re` whose first argument is a pattern, with the place of their flags.
_FLAGS_AT: Final = {
    "compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4, "subn": 4,
}  # fmt: skip

AnyPattern = re.Pattern[str] | re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class FoundPattern:
    """A pattern and where it was found: `memory/secrets.py _PLACEHOLDER`, or the line of its use."""

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
        code = path.read_text(encoding="utf-8")
        used, missing = _used(ast.parse(code), module, where) if "re." in code else ([], [])
        for one in [*held, *used]:
            found.setdefault((one.pattern.pattern, one.pattern.flags), one)
        unknown += [] if held else missing  # a pattern of a comprehension is held by the module
    return list(found.values()), unknown


def _modules() -> Iterator[Path]:
    yield _ROOT / "beat_schedule.py"
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if "migrations" not in path.parts and path.name not in ("__main__.py", _LEFT_OUT):
                yield path
            assert path.name != _LEFT_OUT or "re." not in path.read_text("utf-8")


def _name_of(path: Path) -> str:
    relative = path.relative_to(_ROOT).with_suffix("")
    parts = [part for part in relative.parts if part not in ("client", "__init__")]
    return ".".join(parts)


def _held(value: object, where: str, depth: int) -> Iterator[FoundPattern]:
    if isinstance(value, Anchored):
        value = value.compiled
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
        except (NameError, TypeError):  # a name of its function, which may also be one of the module
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


# The parser of `re` has no public name; it is the only one that reads what `re` reads.
_parser: Final[Any] = re._parser  # type: ignore[attr-defined]
_constants: Final[Any] = re._constants  # type: ignore[attr-defined]

# One or two of each kind of character that classes distinguish.
_TYPICAL: Final = "aZz09_ \t\n.,:;-'\"/@=!?()[]<>*#é中あ한ا\u0301\u2019\u3000\u2028\u200b\x00"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "07", "CATEGORY_NOT_DIGIT": "a .", "CATEGORY_SPACE": " \n\t\u3000",
    "CATEGORY_NOT_SPACE": "a.", "CATEGORY_WORD": "aZ0_é", "CATEGORY_NOT_WORD": " .-",
}  # fmt: skip
_ENDS: Final = ("", "\x00", "!", "\n", " ", "a", "0")
_GROWTH: Final = 16
# How much longer it may take for this growth: 16 times if linear, 256 times if quadratic.
_MAX_LONGER: Final = 64
# A pattern that takes time in the square of the length takes more than this for each of some thousand characters.
_MIN_SECONDS_PER_CHARACTER: Final = 1.5e-6
_MAX_SECONDS: Final = 0.4
# Most patterns are cleared by a quarter of the length: what takes cubic time there takes 64 times as long at all of it.
_SHORTENED: Final = 4


@dataclass(frozen=True, slots=True)
class Pump:
    """A text that can be made as long as wanted."""

    before: str
    repeated: str
    after: str

    def text(self, characters: int) -> str:
        """Return a text of about this many characters."""
        return self.before + self.repeated * (characters // len(self.repeated)) + self.after


@dataclass(frozen=True, slots=True)
class Slow:
    """A pump on which a pattern takes more than linear time, with the seconds for each length."""

    pump: Pump
    way: str
    seconds: tuple[float, float]


def pumps_of(pattern: AnyPattern, *, seed: int, limit: int) -> list[Pump]:
    """Return up to `limit` different pumps of a pattern: of each repeat, each character and pairs of its words."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    rng = random.Random(seed)
    tree = _parser.parse(source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    characters = "".join(dict.fromkeys([*_literals(tree), *_TYPICAL]))
    found: dict[Pump, None] = {}
    for _ in range(1 + limit // 30):
        for before, body, after in _repeats(tree, "", rng):
            for end in (*rng.sample(_ENDS, 2), after[:-1]):
                found[Pump(before, body, end)] = None
        whole = _sample(tree, rng)
        for cut in (whole, whole[:-1], whole[: len(whole) // 2], whole + " "):
            found[Pump("", cut, rng.choice(_ENDS))] = None
    derived = list(found)
    rng.shuffle(derived)
    mixed = [Pump("", "".join(rng.choices(characters, k=rng.choice((2, 2, 3)))), "\x00") for _ in range(limit)]
    share = max(1, limit // 3)
    few = rng.sample(characters, min(len(characters), share))
    plain = [Pump(_sample(tree, rng)[: rng.randrange(12)], one, "\x00") for one in few]
    chosen = [*derived[: limit - share], *plain, *mixed]
    return list(dict.fromkeys(pump for pump in chosen if pump.repeated))[:limit]


def slow_pumps(pattern: AnyPattern, pumps: Sequence[Pump], *, characters: int) -> Iterator[Slow]:
    """Yield the pumps for which sixteen times the length takes much more than sixteen times as long.

    `characters` is the shorter length. Seconds are those of the processor, which other processes lengthen less; each
    suspicion is measured again. Only in the main thread: a search that takes very long is stopped by a signal.
    """
    long_characters = characters * _GROWTH
    min_seconds = long_characters * _MIN_SECONDS_PER_CHARACTER
    for pump in pumps:
        for way, read in (("search", _read), ("fullmatch", _fullmatch)):
            quarter = _seconds(read, pattern, pump.text(long_characters // _SHORTENED))
            if quarter * _SHORTENED**3 < min_seconds:
                continue
            long = quarter if math.isinf(quarter) else _seconds(read, pattern, pump.text(long_characters))
            if long < min_seconds:
                continue
            if math.isinf(long):
                yield Slow(pump, way, (long, long))
                continue
            short = min(_seconds(read, pattern, pump.text(characters)) for _ in range(3))
            long = min(long, _seconds(read, pattern, pump.text(long_characters)))
            if long > max(min_seconds, _MAX_LONGER * short):
                yield Slow(pump, way, (short, long))


def seconds_per_megabyte(pattern: AnyPattern, pump: Pump, characters: int) -> float:
    """Return the seconds of the processor that a megabyte takes to search, from a text of this length."""
    text = pump.text(characters)
    return _seconds(_read, pattern, text) / len(text) * 1_000_000


def _seconds(read: Callable[[AnyPattern, Any], object], pattern: AnyPattern, text: str) -> float:
    """Return the seconds of the processor that a search takes; infinite if it had to be stopped."""
    value: Any = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    handler = signal.signal(signal.SIGVTALRM, _stop)
    began = time.thread_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _MAX_SECONDS)
        read(pattern, value)
        return time.thread_time() - began
    except _Stopped:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


class _Stopped(Exception):
    """A search took too long."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stopped


def _read(pattern: AnyPattern, text: Any) -> object:
    return sum(1 for _ in pattern.finditer(text))


def _fullmatch(pattern: AnyPattern, text: Any) -> object:
    return pattern.fullmatch(text)


def _literals(tree: Any) -> Iterator[str]:
    """Yield the characters that a pattern names."""
    for op, argument in _nodes(tree):
        if str(op) in ("LITERAL", "NOT_LITERAL"):
            yield chr(argument)
        elif str(op) == "RANGE":
            yield from (chr(argument[0]), chr(argument[1]))


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    for op, argument in tree:
        yield op, argument
        if str(op) == "IN":
            yield from argument
        else:
            for part in _parts(op, argument):
                yield from _nodes(part)


def _parts(op: Any, argument: Any) -> list[Any]:
    """Return the patterns within a node."""
    name = str(op)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part is not None]
    return []


def _repeats(tree: Any, before: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield for each repeat: a text that leads there, what it repeats, and what would follow it."""
    nodes = list(tree)
    for number, (op, argument) in enumerate(nodes):
        if str(op) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and argument[1] > 1:
            after = _sample(nodes[number + 1 :], rng)
            yield before, _sample(argument[2], rng), after
            if before:
                yield "", before + _sample(argument[2], rng), after
        for part in _parts(op, argument):
            yield from _repeats(part, before, rng)
        before += _sample_node(op, argument, rng)


def _sample(tree: Any, rng: random.Random) -> str:
    return "".join(_sample_node(op, argument, rng) for op, argument in tree)


def _sample_node(op: Any, argument: Any, rng: random.Random) -> str:
    """Return a text that a node is likely to match: look-arounds and references are left out."""
    name = str(op)
    if name == "LITERAL":
        return chr(argument)
    if name in ("NOT_LITERAL", "ANY"):
        return rng.choice("ab .0")
    if name == "IN":
        return _sample_class(argument, rng)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, high, body = argument
        times = min(low + rng.choice((0, 1, 1, 2)), high)
        return "".join(_sample(body, rng) for _ in range(min(times, 40)))
    if name == "BRANCH":
        return _sample(rng.choice(argument[1]), rng)
    if name in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _sample(_parts(op, argument)[0], rng)
    if name == "CATEGORY":
        return rng.choice(_CATEGORIES.get(str(argument), "a"))
    return ""


def _sample_class(items: Sequence[tuple[Any, Any]], rng: random.Random) -> str:
    if items and items[0][0] == _constants.NEGATE:
        excluded = re.compile("[" + "".join(map(re.escape, _members(items[1:]))) + "]") if items[1:] else None
        return rng.choice([one for one in _TYPICAL if excluded is None or not excluded.match(one)] or ["a"])
    return rng.choice(_members(items) or ["a"])


def _members(items: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return some characters of a class."""
    found: list[str] = []
    for op, argument in items:
        if str(op) == "LITERAL":
            found.append(chr(argument))
        elif str(op) == "RANGE":
            found += [chr(argument[0]), chr(argument[1]), chr((argument[0] + argument[1]) // 2)]
        elif str(op) == "CATEGORY":
            found += _CATEGORIES.get(str(argument), "a")
    return found
