"""The entries that `reverie connect` writes into the files of each coding agent, and removes again exactly.

These are an MCP server, and hooks that hand over the agent's events. Before a file is changed the first time, a copy of
it is kept beside it. If nothing else has changed the file since, removing the entries restores the copy, byte for byte;
otherwise only the entries are removed. People write these files as well, so every other character stays as it is,
comments and trailing commas of JSON too.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shlex
import stat
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from reverie.errors import Conflict, Rejected

NAME: Final = "reverie"
HOOK_SCRIPT: Final = "reverie-hook.sh"

Tool = Literal["claude-code", "codex", "cursor", "gemini"]

# The longest time that a tool waits for a hook if something goes wrong; the hook's own deadlines are far shorter.
_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A member of a configuration file, or an item of a list in it."""

    file: Path
    keys: tuple[str, ...]
    value: Any
    kind: Literal["member", "item", "table"] = "member"


@dataclass(frozen=True, slots=True)
class Connection:
    """How a coding agent reaches Reverie: the command of its MCP server, and the hook script with its environment.

    `remote` is the URL of a server elsewhere. The token for it is not written: the tool's environment has it.
    """

    command: str
    arguments: tuple[str, ...]
    script: Path
    environment: Mapping[str, str]
    remote: str | None = None

    @property
    def server(self) -> dict[str, Any]:
        """The MCP server as configuration files name it."""
        server: dict[str, Any] = {"command": self.command, "args": [*self.arguments]}
        return server if self.remote is None else {**server, "env": {"REVERIE_URL": self.remote}}

    def hook(self, tool: Tool, *, starts: bool) -> str:
        """Return the command of a hook."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        words = ["sh", shlex.quote(str(self.script)), tool, *(["start"] if starts else [])]
        return " ".join([*variables, *words])


def changes_for(tool: Tool, homes: Mapping[Tool, Path], connection: Connection, *, hooks: bool) -> list[Change]:
    """Return what is written for a tool, whose files are in its folder of `homes`."""
    home = homes[tool]
    if tool == "codex":
        server = Change(home / "config.toml", ("mcp_servers", NAME), connection.server, "table")
    elif tool == "claude-code":
        # Its state, with the MCP servers of the user, lies beside the folder, or in it if that has been moved.
        inside = home / ".claude.json"
        file = inside if home.name != ".claude" else home.parent / ".claude.json"
        server = Change(file, ("mcpServers", NAME), {"type": "stdio", **connection.server})
    else:
        file = home / ("mcp.json" if tool == "cursor" else "settings.json")
        server = Change(file, ("mcpServers", NAME), connection.server)
    return [server, *(_hooks(tool, home, connection) if hooks else [])]


def cursor_link(connection: Connection) -> str:
    """Return the link by which Cursor installs the MCP server."""
    config = base64.b64encode(json.dumps(connection.server).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={quote(config)}"


def is_own(value: Any) -> bool:
    """Return whether an entry is one of Reverie's: a hook by its script, a server by its command."""
    if isinstance(value, dict) and "command" in value and "mcp" in value.get("args", ()):
        return Path(str(value["command"])).stem == NAME
    return HOOK_SCRIPT in json.dumps(value)


def _hooks(tool: Tool, home: Path, connection: Connection) -> list[Change]:
    start, other = connection.hook(tool, starts=True), connection.hook(tool, starts=False)
    if tool == "cursor":
        file = home / "hooks.json"
        events = {"sessionStart": start} | dict.fromkeys(
            ("beforeSubmitPrompt", "postToolUse", "afterAgentResponse"), other
        )
        items = [Change(file, ("hooks", event), {"command": one}, "item") for event, one in events.items()]
        return [Change(file, ("version",), 1), *items]
    if tool == "gemini":
        file, seconds = home / "settings.json", _SECONDS * 1000  # milliseconds, here
        events = {"SessionStart": start} | dict.fromkeys(("BeforeAgent", "AfterTool", "AfterAgent"), other)
    else:
        file, seconds = home / ("hooks.json" if tool == "codex" else "settings.json"), _SECONDS
        events = {"SessionStart": start} | dict.fromkeys(("UserPromptSubmit", "PostToolUse", "Stop"), other)
    return [
        Change(
            file,
            ("hooks", event),
            {"hooks": [{"type": "command", "command": one, "timeout": seconds}]},
            "item",
        )
        for event, one in events.items()
    ]


