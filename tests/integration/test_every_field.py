"""No field is dropped silently: every field of every stored type is sent, and looked for afterwards.

The fields are read off the types: a new one is sent by itself, and has to be found again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import httpx2
import msgspec
import pytest

from reverie import Rejected, Reverie
from reverie.calls import Call, validated
from reverie.fields import check_fields
from reverie.items import PutItem
from reverie.memories.calls import AddNote, Remember, SetFact
from reverie.memories.types import JobChange, Provenance
from reverie.pipeline.calls import IngestFile
from reverie.pipeline.submission import MessageInput, SessionInput
from reverie.scheduling.calls import AddSchedule, Remind
from reverie.sessions.calls import CreateChannel, StartSession, WriteScratchpad, WriteScratchpadKey
from reverie.trust.calls import CreateToken, SetQuotas
from reverie.trust.exports import AnyRecord
from server.app import endpoints
from support.command_line import CommandLine
from support.http import running_server
from support.mcp import error_of, over_http, run, text_of
from support.stages import drain
from worker.runtime import Runtime

SEEN: Final = datetime(2100, 5, 1, 9, 30, tzinfo=UTC)
# What only says how a call is carried out, and other ways to say what another field says: a cadence, an executor.
NOT_STORED: Final = frozenset({"wait", "in_", "strict", "vectors", "ttl_seconds"})
SHORT_FORMS: Final = frozenset({"cron", "at", "every", "tz", "webhook", "task", "queue"})
# Values that a sample of the type would not be.
FIXED: Final[Mapping[str, Any]] = {
    "visibility": "shared", "executor": {"type": "task", "task": "book", "queue": "own"},
    "cadence": {"type": "interval", "seconds": 86_400}, "key": "the-key", "category": "the-category",
    "tier": "channel", "lifetime": None, "role": "tool", "expires_seconds": 300_000_000.0,
    "workspace": "ws", "index": ["field"], "value": {"field": "a value"}, "source_uri": "file:///the.md",
    "holder": "workspace", "inherit": [], "workspaces": None, "scopes": ["read"], "delivery": "pull",
    "pinned": True, "recall_limit": 7, "tool_calls": [{"id": "the call"}],
}  # fmt: skip
CALLS: Final[tuple[type[Call[Any]], ...]] = (
    StartSession, CreateChannel, Remember, SetFact, AddNote, IngestFile, PutItem, AddSchedule, Remind,
    WriteScratchpad, WriteScratchpadKey,
)  # fmt: skip


def sample(hint: Any, name: str) -> Any:
    """Return a JSON value of a type that tells the field."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        choices = get_args(hint)[: 1 if get_origin(hint) is Annotated else None]
        return sample(next(one for one in choices if one not in (type(None), msgspec.UnsetType)), name)
    origin = get_origin(hint) or hint
    number = sum(name.encode())
    if origin is Literal:
        return get_args(hint)[-1]
    if isinstance(origin, type) and issubclass(origin, datetime):
        return (SEEN + timedelta(days=number)).isoformat()
    for kind, value in ((bool, True), (str, f"the {name}"), (int, number), (float, number / 2**14)):
        if origin is kind:
            return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"of": f"the {name}"}
    return [f"the {name}"]


def filled(kind: type, **fixed: Any) -> dict[str, Any]:
    """Return every field of a struct by its JSON name, with a sample."""
    hints = get_type_hints(kind, include_extras=True)
    known = {**FIXED, **fixed}
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {
        name: value
        for field, name in names
        if field not in NOT_STORED
        and not (kind is AddSchedule and field in SHORT_FORMS)
        and not (kind in (Remember, IngestFile) and field == "timeout_seconds")
        and (value := known[field] if field in known else sample(hints[field], field)) is not None
    }


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values within JSON, times in one form."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str) and value[:2] == "21" and "T" in value:
        yield datetime.fromisoformat(value)
    elif isinstance(value, str) and value[:1] in ('"', "{"):
        yield from leaves(json.loads(value))
    else:
        yield value


