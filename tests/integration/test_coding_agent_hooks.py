"""The hooks of coding agents, run as those tools run them: a shell command with JSON on standard input."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from adapters.histories.carrying import FORMATS, carry
from adapters.histories.reading import Reading
from memory.trust.token_texts import new_token
from reverie import Reverie
from reverie.trust.exports import ImportRecords
from server.authentication import Access
from support.agents import until
from support.histories import CALL, claude_code_entry, reasons, written_lines
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime
from worker.supervision.local_token import announced_to_clients

PLUGIN = Path(__file__).resolve().parents[2] / "plugins" / "reverie"
SESSION = "5f0c"
START = {"hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "Which tram goes to Estrela?"}
RESULT = {
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "cat trams"},
    "tool_response": {"stdout": "28E: Estrela", "stderr": "", "interrupted": False},
    "tool_use_id": CALL,
}
ANSWER = {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "The 28E."}


class Hooks:
    """A coding agent with the plugin, whose Reverie can be started and stopped."""

    def __init__(self, make_runtime: Callable[..., Runtime], folder: Path) -> None:
        self.runtime = make_runtime()
        self.state = folder / "state"
        self.spool = self.state / "reverie" / "hooks"
        self._running = ExitStack()
        self._token = new_token()
        # What is tested does not depend on how busy the machine is.
        self.variables: dict[str, str] = {"CLAUDE_PLUGIN_ROOT": str(PLUGIN), "REVERIE_HOOK_SECONDS": "60"}

    def start(self) -> Reverie:
        """Run the server, announced as `reverie up` announces it, and return a client of it."""
        url = self._running.enter_context(running_server(self.runtime, access=Access({"local": self._token})))
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._running.enter_context(announced_to_clients(address, url, self._token))
        return self._running.enter_context(Reverie("default", url=url, token=self._token))

    def stop(self) -> None:
        """Stop the server."""
        self._running.close()

    def fire(self, event: dict[str, Any], *, command: str | None = None, session: str = SESSION) -> str:
        """Run what the plugin runs for an event, and return what it prints. It must not fail."""
        if command is None:
            groups = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"][event["hook_event_name"]]
            command = groups[0]["hooks"][0]["command"]
        given = {"session_id": session, "cwd": "/home/kate/tram", "transcript_path": "/x", **event}
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=json.dumps(given).encode(),
            capture_output=True,
            env={"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(self.state), **self.variables},
            check=True,
            timeout=60,
        )
        assert done.stderr == b""
        return done.stdout.decode()

    def kept(self) -> int:
        """Return how many events wait for a server."""
        return len(list(self.spool.glob("*.json")))

    def stored(self, client: Reverie, session: str = f"claude-code:{SESSION}") -> list[tuple[str, str]]:
        """Return the role and text of the session's messages, as far as they are stored."""
        drain(self.runtime)
        return [(message.role, message.content) for message in client.sessions.messages(session)]


