"""`reverie connect`: entries in the configuration files of coding agents, written and taken out again exactly."""

from __future__ import annotations

import base64
import json
import os
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.coding_agents.files import parsed_json, with_member, without_value
from reverie import __version__
from reverie.errors import Rejected
from support.command_line import CommandLine

ROOT = Path(__file__).resolve().parents[2]

# As people write them: comments, a trailing comma, an entry on one line.
CLAUDE_SETTINGS = """\
{
    // mine
    "model": "opus", /* the best */
    "hooks": {
        "Stop": [ {"hooks": [{"type": "command", "command": "say done"}]}, ],
    },
    "permissions": {"allow": ["Bash(ls)"]} // last
}
"""
CODEX_CONFIG = """\
model = "gpt-5"  # mine

[mcp_servers.other]
command = "other"

# the end
"""
GEMINI_SETTINGS = '{"theme":"dark","mcpServers":{"other":{"command":"x"}}}'


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line of a user whose home is empty, with a data folder."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))


def written(path: Path, text: str) -> Path:
    """Write a file, and the folder it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


FILES = {
    "claude-code": {".claude/settings.json": CLAUDE_SETTINGS, ".claude.json": '{\n  "numStartups": 3\n}\n'},
    "codex": {".codex/config.toml": CODEX_CONFIG, ".codex/hooks.json": '{"hooks": {}}'},
    "gemini": {".gemini/settings.json": GEMINI_SETTINGS},
    "cursor": {".cursor/mcp.json": "{ }\n", ".cursor/hooks.json": '{\n\t"version": 1,\n\t"hooks": {}\n}'},
}


@pytest.mark.parametrize("tool", FILES)
def test_removing_leaves_the_files_as_they_were(reverie: CommandLine, tmp_path: Path, tool: str) -> None:
    """Given files of a tool, when it is connected twice and the entries are removed, then each file is the same bytes
    with the same rights; and in between, a copy of it is beside it."""
    for name, text in FILES[tool].items():
        written(tmp_path / name, text).chmod(0o640)
    done = reverie("connect", tool, "--json")
    assert done.code == 0, done.err
    assert {str(Path(file).relative_to(tmp_path)) for file in done.json["files"]} == set(FILES[tool])
    for name, text in FILES[tool].items():
        assert (tmp_path / name).read_text() != text
        assert (tmp_path / f"{name}.before-reverie").read_text() == text
    assert "nothing was changed" in reverie("connect", tool).out
    assert reverie("connect", tool, "--remove").code == 0
    for name, text in FILES[tool].items():
        assert (tmp_path / name).read_text() == text
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "state" / "reverie" / "reverie-hook.sh").exists()
    assert "is not connected" in reverie("connect", tool, "--remove").out


@pytest.mark.parametrize("name", FILES["claude-code"])
def test_a_file_that_its_owner_made_read_only_stays_as_it_is(reverie: CommandLine, tmp_path: Path, name: str) -> None:
    """Given a file that nobody may write, when a tool is connected or removed, then it is left, with a message."""
    paths = [written(tmp_path / each, text) for each, text in FILES["claude-code"].items()]
    (tmp_path / name).chmod(0o444)
    before = [path.read_text() for path in paths]
    for options in ((), ("--dry-run",)):
        refused = reverie("connect", "claude-code", *options)
        assert (refused.code, f"{name} is read-only" in refused.err) == (2, True), refused.err
        assert [path.read_text() for path in paths] == before
    (tmp_path / name).chmod(0o644)
    assert reverie("connect", "claude-code").code == 0
    (tmp_path / name).chmod(0o444)
    connected = (tmp_path / name).read_text()
    assert "is read-only" in reverie("connect", "claude-code", "--remove").err
    assert (tmp_path / name).read_text() == connected
    (tmp_path / name).chmod(0o644)
    assert reverie("connect", "claude-code", "--remove").code == 0
    assert [path.read_text() for path in paths] == before


@pytest.mark.parametrize("tool", FILES)
def test_without_files_they_are_made_and_go_again(reverie: CommandLine, tmp_path: Path, tool: str) -> None:
    """Given a tool without configuration files, when it is connected and removed, then there are none again."""
    assert reverie("connect", tool).code == 0
    for name in FILES[tool]:
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert reverie("connect", tool, "--remove").code == 0
    for name in FILES[tool]:
        assert not (tmp_path / name).exists()


def test_what_others_write_meanwhile_stays(reverie: CommandLine, tmp_path: Path) -> None:
    """Given entries that are in place, when others change the files, and the entries are removed, then only these go:
    comments and other entries stay where they are."""
    settings = written(tmp_path / ".claude/settings.json", CLAUDE_SETTINGS)
    config = written(tmp_path / ".codex/config.toml", CODEX_CONFIG)
    assert reverie("connect", "claude-code").code == 0
    assert reverie("connect", "codex").code == 0
    both = parsed_json(settings.read_text()).value["hooks"]["Stop"]
    assert both[0] == {"hooks": [{"type": "command", "command": "say done"}]}
    assert "reverie-hook.sh' claude-code" in both[1]["hooks"][0]["command"].replace(
        "reverie-hook.sh c", "reverie-hook.sh' c"
    )
    settings.write_text(settings.read_text().replace('"opus"', '"haiku"'))
    config.write_text(config.read_text() + '\n[mcp_servers.later]\ncommand = "later"\n')
    assert reverie("connect", "claude-code", "--remove").code == 0
    assert reverie("connect", "codex", "--remove").code == 0
    assert settings.read_text() == CLAUDE_SETTINGS.replace('"opus"', '"haiku"')
    assert config.read_text() == CODEX_CONFIG + '\n[mcp_servers.later]\ncommand = "later"\n'


def test_a_second_connection_does_not_put_back_what_others_changed(reverie: CommandLine, tmp_path: Path) -> None:
    """Given a file that somebody changed between two connections with other options, when the entries are removed,
    then the change is still there."""
    settings = written(tmp_path / ".claude.json", '{"numStartups": 3}')
    reverie("connect", "claude-code")
    settings.write_text(settings.read_text().replace("3", "4"))
    assert reverie("--agent", "ana", "connect", "claude-code").code == 0
    server = json.loads(settings.read_text())["mcpServers"]["reverie"]
    assert server["args"][-3:] == ["--agent", "ana", "mcp"]
    reverie("connect", "claude-code", "--remove")
    assert settings.read_text() == '{"numStartups": 4}'


@pytest.mark.parametrize("text", ['{"a": 1', "{'a': 1}", "[1]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "\x00"])
def test_a_broken_file_is_left_as_it_is(reverie: CommandLine, tmp_path: Path, text: str) -> None:
    """Given a file that is no JSON, or has something else where entries belong, then nothing is written anywhere, and
    the error names the file."""
    settings = written(tmp_path / ".claude/settings.json", text)
    done = reverie("connect", "claude-code")
    assert done.code == 2
    assert str(settings) in done.err
    assert "left as it is" in done.err
    assert settings.read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == [".claude", "data"]


def test_an_entry_of_somebody_else_is_left_as_it_is(reverie: CommandLine, tmp_path: Path) -> None:
    """Given another server of this name, then it stays, and the error says what to do; the same in TOML that is
    broken."""
    text = '{"mcpServers": {"reverie": {"command": "/opt/dreams", "args": ["serve"]}}}'
    config = written(tmp_path / ".cursor/mcp.json", text)
    done = reverie("connect", "cursor")
    assert done.code == 1
    assert "rename or remove it first" in done.err
    assert config.read_text() == text
    broken = written(tmp_path / ".codex/config.toml", "model = \n")
    assert "not valid TOML" in reverie("connect", "codex").err
    assert broken.read_text() == "model = \n"


def test_what_would_be_written_is_shown(reverie: CommandLine, tmp_path: Path) -> None:
    """Given --dry-run, then the entries are shown and nothing is written; with --no-hooks, there is only the server."""
    done = reverie("connect", "codex", "--dry-run")
    assert "mcp_servers.reverie" in done.out
    assert "hooks.UserPromptSubmit" in done.out
    assert not (tmp_path / ".codex").exists()
    assert reverie("connect", "codex", "--no-hooks").code == 0
    assert sorted(path.name for path in (tmp_path / ".codex").iterdir()) == ["config.toml"]
    table = tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["reverie"]
    assert table["args"] == ["--data", str(tmp_path / "data"), "mcp"]
    assert os.access(table["command"], os.X_OK)


def test_a_server_elsewhere_is_named_without_its_token(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given REVERIE_URL and REVERIE_TOKEN, then the entries name the URL, and no file has the token."""
    monkeypatch.setenv("REVERIE_URL", "https://memory.example")
    monkeypatch.setenv("REVERIE_TOKEN", "rv_secret")
    elsewhere = CommandLine(monkeypatch, reverie._capsys)
    for tool in FILES:
        assert elsewhere("connect", tool).code == 0
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum("https://memory.example" in text for text in texts) >= 6
    assert not any("rv_secret" in text for text in texts)
    assert tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["reverie"]["env"] == {
        "REVERIE_URL": "https://memory.example"
    }


