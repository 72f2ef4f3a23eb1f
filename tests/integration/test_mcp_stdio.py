"""`reverie mcp` as MCP clients start it: with and without a server, with options, cancelled, and cut off."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.trust.tokens import OPERATOR, TokenRequest, create_token
from server.authentication import Access
from support.http import running_server
from support.mcp import MODES, ROOT, VERSIONS, error_of, over_stdio, run, text_of
from support.ports import free_port
from worker.runtime import Runtime
from worker.settings import Settings

OPERATORS = "o" * 40


@pytest.fixture(scope="module")
def runtime(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One runtime for all tests of this file."""
    data = tmp_path_factory.mktemp("mcp-stdio") / "data"
    made = Runtime(Settings(data=data, broker=valkey_url, broker_prefix="mcp-stdio:", embedding_provider="hash"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(runtime: Runtime) -> Iterator[str]:
    """The address of a server that asks for tokens."""
    with running_server(runtime, access=Access({"operator": OPERATORS})) as address:
        yield address


@pytest.mark.parametrize("mode", MODES)
def test_options_and_environment_say_whose_memory_it_is(url: str, runtime: Runtime, tmp_path: Path, mode: str) -> None:
    """Given two clients, one of kate by options, one of leo by a token, then each has a memory of its own."""
    request = TokenRequest(f"w-{mode}", ("ana",), "leo", ("read", "write", "forget"))
    leos = create_token(runtime.stores, request, by=OPERATOR, now=runtime.now()).text
    operator = {"REVERIE_URL": url, "REVERIE_TOKEN": OPERATORS}
    options = ("--agent", "ana", "--workspace", f"w-{mode}", "--user", "kate")

    async def main() -> None:
        async with (
            over_stdio(tmp_path, *options, environment=operator, mode=mode) as kate,
            over_stdio(tmp_path, environment={"REVERIE_URL": url, "REVERIE_TOKEN": leos}, mode=mode) as leo,
        ):
            assert kate.protocol_version == VERSIONS[mode]
            stored = await kate.call_tool("remember", {"content": "Kate likes tea."})
            assert text_of(await leo.call_tool("list_memories", {})) == "There are no such memories."
            assert "Kate likes tea." in text_of(await kate.call_tool("list_memories", {}))
            assert "has no memory" in error_of(await leo.call_tool("forget", {"id": stored.structured_content["id"]}))
            lacking = error_of(await leo.call_tool("reminders", {"action": "add", "message": "x", "in_minutes": 1}))
            assert "the token lacks the scope schedule" in lacking
            assert "fixed by the connection" in error_of(await leo.call_tool("list_memories", {"user": "kate"}))
            assert "Kate likes tea." in (await kate.read_resource("reverie://memories")).contents[0].text
            assert "There are no memories" in (await leo.read_resource("reverie://memories")).contents[0].text

    run(main)


def test_without_a_server_the_tools_say_so_and_work_once_one_runs(runtime: Runtime, tmp_path: Path) -> None:
    """Given no server, then each tool says how to start one; with the server there, the same client goes on.

    When the server goes away and comes back, so it does again.
    """
    port = free_port()
    environment = {"REVERIE_URL": f"http://127.0.0.1:{port}", "REVERIE_TOKEN": OPERATORS}

    async def main() -> None:
        async with over_stdio(tmp_path, environment=environment) as client:
            assert len((await client.list_tools()).tools) == 8
            for _ in range(2):
                said = error_of(await client.call_tool("recall", {"query": "tea"}))
                assert "`reverie up`" in said
                assert "try again later" in said
                with in_thread(runtime, port):
                    stored = await client.call_tool("remember", {"content": "Kate likes tea."})
                    assert "Remembered" in text_of(stored)

    run(main)


def test_where_no_reverie_is_found_it_says_where_it_looked(tmp_path: Path) -> None:
    """Given a folder without Reverie, then standard error and the tool say so, and nothing is created there."""
    ended = session(tmp_path, [INITIALIZE, INITIALIZED, call(2, "list_memories")])
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert answer["result"]["isError"] is True
    assert "no Reverie runs here: start it with `reverie up`" in answer["result"]["content"][0]["text"]
    assert "no Reverie runs here" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_it_while_it_waits_for_input(tmp_path: Path) -> None:
    """Given a terminal at which nobody types, when Ctrl-C comes, then it ends with one line and 130."""
    command = [sys.executable, "-m", "cli", "--data", str(tmp_path / "none"), "mcp"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as server:  # type: ignore[call-overload]
        server.stdin.write(INITIALIZE + "\n")
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(timeout=30) == 130
        finally:
            server.kill()
        assert server.stderr.read().splitlines()[-1] == "reverie: interrupted"


def test_what_cannot_be_read_ends_nothing_and_a_request_that_cannot_be_read_is_answered(
    url: str, tmp_path: Path
) -> None:
    """Given lines that are no messages, and requests with half a character, a key twice, or nested deeply, then each
    request is told so, the next works, and only messages are printed."""
    nonsense = ["", "{", "[]", "null", '{"jsonrpc":"2.0","id":7,"method":"nope"}', "\udcff", "x" * 100_000]
    whole = call(2, "list_memories")
    lines = [
        whole.replace('"id": 2', f'"id": {id}').replace('"arguments": {}', f'"arguments": {{{arguments}}}')
        for id, arguments in (
            (3, r'"text": "\ud83d"'),
            (4, '"text": "a", "text": "b"'),
            (5, f'"text": {"[" * 500}{"]" * 500}'),
            ('"six"', r'"\udc00": 1'),
        )
    ]
    environment = {"REVERIE_URL": url, "REVERIE_TOKEN": OPERATORS}
    ended = session(tmp_path, [*nonsense, INITIALIZE, INITIALIZED, *lines, whole], **environment)
    answers = {answer.get("id"): answer for answer in map(json.loads, ended.stdout.splitlines())}
    assert "twice" in answers[4]["error"]["message"]
    for id in (3, 5, "six"):
        assert answers[id]["error"]["message"].startswith("the message cannot be read")
    assert answers[2]["result"]["isError"] is False
    assert "Traceback" not in ended.stderr


def test_a_cancelled_call_frees_the_client(tmp_path: Path) -> None:
    """Given a server that does not answer, when a call is cancelled, then the connection goes on."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(50)  # a thread that waits for longer than the test would keep the event loop from ending
        hanging = {"REVERIE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "REVERIE_TOKEN": OPERATORS}

        async def cancelled() -> None:
            async with over_stdio(tmp_path, environment=hanging) as client:
                waiting = asyncio.create_task(client.call_tool("list_memories", {}))
                sent, _ = await asyncio.get_running_loop().run_in_executor(None, silent.accept)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert len((await client.list_tools()).tools) == 8
                sent.close()

        run(cancelled)


def test_all_tools_are_there_when_asked_for_and_fifty_calls_at_once_are_answered(url: str, tmp_path: Path) -> None:
    """Given `--tools all`, then a model has a scratchpad of its own and the history of the memory files, too; given
    fifty calls at once, then each is answered."""
    environment = {"REVERIE_URL": url, "REVERIE_TOKEN": OPERATORS}

    async def main() -> None:
        async with over_stdio(tmp_path, "--workspace", "many", "--tools", "all", environment=environment) as client:
            assert len((await client.list_tools()).tools) == 13
            await client.call_tool("scratchpad_write", {"items": ["Ask Kate about the boat."]})
            assert "Ask Kate about the boat." in text_of(await client.call_tool("scratchpad_read", {}))
            calls = (client.call_tool("remember", {"content": f"Statement {number}."}) for number in range(50))
            assert len({one.structured_content["id"] for one in await asyncio.gather(*calls)}) == 50

    run(main)


@contextmanager
def in_thread(runtime: Runtime, port: int) -> Iterator[None]:
    """Run a server on a port."""
    with running_server(runtime, access=Access({"operator": OPERATORS}), port=port):
        yield


INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
)
INITIALIZED = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})


def call(id: int, tool: str, **arguments: Any) -> str:
    """Return the message of a tool call."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


def session(folder: Path, lines: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Start `reverie mcp`, write lines, and close its input once the last of them is answered."""
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "HOME": str(folder), **environment}
    with (
        subprocess.Popen(
            [sys.executable, "-m", "cli", "mcp"],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        ) as process,
        limited(process),
    ):
        assert process.stdin
        assert process.stdout
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        printed = []
        for line in process.stdout:
            printed.append(line)
            if json.loads(line).get("id") == 2:
                break
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return subprocess.CompletedProcess([], 0, "".join(printed) + output, errors)


@contextmanager
def limited(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process after a minute, or if the test fails before."""
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        killer.cancel()