@pytest.fixture
def hooks(make_runtime: Callable[..., Runtime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    """A coding agent with the plugin, with a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    agent = Hooks(make_runtime, tmp_path)
    yield agent
    agent.stop()


def test_a_conversation_is_handed_over(hooks: Hooks) -> None:
    """Given a server, when a session goes its way, then its prompt, result and answer are stored once each, and the
    next session begins with what is remembered."""
    client = hooks.start()
    assert hooks.fire(START) == "{}"
    for event in (PROMPT, RESULT, ANSWER):
        assert hooks.fire(event) == ""
    assert hooks.stored(client) == [
        ("user", "Which tram goes to Estrela?"),
        ("tool", "28E: Estrela"),
        ("assistant", "The 28E."),
    ]
    result = client.sessions.messages(f"claude-code:{SESSION}")[1]
    assert (result.tool_name, result.tool_call_id) == ("Bash", CALL)
    assert result.metadata == {"input": {"command": "cat trams"}}
    assert client.sessions.get(f"claude-code:{SESSION}").metadata == {"source": "claude-code", "cwd": "/home/kate/tram"}
    assert list(hooks.spool.iterdir()) == []

    client.remember("Answer with the number of the tram alone", kind="instruction")
    drain(hooks.runtime)
    printed = json.loads(hooks.fire(START, session="next"))
    assert printed["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert "number of the tram alone" in printed["hookSpecificOutput"]["additionalContext"]


def test_a_session_begins_with_what_is_known_and_with_the_sessions_of_its_folder(hooks: Hooks) -> None:
    """Given a fact and sessions in two folders, when another begins in one, then it is told the fact and that one's."""
    client = hooks.start()
    for session, folder, prompt in (
        ("one", "/src/trams", "Which tram goes to Estrela?"),
        ("two", "/src/boats", "Sail?"),
    ):
        hooks.fire({**START, "cwd": folder}, session=session)
        hooks.fire({**PROMPT, "cwd": folder, "prompt": prompt}, session=session)
    client.remember("Kate's boat is called Mirabel")
    drain(hooks.runtime)
    told = json.loads(hooks.fire({**START, "cwd": "/src/trams"}, session="three"))["hookSpecificOutput"]
    text = told["additionalContext"]
    known, earlier = text.split("## Earlier sessions")
    assert "fact: Kate's boat is called Mirabel" in known
    assert "1 message: Which tram goes to Estrela?" in earlier
    assert "Sail?" not in earlier


def test_what_happens_without_a_server_is_delivered_later(hooks: Hooks) -> None:
    """Given no server, when events happen, then they are kept; when a server is back, then the next event delivers all
    of them in their order, once each, with the times at which they happened."""
    assert hooks.fire(START) == ""
    for event in (PROMPT, RESULT):
        assert hooks.fire(event) == ""
    assert hooks.kept() == 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in (hooks.spool, *hooks.spool.iterdir()))
    client = hooks.start()
    hooks.fire(ANSWER)
    until(lambda: not list(hooks.spool.iterdir()), "the events are not delivered")
    assert [role for role, _ in hooks.stored(client)] == ["user", "tool", "assistant"]
    times = [message.created_at for message in client.sessions.messages(f"claude-code:{SESSION}")]
    assert times == sorted(times)
    hooks.stop()
    hooks.fire(PROMPT)
    assert hooks.kept() == 1


def test_what_a_hook_that_was_killed_had_in_hand_is_delivered(hooks: Hooks) -> None:
    """Given a hook that is killed while it hands over its event, when a session begins later, then it is delivered."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(60)
        variables = {**hooks.variables, "REVERIE_URL": f"http://127.0.0.1:{hanging.getsockname()[1]}"}
        process = subprocess.Popen(
            ["/bin/sh", str(PLUGIN / "hooks" / "reverie-hook.sh"), "claude-code"],
            stdin=subprocess.PIPE, start_new_session=True,
            env={"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(hooks.state), "REVERIE_TOKEN": "t", **variables},
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps({"session_id": SESSION, "cwd": "/home/kate/tram", **PROMPT}).encode())
        process.stdin.close()
        with hanging.accept()[0]:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    (left,) = hooks.spool.iterdir()
    os.utime(left, (0, 0))  # that of a hook that is at work is seconds old
    client = hooks.start()
    hooks.fire(START)
    until(lambda: not list(hooks.spool.iterdir()), "the event is not delivered")
    assert hooks.stored(client) == [("user", PROMPT["prompt"])]


def test_a_server_that_has_gone_without_a_word_gets_nothing(hooks: Hooks) -> None:
    """Given the entry of a server whose process is dead, and a program on its port, then that one gets nothing."""
    client = hooks.start()
    (entry,) = (hooks.state / "reverie" / "servers").glob("*.json")
    announced = json.loads(entry.read_text())
    hooks.fire(PROMPT)
    dead = subprocess.Popen(["true"])
    dead.wait()
    entry.write_text(json.dumps(announced | {"pid": dead.pid}, separators=(",", ":")))
    hooks.fire(ANSWER)
    assert hooks.kept() == 1
    assert hooks.stored(client) == [("user", "Which tram goes to Estrela?")]


def test_a_server_that_hangs_holds_nobody_up(hooks: Hooks) -> None:
    """Given a server that accepts connections and answers nothing, when an event happens, then it is kept."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        hooks.variables |= {"REVERIE_URL": url, "REVERIE_TOKEN": "t", "REVERIE_HOOK_SECONDS": "0.1"}
        assert hooks.fire(PROMPT) == ""
        assert hooks.kept() == 1
        assert hooks.fire(START) == ""


def test_an_event_is_stored_once_however_often_it_is_sent(hooks: Hooks) -> None:
    """Given an event whose delivery was cut off after the server had it, when it is delivered again, then it is stored
    once; and a result that a transcript's import has stored already is not stored again."""
    client = hooks.start()
    for _ in range(2):
        client.sessions.record_event(tool="claude-code", id="e1", event={"session_id": SESSION, **PROMPT})
        client.sessions.record_event(tool="claude-code", id="e2", event={"session_id": SESSION, **RESULT})
        client.sessions.record_event(tool="claude-code", id="e3", event={"session_id": SESSION, **RESULT})
    assert [role for role, _ in hooks.stored(client)] == ["user", "tool"]
    assert client.sessions.messages(f"claude-code:{SESSION}")[1].id == f"claude-code:result:{CALL}"


def test_the_hooks_of_the_plugin_keep_quiet_when_the_tool_was_connected_as_well(hooks: Hooks) -> None:
    """Given a tool with the plugin that `reverie connect` has given hooks, too, then the plugin hands over nothing."""
    client = hooks.start()
    mark = hooks.state / "reverie" / "connected" / "claude-code"
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert hooks.fire(START) == ""
    assert hooks.fire(PROMPT) == ""
    assert client.sessions.list() == []
    mark.unlink()
    hooks.fire(PROMPT)
    assert hooks.stored(client) == [("user", PROMPT["prompt"])]


def test_an_import_leaves_out_what_hooks_have_handed_over(hooks: Hooks, tmp_path: Path) -> None:
    """Given a session of which hooks have handed over some, when its transcript is imported, then only the rest is
    added: a prompt that was typed twice and handed over once is there twice."""
    client = hooks.start()
    events = {"p1": PROMPT, "r1": RESULT, "a1": ANSWER}
    for id, event in events.items():
        client.sessions.record_event(tool="claude-code", id=id, event={"session_id": SESSION, **event})
    assert len(hooks.stored(client)) == 3
    text, result = str(PROMPT["prompt"]), [{"type": "tool_result", "tool_use_id": CALL, "content": "28E: Estrela"}]
    lines = [
        claude_code_entry("user", text, 1, sessionId=SESSION),
        claude_code_entry("user", result, 2, sessionId=SESSION),
        claude_code_entry("assistant", [{"type": "text", "text": "The 28E."}], 3, sessionId=SESSION),
        claude_code_entry("user", text, 4, sessionId=SESSION),
    ]
    path = written_lines(tmp_path / "one.jsonl", lines)
    reading, call = Reading("default", "default"), ImportRecords(records=[])
    done = carry(client.connection.send, FORMATS["claude-code"], path, reading, call=call)
    assert done.added == {"messages": 1}
    assert reasons(reading) == {"messages that hooks have handed over already": 3}
    assert len(hooks.stored(client)) == 4


def test_what_is_kept_is_bounded(hooks: Hooks) -> None:
    """Given as many kept events as there may be, when another one happens, then it is dropped and noted."""
    hooks.spool.mkdir(parents=True)
    for number in range(5_000):
        (hooks.spool / f"2026-01-01T00:00:00.{number:09d}Z.x.json").touch()
    hooks.fire(PROMPT)
    assert hooks.kept() == 5_000
    assert len((hooks.spool / "dropped.log").read_text().splitlines()) == 1
    assert not list(hooks.spool.glob("*.part"))


def test_an_event_that_is_refused_is_not_kept(hooks: Hooks) -> None:
    """Given an event that is no JSON, and one without a session, then they are dropped, and later ones are stored."""
    client = hooks.start()
    command = "printf 'no json' | sh \"${CLAUDE_PLUGIN_ROOT}/hooks/reverie-hook.sh\" auto"
    hooks.fire(PROMPT, command=command)
    hooks.fire(PROMPT, session="")
    assert list(hooks.spool.iterdir()) == []
    hooks.fire(PROMPT)
    assert len(hooks.stored(client)) == 1


# Runs commands as coding agents do, and prints for each in how many milliseconds it has ended and closed its pipes.
_UNTIL_CLOSED = """
const { spawn } = require("node:child_process");
(async () => {
  const found = [];
  for (const command of JSON.parse(process.argv[1])) {
    const began = performance.now();
    const child = spawn("/bin/sh", ["-c", command], { stdio: ["pipe", "pipe", "pipe", "pipe"] });
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on("error", () => {}).resume?.();
    child.stdio[3].on("error", () => {}).resume();
    child.stdin.end('{"session_id": "s"}');
    const code = await new Promise((resolve) => child.on("close", resolve));
    found.push([performance.now() - began, code]);
  }
  console.log(JSON.stringify(found));
})();
"""
# What an agent waits for a hook at most, as a person does not notice it.
_CLOSED_MILLISECONDS = 300
_SHELLS = [shell for shell in ("dash", "bash", "busybox sh") if shutil.which(shell.split()[0])]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed: it waits as coding agents do")
@pytest.mark.parametrize("server", ["up", "away", "hangs"])
@pytest.mark.parametrize("kept", [0, 3_000])
@pytest.mark.parametrize("shell", _SHELLS)
def test_no_hook_keeps_its_agent_waiting(hooks: Hooks, server: str, kept: int, shell: str) -> None:
    """Given a server that answers, is away or hangs, and a backlog, then each hook has closed its pipes at once."""
    hooks.spool.mkdir(parents=True)
    for number in range(kept):
        (hooks.spool / f"2026-01-01T00:00:00.{number:09d}Z.x.json").write_text('{"tool":"codex","id":"x","at":"x"}')
    variables = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(hooks.state)}
    script = PLUGIN / "hooks" / "reverie-hook.sh"
    commands = [
        f'{shell} "{script}" {tool}{start}'
        for tool in ("claude-code", "codex", "gemini", "cursor")
        for start in (" start", "", "")
    ]
    with socket.create_server(("127.0.0.1", 0), backlog=500) as hanging:
        if server == "hangs":
            variables |= {"REVERIE_URL": f"http://127.0.0.1:{hanging.getsockname()[1]}", "REVERIE_TOKEN": "t"}
        elif server == "up":
            hooks.start()
        times = [math.inf] * len(commands)
        for _ in range(12):  # the fastest of up to twelve: the machine may be busy with something else
            done = subprocess.run(
                ["node", "-e", _UNTIL_CLOSED, json.dumps(commands)], env=variables, capture_output=True, check=True
            )
            found = json.loads(done.stdout)
            assert {code for _, code in found} == {0}
            times = [min(before, milliseconds) for before, (milliseconds, _) in zip(times, found, strict=True)]
            if max(times) < _CLOSED_MILLISECONDS:
                return
        pytest.fail(f"some hooks keep their agent waiting: {dict(zip(commands, times, strict=True))}")