def test_the_link_for_cursor_has_the_server(reverie: CommandLine) -> None:
    """Given Cursor, then the printed link holds the entry of the server, as its documentation wants it."""
    link = reverie("connect", "cursor", "--json").json["install_link"]
    query = parse_qs(urlsplit(link).query)
    assert link.startswith("cursor://anysphere.cursor-deeplink/mcp/install?name=reverie&config=")
    assert json.loads(base64.b64decode(query["config"][0]))["args"][-1] == "mcp"


def test_the_plugins_are_what_their_tools_read() -> None:
    """Given the folders that coding agents install from, then the marketplaces name the plugin that is there, all
    versions are that of the package, the hooks run a script that is there, and it is the one of the package."""
    for marketplace in (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json"):
        (plugin,) = json.loads((ROOT / marketplace).read_text())["plugins"]
        source = plugin["source"]
        folder = ROOT / (source if isinstance(source, str) else source["path"])
        assert (folder / "skills" / "memory" / "SKILL.md").read_text().startswith("---\nname: memory\n")
    for manifest in (
        "reverie/.claude-plugin/plugin.json",
        "reverie/.codex-plugin/plugin.json",
        "gemini/reverie/gemini-extension.json",
    ):
        read = json.loads((ROOT / "plugins" / manifest).read_text())
        assert (read["name"], read["version"]) == ("reverie", __version__)
    script = (ROOT / "adapters" / "coding_agents" / "reverie-hook.sh").read_bytes()
    for folder, root in (("reverie", "CLAUDE_PLUGIN_ROOT"), ("gemini/reverie", "extensionPath")):
        hooks = ROOT / "plugins" / folder / "hooks"
        assert (hooks / "reverie-hook.sh").read_bytes() == script
        for groups in json.loads((hooks / "hooks.json").read_text())["hooks"].values():
            assert groups[0]["hooks"][0]["command"].startswith(f'sh "${{{root}}}/hooks/reverie-hook.sh" ')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.sampled_from([None, 2, "\t"]), st.text(max_size=3))