# An unclosed comment extends to the end of the text. Otherwise the search for its end would be repeated at each `/*`.
_BLANK: Final = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))+")
_DECODER: Final = json.JSONDecoder()
_SCALAR: Final = re.compile(r"true|false|null|-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,400})?")
_INDENT: Final = re.compile(r"\n([ \t]+)\"")
_MAX_DEPTH: Final = 64


@dataclass(slots=True)
class JsonNode:
    """A value in a text, from `start` to `end`; `key_start` is where its member begins, if it is one."""

    start: int
    end: int
    value: Any
    key_start: int = 0
    members: dict[str, JsonNode] = field(default_factory=dict)
    items: list[JsonNode] = field(default_factory=list)

    @property
    def children(self) -> list[JsonNode]:
        """The members of an object, or the items of an array, in their order."""
        return [*self.members.values(), *self.items]


def parsed_json(text: str) -> JsonNode:
    """Return the value of a JSON text with comments. Raises `Rejected`, naming the line, for anything else."""
    scanner = _JsonScanner(text)
    place = scanner.blank(1 if text.startswith("\ufeff") else 0)
    root = scanner.value(place, 0)
    if scanner.blank(root.end) != len(text):
        scanner.fail(root.end)
    return root


def with_member(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with a member at this path, replaced if it is there; missing objects are added."""
    node, depth = parsed_json(text), 0
    while depth < len(keys) and isinstance(node.value, dict) and keys[depth] in node.members:
        node = node.members[keys[depth]]
        depth += 1
    unit = _indent_of(text)
    if depth == len(keys):
        return text[: node.start] + _dumped(value, unit, depth) + text[node.end :]
    _require(node, dict, keys[:depth])
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    member = f"{json.dumps(keys[depth])}: {_dumped(value, unit, depth + 1)}"
    return _with_child(text, node, member, unit, depth)


def with_item(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with an item appended to the array at this path, which is added if it is missing."""
    node = _find(parsed_json(text), keys)
    if node is None:
        return with_member(text, keys, [value])
    _require(node, list, keys)
    unit = _indent_of(text)
    return _with_child(text, node, _dumped(value, unit, len(keys) + 1), unit, len(keys))


def without_value(text: str, keys: Sequence[str | int]) -> str:
    """Return the text without the member or the item at this path, if it is there."""
    parent = _find(parsed_json(text), keys[:-1])
    if parent is None:
        return text
    name = keys[-1]
    if isinstance(name, str):
        node = parent.members.get(name)
    else:
        node = parent.items[name] if name < len(parent.items) else None
    if node is None:
        return text
    children = parent.children
    place = next(number for number, child in enumerate(children) if child is node)
    return _without_child(text, parent, place)


def _without_child(text: str, parent: JsonNode, place: int) -> str:
    children = parent.children
    node = children[place]
    begin, end = node.key_start, node.end
    comma_after = _comma(text, end)
    before = text[:begin]
    if comma_after is not None:
        end = comma_after + 1
    elif place > 0:
        comma = _comma(text, children[place - 1].end)
        if comma is not None:
            before = text[:comma] + text[comma + 1 : begin]
    # With the line break and the blanks before it, so that no empty line stays.
    before = before.rstrip(" \t")
    if before.endswith("\n"):
        before = before[:-1].removesuffix("\r")
    after = text[end:]
    if len(children) == 1 and not text[parent.start + 1 : begin].strip() and not text[end : parent.end - 1].strip():
        return text[: parent.start + 1] + text[parent.end - 1 :]
    return before + after


def _with_child(text: str, parent: JsonNode, child: str, unit: str, depth: int) -> str:
    inner, outer = "\n" + unit * (depth + 1), "\n" + unit * depth
    if not parent.children:
        inside = text[parent.start + 1 : parent.end - 1].rstrip()
        return f"{text[: parent.start + 1]}{inside}{inner}{child}{outer}{text[parent.end - 1 :]}"
    last = parent.children[-1]
    comma = _comma(text, last.end)
    if comma is not None:  # keep the style of lists that end with a comma
        return f"{text[: comma + 1]}{inner}{child},{text[comma + 1 :]}"
    return f"{text[: last.end]},{inner}{child}{text[last.end :]}"


def _find(node: JsonNode, keys: Sequence[str | int]) -> JsonNode | None:
    for key in keys:
        if isinstance(key, str):
            if key not in node.members:
                return None
            node = node.members[key]
        else:
            if key >= len(node.items):
                return None
            node = node.items[key]
    return node


def _require(node: JsonNode, kind: type, keys: Sequence[str]) -> None:
    if not isinstance(node.value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise Rejected(f"{'.'.join(keys) or 'the file'} is not {wanted}: the file was left as it is", field="file")


def _comma(text: str, place: int) -> int | None:
    """Return where the comma after a value is, None if none follows."""
    found = _BLANK.match(text, place)
    place = found.end() if found else place
    return place if text[place : place + 1] == "," else None


def _indent_of(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _dumped(value: Any, unit: str, depth: int) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + unit * depth)


class _JsonScanner:
    """Reads a JSON text with comments and trailing commas."""

    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, place: int) -> None:
        """Raise `Rejected` with the line."""
        line = self._text.count("\n", 0, place) + 1
        raise Rejected(f"line {line} is not valid JSON: the file was left as it is, correct it first", field="file")

    def blank(self, place: int) -> int:
        """Return the place after the blanks and comments that start here."""
        found = _BLANK.match(self._text, place)
        return found.end() if found else place

    def value(self, place: int, depth: int) -> JsonNode:
        """Return the value that begins at a place."""
        if depth > _MAX_DEPTH:
            self.fail(place)
        match self._text[place : place + 1]:
            case "{":
                return self._object(place, depth)
            case "[":
                return self._array(place, depth)
            case '"':
                text, end = self._string(place)
                return JsonNode(place, end, text, place)
        found = _SCALAR.match(self._text, place)
        if found is None:
            self.fail(place)
        assert found is not None
        return JsonNode(place, found.end(), json.loads(found[0]), place)

    def _string(self, place: int) -> tuple[str, int]:
        if self._text[place : place + 1] != '"':
            self.fail(place)
        try:
            text, end = _DECODER.raw_decode(self._text, place)
        except ValueError:
            self.fail(place)
            raise
        return str(text), end

    def _object(self, begin: int, depth: int) -> JsonNode:
        members: dict[str, JsonNode] = {}
        place = self.blank(begin + 1)
        while self._text[place : place + 1] != "}":
            key_start = place
            key, place = self._string(place)
            place = self.blank(place)
            if self._text[place : place + 1] != ":":
                self.fail(place)
            node = self.value(self.blank(place + 1), depth + 1)
            node.key_start = key_start
            members[key] = node
            place = self._next(node.end, "}")
        value = {key: node.value for key, node in members.items()}
        return JsonNode(begin, place + 1, value, begin, members=members)

    def _array(self, begin: int, depth: int) -> JsonNode:
        items: list[JsonNode] = []
        place = self.blank(begin + 1)
        while self._text[place : place + 1] != "]":
            items.append(self.value(place, depth + 1))
            place = self._next(items[-1].end, "]")
        return JsonNode(begin, place + 1, [node.value for node in items], begin, items=items)

    def _next(self, place: int, closing: str) -> int:
        """Return where the next member or item begins, or the closing bracket is."""
        place = self.blank(place)
        if self._text[place : place + 1] == ",":
            return self.blank(place + 1)
        if self._text[place : place + 1] != closing:
            self.fail(place)
        return place


_MARK: Final = "# Written by `reverie connect`; `reverie connect {tool} --remove` takes it out.\n"


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises `Rejected`, naming the line."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        text = f"it is not valid TOML ({error}): the file was left as it is, correct it first"
        raise Rejected(text, field="file") from None


def with_table(text: str, keys: Sequence[str], values: Mapping[str, Any], *, tool: str) -> str:
    """Return the text with a table at its end. Values are texts, lists of texts, and objects of texts."""
    lines = [f"{key} = {_toml_value(value)}\n" for key, value in values.items()]
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{_MARK.format(tool=tool)}[{'.'.join(keys)}]\n{''.join(lines)}"


def without_table(text: str, keys: Sequence[str]) -> str:
    """Return the text without a table: without its header, the comment that says who wrote it, and its values."""
    name = ".".join(keys)
    lines = text.splitlines(keepends=True)
    begin = next((place for place, line in enumerate(lines) if line.split("#")[0].strip() == f"[{name}]"), None)
    if begin is None:
        return text
    end = begin + 1
    while end < len(lines) and lines[end].strip() and not lines[end].lstrip().startswith(("[", "#")):
        end += 1
    if begin and lines[begin - 1].startswith("# Written by `reverie connect`"):
        begin -= 1
        if begin and not lines[begin - 1].strip():
            begin -= 1
    return "".join(lines[:begin] + lines[end:])


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml_value(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


_COPY: Final = ".before-reverie"
_MAX_BYTES: Final = 64 * 1024 * 1024


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A changed file: the hash of its new text, the copy of its old text, and the lists and objects that were added."""

    file: str
    sha256: str
    copy: str | None
    made: list[list[str]] = []


def planned(changes: Sequence[Change], tool: str) -> dict[Path, str]:
    """Return the new texts of the files that change, without writing anything.

    Raises `Rejected` for a file that cannot be read, is read-only or is not valid, and `Conflict` for an entry of
    somebody else.
    """
    texts: dict[Path, str] = {}
    before: dict[Path, str] = {}
    for change in changes:
        if change.file not in texts:
            before[change.file] = texts[change.file] = _read(change.file)
        texts[change.file] = _applied(texts[change.file], change, tool)
    changed = {file: text for file, text in texts.items() if text != before[file]}
    for file in changed:
        _refuse_read_only(file)
    return changed


def write(texts: dict[Path, str], changes: Sequence[Change], known: Iterable[Written]) -> list[Written]:
    """Copy the old files, then write each planned text in one step. Raises `Rejected`."""
    records = {one.file: one for one in known}
    done = []
    for file, text in texts.items():
        earlier = records.get(str(file))
        made = [list(keys) for keys in _missing(file, [change.keys for change in changes if change.file == file])]
        copy = earlier.copy if earlier is not None else _copied(file)
        # The copy lacks changes that somebody made between two of our writes, so it must not be restored.
        touched = earlier is not None and earlier.sha256 != _sha256(_read(file).encode())
        _replace(file, text.encode())
        kept = made if earlier is None else [*earlier.made, *(keys for keys in made if keys not in earlier.made)]
        done.append(Written(file=str(file), sha256="" if touched else _sha256(text.encode()), copy=copy, made=kept))
    return done


def remove(changes: Sequence[Change], known: Iterable[Written]) -> list[Path]:
    """Take entries out of their files, and return those that changed.

    A file that there was not before is deleted if nothing else is in it. Raises `Rejected` for a file that is read-only
    or not valid.
    """
    records = {one.file: one for one in known}
    changed = []
    for file in dict.fromkeys(change.file for change in changes):
        if not file.exists():
            continue
        record = records.get(str(file))
        text = _read(file)
        if record is not None and record.sha256 == _sha256(text.encode()):
            _refuse_read_only(file)
            _restore(file, record)
            changed.append(file)
            continue
        wanted = _without_entries(text, [change for change in changes if change.file == file], record)
        if wanted == text:
            continue
        _refuse_read_only(file)
        if record is not None and record.copy is None and not wanted.strip(" \t\r\n{}"):
            file.unlink()
        else:
            _replace(file, wanted.encode())
        changed.append(file)
    return changed


def _applied(text: str, change: Change, tool: str) -> str:
    with _errors_naming(change.file):
        if change.kind == "table":
            return _with_table(text, change, tool)
        text = text if text.strip() else "{}\n"
        if change.kind == "item":
            return _with_item(text, change)
        found = _at(parsed_json(text).value, change.keys)
        if found == change.value or (change.keys == ("version",) and found is not None):
            return text
        if found is not None and not is_own(found):
            _refuse(change)
        return with_member(text, change.keys, change.value)


def _with_table(text: str, change: Change, tool: str) -> str:
    found = _at(parsed_toml(text), change.keys)
    if found == change.value:
        return text
    if found is not None and not is_own(found):
        _refuse(change)
    text = without_table(text, change.keys)
    wanted = with_table(text, change.keys, change.value, tool=tool)
    if _at(parsed_toml(wanted), change.keys) != change.value:
        raise Rejected("the entry cannot be added to it: the file was left as it is", field="file")
    return wanted


def _with_item(text: str, change: Change) -> str:
    found = _at(parsed_json(text).value, change.keys)
    own = [place for place, item in enumerate(found if isinstance(found, list) else []) if is_own(item)]
    if len(own) == 1 and isinstance(found, list) and found[own[0]] == change.value:
        return text
    for place in reversed(own):
        text = without_value(text, [*change.keys, place])
    return with_item(text, change.keys, change.value)


def _without_entries(text: str, changes: Sequence[Change], record: Written | None) -> str:
    for change in changes:
        with _errors_naming(change.file):
            if change.kind == "table":
                if is_own(_at(parsed_toml(text), change.keys)):
                    text = without_table(text, change.keys)
                continue
            found = _at(parsed_json(text).value, change.keys)
            if change.kind == "item":
                for place in reversed([place for place, item in enumerate(found or []) if is_own(item)]):
                    text = without_value(text, [*change.keys, place])
            elif found is not None and is_own(found):
                text = without_value(text, change.keys)
    for keys in sorted(record.made if record else [], key=len, reverse=True):
        if _at(parsed_json(text).value, keys) in ({}, [], 1):  # an object or list that is empty now; a version number
            text = without_value(text, keys)
    return text


def _missing(file: Path, paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the objects and lists on the way to entries that a file does not have yet."""
    if file.suffix == ".toml":
        return []
    text = _read(file)
    value = parsed_json(text).value if text.strip() else {}
    found: dict[tuple[str, ...], None] = {}
    for keys in paths:
        for length in range(1, len(keys) + 1):
            if _at(value, keys[:length]) is None:
                found[keys[:length]] = None
    return [*found]


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def _refuse(change: Change) -> None:
    raise Conflict(
        f"{change.file} has another entry {'.'.join(change.keys)}, which was left as it is: rename or remove it first",
        field="file",
    )


def _read(file: Path) -> str:
    """Return the text of a file; empty if there is none. Raises `Rejected`."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Rejected(f"{file} cannot be read: {error.strerror}", field="file") from error
    try:
        if len(content) > _MAX_BYTES:
            raise Rejected(f"{file} has more than 64 MiB: it was left as it is", field="file")
        return content.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{file} is not in UTF-8: it was left as it is", field="file") from error


def _refuse_read_only(file: Path) -> None:
    """Raise `Rejected` for a file that nobody may write, although it could be replaced: its owner protects it."""
    if file.exists() and not file.stat().st_mode & 0o222:
        raise Rejected(f"{file} is read-only and was left as it is: `chmod u+w` it first", field="file")


def _copied(file: Path) -> str | None:
    """Keep a copy of a file beside it, and return its path; None if there is no file."""
    if not file.exists():
        return None
    copy = file.with_name(file.name + _COPY)
    with _errors_naming(copy):
        _replace(copy, file.read_bytes(), mode=stat.S_IMODE(file.stat().st_mode))
    return str(copy)


def _restore(file: Path, record: Written) -> None:
    if record.copy is None:
        file.unlink()
        return
    with _errors_naming(file):
        _replace(file, Path(record.copy).read_bytes())
        Path(record.copy).unlink()


def _replace(file: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace a file's content in one step, keeping its permissions. A symbolic link stays a link."""
    target = file.resolve()
    with _errors_naming(file):
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode is None:
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            Path(draft).chmod(mode)
            Path(draft).replace(target)
        except BaseException:  # whatever ended it, also Ctrl-C: no draft stays beside the user's file
            Path(draft).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _errors_naming(file: Path) -> Any:
    """Let errors name the file."""
    try:
        yield
    except OSError as error:
        raise Rejected(f"{file} cannot be written: {error.strerror}", field="file") from error
    except Conflict:
        raise
    except Rejected as error:
        raise Rejected(f"{file}: {error}", field="file") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