def missing(sent: Mapping[str, Any], found: Sequence[Any]) -> list[str]:
    """Return the names of fields whose values are not among what was found."""
    known = list(leaves(list(found)))
    return [name for name, value in sent.items() if not all(leaf in known for leaf in leaves(value))]


@pytest.fixture
def ana(runtime: Runtime) -> Iterator[Reverie]:
    with running_server(runtime) as url, Reverie("ana", url=url, workspace="ws") as client:
        yield client


def exported(ana: Reverie, path: Path) -> list[dict[str, Any]]:
    """Return the records of an export of everything."""
    ana.admin.export_file(path)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_call_is_stored_exported_and_imported(
    kind: type[Call[Any]], ana: Reverie, runtime: Runtime, tmp_path: Path
) -> None:
    """Given a call with all its fields, then an export has all their values, and so has one of its import."""
    ana.channels.create("the channel")
    session = ana.sessions.start("the session", user="the user", channel="the channel")
    own = {"session": session.id, "channel": "the channel", "user": "the user", "owner_user_id": "the user"}
    if kind is StartSession:
        own |= {"session": "another", "user": "the user"}
    if kind is CreateChannel:
        own |= {"channel": "another"}
    own["value"] = "the value" if kind in (SetFact, WriteScratchpadKey) else FIXED["value"]
    sent = filled(kind, **{name: value for name, value in own.items() if name in kind.__struct_fields__})
    ana.connection.send(validated(msgspec.convert(sent, kind)))
    drain(runtime, "ws")
    records = exported(ana, tmp_path / "export.jsonl")
    assert missing(sent, records) == []

    ana.admin.workspaces.delete()
    ana.admin.import_file(tmp_path / "export.jsonl", trusted=True)
    drain(runtime, "ws")
    assert missing(sent, exported(ana, tmp_path / "again.jsonl")) == []