def test_changes_of_a_text_change_nothing_else(before: dict[str, Any], indent: Any, key: str) -> None:
    """Given any JSON text, when a member is added and removed, then both texts mean what they should."""
    text = json.dumps(before, indent=indent)
    changed = with_member(text, (key, "x"), [1]) if isinstance(before.get(key, {}), dict) else text
    if changed != text:
        assert json.loads(changed) == before | {key: before.get(key, {}) | {"x": [1]}}
        assert json.loads(without_value(changed, (key, "x"))) == before | {
            key: {name: value for name, value in before.get(key, {}).items() if name != "x"}
        }


@pytest.mark.parametrize(
    ("text", "keys", "left"),
    [
        ('{"a": 1, // of a\n "b": 2}', ["b"], '{"a": 1 // of a}'),
        ('{"a": 1, /* of b */ "b": 2, "c": 3,}', ["b"], '{"a": 1, /* of b */ "c": 3,}'),
        ("[1, 2, 3]", [0], "[ 2, 3]"),
        ("[1]", [0], "[]"),
        ('{"a": {"b": 1}}', ["a", "x"], '{"a": {"b": 1}}'),
    ],
)
def test_comments_stay_where_something_is_removed(text: str, keys: list[Any], left: str) -> None:
    """Given a text with comments, when something is removed, then the comments are still there."""
    found = without_value(text, keys)
    assert "".join(found.split()) == "".join(left.split())
    if "//" not in left:
        parsed_json(found)


def test_deep_texts_are_refused() -> None:
    """Given a text that is nested a thousand levels deep, then it is refused like any other that is not valid."""
    with pytest.raises(Rejected, match="line 1"):
        parsed_json("[" * 1_000)


def test_a_number_without_an_end_is_refused() -> None:
    """Given a number of more digits than are converted, then it is refused like any other text that is not valid."""
    with pytest.raises(Rejected, match="line 1"):
        parsed_json("[" + "9" * 5_000 + "]")