CODEX = {"turn_id": "t1", "model": "gpt", "permission_mode": "default"}


@pytest.mark.parametrize(
    ("tool", "variables", "events", "printed"),
    [
        ("codex", {"PLUGIN_ROOT": str(PLUGIN)}, [PROMPT | CODEX, RESULT | CODEX, ANSWER | CODEX], ""),
        (
            "gemini",
            {},
            [
                {"hook_event_name": "BeforeAgent", "prompt": "Which tram?", "timestamp": "2026-05-01T09:30:00Z"},
                {
                    "hook_event_name": "AfterTool",
                    "tool_name": "run_shell_command",
                    "tool_input": {"command": "cat trams"},
                    "tool_response": {"llmContent": "28E: Estrela", "returnDisplay": "28E"},
                },
                {"hook_event_name": "AfterAgent", "prompt": "Which tram?", "prompt_response": "The 28E."},
            ],
            "{}",
        ),
        (
            "cursor",
            {},
            [
                {"hook_event_name": "beforeSubmitPrompt", "prompt": "Which tram?", "conversation_id": SESSION},
                {
                    "hook_event_name": "postToolUse",
                    "conversation_id": SESSION,
                    "tool_name": "Shell",
                    "tool_input": {"command": "cat trams"},
                    "tool_output": '{"output":"28E: Estrela"}',
                    "tool_use_id": "t1",
                },
                {"hook_event_name": "afterAgentResponse", "text": "The 28E.", "conversation_id": SESSION},
            ],
            "{}",
        ),
    ],
)
def test_every_coding_agent_is_understood(
    hooks: Hooks, tool: str, variables: dict[str, str], events: list[dict[str, Any]], printed: str
) -> None:
    """Given the events of each tool, then prompt, result and answer are stored, and it prints what the tool expects."""
    client = hooks.start()
    hooks.variables |= variables
    named = "auto" if tool == "codex" else tool
    command = f'sh "{PLUGIN}/hooks/reverie-hook.sh" {named}'
    for event in events:
        assert hooks.fire(event, command=command) == printed
    assert [role for role, _ in hooks.stored(client, f"{tool}:{SESSION}")] == ["user", "tool", "assistant"]