@pytest.mark.parametrize("way", ["http", "broker", "command line", "raw"])
def test_every_field_of_a_message_arrives(
    way: str, ana: Reverie, runtime: Runtime, valkey_url: str, broker_prefix: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Given a message with all its fields by each way, then each is stored."""
    message = filled(MessageInput, importance=0.75, sequence=7, created_at="2126-05-01T09:30:00Z")
    where = filled(SessionInput, session="the session", visibility=None, user=None)
    url = ana.connection.config.url
    if way == "http":
        ana.ingest(messages=[message], **where)
    elif way == "broker":
        with Reverie("ana", url=url, workspace="ws", broker=valkey_url, prefix=broker_prefix) as client:
            client.ingest(messages=[message], **where)
    elif way == "command line":
        (tmp_path / "messages.jsonl").write_text(json.dumps({**message, **where}))
        monkeypatch.setenv("REVERIE_URL", url)
        line = CommandLine(monkeypatch, capsys, "--agent", "ana", "--workspace", "ws")
        assert line("ingest", str(tmp_path / "messages.jsonl")).code == 0
    else:
        headers = {"X-Reverie-Agent": "ana", "X-Reverie-Workspace": "ws"}
        body = {"messages": [message], **where}
        assert httpx2.post(f"{url}/v1/messages", json=body, headers=headers).status_code == 202
    drain(runtime, "ws")
    assert missing({**message, **where}, exported(ana, tmp_path / "export.jsonl")) == []


MCP_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "remember": {"content": "the content", "kind": "task", "source": "user", "tags": ["the tags"],
                 "subject": "the subject", "expires_at": SEEN.isoformat()},
    "schedule": {"goal": "the goal", "cron": "30 9 * * 1", "timezone": "Europe/Lisbon"},
    "schedule, once": {"goal": "the goal", "at": SEEN.isoformat()},
    "reminders": {"message": "the message", "at": SEEN.isoformat()},
    "update_memory": {"content": "the new content", "kind": "event", "tags": ["the new tags"], "pinned": True,
                      "expires_at": SEEN.isoformat()},
}  # fmt: skip


@pytest.mark.parametrize("named", MCP_ARGUMENTS)
def test_every_argument_of_a_tool_is_stored(named: str, ana: Reverie, tmp_path: Path) -> None:
    """Given a tool that stores with all its arguments, then an export has their values; an unknown one is refused."""
    tool, given = named.partition(",")[0], dict(MCP_ARGUMENTS[named])
    extra = {"action": "add"} if tool in ("schedule", "reminders") else {}
    if tool == "update_memory":
        extra["id"] = ana.remember("the old content").id

    async def call() -> set[str]:
        async with over_http(ana.connection.config.url, None, agent="ana", workspace="ws") as client:
            text_of(await client.call_tool(tool, {**given, **extra}))
            error_of(await client.call_tool(tool, {**given, **extra, "colour": "red"}))
            listed = await client.list_tools()
        return set(next(one for one in listed.tools if one.name == tool).input_schema["properties"])

    others = {"schedule": {"id", "at"}, "schedule, once": {"id", "cron", "timezone"}, "reminders": {"id", "in_minutes"}}
    assert run(call) - {*given, *extra} == others.get(named, set())
    assert missing(given, exported(ana, tmp_path / "export.jsonl")) == []


@pytest.mark.parametrize(("field", "own", "of_call"), [("user", "ann", "bo"), ("visibility", "shared", "private")])
def test_a_message_that_contradicts_its_call_is_refused(field: str, own: str, of_call: str, ana: Reverie) -> None:
    """Given a message of one user in a call of another, then it is refused, with both."""
    with pytest.raises(Rejected, match=f"{field} of the message is '{own}', that of the call '{of_call}'"):
        ana.ingest("s", {"role": "user", "content": "Hello", field: own}, **{field: of_call})


def test_every_field_of_a_token_and_of_quotas_is_kept(ana: Reverie) -> None:
    """Given a token and quotas with all their fields, then they are listed with them."""
    sent = filled(CreateToken)
    ana.connection.send(validated(msgspec.convert(sent, CreateToken)))
    del sent["expires_seconds"]
    (token,) = [one for one in ana.admin.tokens.list() if one.name == sent["name"]]
    assert token.expires_at is not None
    assert missing(sent, [msgspec.to_builtins(token)]) == []
    quotas = filled(SetQuotas, name="ws")
    kept = ana.connection.send(validated(msgspec.convert(quotas, SetQuotas))).quotas
    limits = {name: amount for name, amount in quotas.items() if name not in ("holder", "name", "inherit")}
    assert missing(limits, msgspec.to_builtins(kept)) == []


def inputs() -> Iterator[type]:
    """Yield the calls, and every struct that one may have within it."""
    waiting: list[Any] = [*(endpoint.kind for endpoint in endpoints()), MessageInput, SessionInput, AnyRecord]
    known: set[type] = set()
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in known:
            known.add(hint)
            yield hint
            waiting += get_type_hints(hint, include_extras=True).values()
        elif get_origin(hint) is not Literal:
            waiting += get_args(hint)


def test_an_unknown_field_is_refused_with_its_name() -> None:
    """Given anything that a caller may send, then a field that it does not have is refused and not left out."""
    # What Reverie says of a memory: an import makes its own.
    kinds = set(inputs()) - {Provenance, JobChange}
    assert len(kinds) > 150
    assert [kind for kind in kinds if not kind.__struct_config__.forbid_unknown_fields] == []


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2100-01-01T00:00:00"])
def test_every_time_has_the_one_check(text: str) -> None:
    """Given a time that cannot be shown in UTC, or without a zone, then it is refused whatever it belongs to."""
    times = [
        (kind, field)
        for kind in set(inputs())
        for field, hint in get_type_hints(kind).items()
        if field in kind.__struct_fields__ and datetime in (hint, *get_args(hint))
    ]
    assert len(times) > 60
    for kind, field in times:
        struct = kind(**{**dict.fromkeys(kind.__struct_fields__), field: datetime.fromisoformat(text)})
        name = kind.__struct_encode_fields__[kind.__struct_fields__.index(field)]
        with pytest.raises(Rejected) as refused:
            check_fields(struct)
        says = f"{name} (is outside the years 1 to 9999 in UTC|needs a time zone)"
        assert re.search(says, str(refused.value)), (kind, field, refused.value)
