"""An exported session, ingested by another agent: through the client, over HTTP, and with the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from reverie import Reverie
from reverie.errors import Rejected
from support.command_line import CommandLine
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

_CALL = {"id": "c1", "type": "function", "function": {"name": "price", "arguments": "{}"}}
_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Grease?", "name": "Gus", "metadata": {"page": [1]}, "tags": ["mill"]},
    {"role": "assistant", "content": "", "tool_calls": [_CALL], "created_at": "2025-01-02T03:04:05Z"},
    {"role": "tool", "content": "4 EUR", "tool_call_id": "c1", "tool_name": "price", "importance": 0.9, "sequence": 7},
]
_WHERE = {"user": "gus", "provider": "slack", "chat_id": "C7", "channel": "mills"}


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over a session of ana's with everything that a session and its messages can have, and an empty one."""
    with running_server(runtime) as address:
        with Reverie("ana", url=address) as ana:
            ana.sessions.start("s", metadata={"topic": {"of": "mills"}})
            ana.ingest("s", _MESSAGES, **_WHERE)
            drain(runtime)
            ana.sessions.start("empty", metadata={"a": 1}, provider="slack", chat_id="C8")
        yield address


def _contents(url: str, agent: str, session: str = "s") -> tuple[Any, ...]:
    """Return what an export says of a session, without its code and times, and its messages."""
    with Reverie(agent, url=url) as client:
        export = client.sessions.export(session)
    own = msgspec.structs.replace(export.session, ref_code="")
    kept = {name: getattr(own, name) for name in ("id", "metadata", "last_sequence", "messages", *_WHERE)}
    return kept, export.messages


def test_the_command_line_keeps_all_of_a_session(
    url: str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given exports, when another agent ingests them, then it exports the same, and ingesting again changes nothing."""
    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys)
    for session in ("s", "empty"):
        path = str(tmp_path / f"{session}.json")
        assert reverie("sessions", "export", session, "--agent", "ana", "-o", path).code == 0
        for _ in range(2):
            ended = reverie("ingest", path, "--agent", "lif")
            assert (ended.code, ended.err) == (0, "")
            drain(runtime)
        assert _contents(url, "lif", session) == _contents(url, "ana", session)


def test_a_sessions_own_metadata_stays_when_an_export_is_ingested_over_it(
    url: str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a session that has changed since its export, then its metadata stays."""
    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana")
    path = str(tmp_path / "s.json")
    printed = reverie("sessions", "export", "s", "-o", "-").out
    reverie("sessions", "export", "s", "-o", path)
    assert json.loads(printed) == json.loads(Path(path).read_text())
    with Reverie("ana", url=url) as ana:
        ana.sessions.start("s", metadata={"topic": "bread"})
        assert reverie("ingest", path).code == 0
        drain(runtime)
        assert ana.sessions.get("s").metadata == {"topic": "bread"}


def test_exported_messages_can_be_ingested_by_client_and_http(url: str, runtime: Runtime) -> None:
    """Given messages as they are read and exported, then they are accepted as they are, for their own session."""
    with Reverie("ana", url=url) as ana, Reverie("lif", url=url) as lif:
        export = ana.sessions.export("s")
        lif.sessions.start("s", metadata=export.session.metadata)
        lif.ingest("s", export.messages, **_WHERE)  # type: ignore[arg-type]
        with pytest.raises(Rejected, match="the message is of session 's', the call is for 'other': leave out"):
            lif.ingest("other", export.messages)  # type: ignore[arg-type]
    headers = {"X-Reverie-Agent": "kim"}
    exported = httpx2.get(f"{url}/v1/sessions/s/export", headers={"X-Reverie-Agent": "ana"}).json()
    httpx2.post(f"{url}/v1/sessions/s/start", headers=headers, json={"metadata": exported["session"]["metadata"]})
    body = {"session": "s", **_WHERE, "messages": exported["messages"]}
    answered = httpx2.post(f"{url}/v1/messages", headers=headers, json=body)
    assert answered.status_code == 202
    drain(runtime)
    assert _contents(url, "lif") == _contents(url, "kim") == _contents(url, "ana")
