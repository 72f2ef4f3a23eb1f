"""From an agent's call to its recall, over HTTP and straight to the broker, through the real application."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Never

import httpx2
import pytest

from adapters.embedders.base import HashEmbedder
from memory.scheduling.executing import embed_goals
from memory.stage import letter_of_crash
from reverie import contract
from reverie.client import AsyncReverie, Reverie
from reverie.contract import MessagePayload
from reverie.errors import Conflict, InboxFull, NotFound, Rejected, StoreUnavailable, Unavailable, WaitTimeout
from reverie.pipeline.calls import InboxLimits
from reverie.scheduling.types import LlmExecutor
from storage.pipeline.work import STAGES
from storage.stores import Stores
from support.agents import until
from support.http import running_server
from support.stages import drain, pipeline_at_work, store_inbox
from worker.runtime import Runtime

LISBON = {"role": "user", "content": "I moved to Lisbon in May."}
NASTY_SESSIONS = [
    "a/b",
    "chat/messages",
    "..",
    ".",
    "100%",
    "a%2Fb",
    "ä ö?x=1#y",
    "日本/export",
    " x ",
    "s;p=1",
    "+",
    "a" * 256,
]


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    with running_server(runtime) as address:
        yield address


@pytest.fixture
def memory(url: str) -> Iterator[Reverie]:
    """A client over HTTP alone."""
    with Reverie("ana", url=url) as client:
        yield client


@pytest.fixture
def clients(url: str, valkey_url: str, broker_prefix: str) -> Iterator[Callable[..., Reverie]]:
    """Makes clients, over HTTP or with the broker too."""
    with ExitStack() as stack:

        def make(agent: str = "ana", *, broker: bool = False, **options: str) -> Reverie:
            where = {"broker": valkey_url, "prefix": broker_prefix} if broker else {}
            return stack.enter_context(Reverie(agent, url=url, **where, **options))

        yield make


def accept_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound only the wait of a call by its time, not what precedes it: on a busy machine the broker may be slower."""
    monkeypatch.setattr("reverie.pipeline.producer.within", lambda _seconds: nullcontext())


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
def test_what_was_said_is_recalled(clients: Callable[..., Reverie], runtime: Runtime, broker: bool) -> None:
    """Given messages handed over, when the stages have run, then they are recalled, newest session first."""
    memory = clients(broker=broker)
    receipt = memory.ingest("chat-42", [LISBON, {"role": "assistant", "content": "How is the weather there?"}])
    assert receipt.state == "queued"
    assert len(receipt.accepted) == 2
    assert receipt.trace
    assert memory.sessions.list() == []

    drain(runtime)

    found = memory.recall("who moved to Lisbon", limit=1)
    assert [item.text for item in found] == [LISBON["content"]]
    assert found.results[0].session == "chat-42"
    assert found.results[0].explanation is None
    assert [session.id for session in memory.sessions.list()] == ["chat-42"]
    assert [message.id for message in memory.sessions.messages("chat-42")] == receipt.accepted
    assert memory.sessions.messages("chat-42", limit=1, offset=1)[0].role == "assistant"
    export = memory.sessions.export("chat-42")
    assert export.session == memory.sessions.get("chat-42")
    assert export.messages[0].content == LISBON["content"]


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
@pytest.mark.parametrize("wait", ["stored", "searchable"])
def test_a_call_can_wait(clients: Callable[..., Reverie], runtime: Runtime, broker: bool, wait: str) -> None:
    """Given workers at work, when a call waits, then what it says holds when it returns."""
    memory = clients(broker=broker)
    with pipeline_at_work(runtime):
        receipt = memory.ingest("s", LISBON, wait=wait)
        file = memory.files.add("file:///notes.md", "Kate takes oat milk.", wait=wait, tags=["Coffee"])
    assert receipt.state == wait
    assert file.state == wait
    if wait == "searchable":
        assert memory.recall("oat milk", tags=["coffee"]).results[0].kind == "file"


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
def test_a_wait_that_is_too_short_says_what_was_accepted(
    clients: Callable[..., Reverie], broker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no workers, when a call waits, then the error carries the ids, which are safe."""
    accept_without_limit(monkeypatch)
    memory = clients(broker=broker)
    with pytest.raises(WaitTimeout, match="reverie status") as caught:
        memory.ingest("s", [LISBON], wait="stored", timeout_seconds=0.2)
    assert len(caught.value.accepted) == 1


def test_a_wait_may_be_longer_than_the_socket_timeout(clients: Callable[..., Reverie]) -> None:
    """Given a broker connection that gives up after 5 s, when a call waits for longer, then it waits all the same."""
    with pytest.raises(WaitTimeout, match="after 6 s"):
        clients(broker=True).ingest("s", [LISBON], wait="stored", timeout_seconds=6)


def test_the_same_ids_over_both_ways_are_stored_once(clients: Callable[..., Reverie], runtime: Runtime) -> None:
    """Given a message with an id, when it is sent twice by each way, then there is one."""
    message = {**LISBON, "id": "m-1", "created_at": "2026-05-01T09:30:00+02:00"}
    for broker in (True, False, True, False):
        clients(broker=broker).ingest("s", message)
        drain(runtime)
    (stored,) = clients().sessions.messages("s")
    assert stored.id == "m-1"
    assert stored.created_at.isoformat() == "2026-05-01T07:30:00+00:00"


def test_every_field_arrives(memory: Reverie, runtime: Runtime) -> None:
    """Given a message with all fields, then it is read as it was written."""
    call = {"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
    message = {"role": "tool", "content": "", "name": "Ana", "tool_call_id": "c1", "tool_name": "weather",
               "tool_calls": [call], "token_count": 7, "importance": 0.9, "metadata": {"a": [1, {"b": None}]},
               "tags": [" Trip ", "trip"], "sequence": 12}  # fmt: skip
    memory.ingest(messages=[message], provider="slack", chat_id="C1/x", user="u1", channel="travel")
    drain(runtime)
    (stored,) = memory.sessions.messages("slack:C1/x")
    assert stored.tool_calls == [call]
    assert stored.metadata == {"a": [1, {"b": None}]}
    assert (stored.tags, stored.sequence, stored.importance, stored.token_count) == (["trip"], 12, 0.9, 7)
    session = memory.sessions.get("slack:C1/x")
    assert (session.provider, session.chat_id, session.user, session.channel) == ("slack", "C1/x", "u1", "travel")


def test_agents_and_workspaces_see_only_their_own(clients: Callable[..., Reverie], runtime: Runtime) -> None:
    """Given one session id used by two agents and in two workspaces, then nobody sees another's."""
    clients("ana").ingest("s", {"role": "user", "content": "Ana likes tea."})
    clients("josé").ingest("s", {"role": "user", "content": "José likes tea."})
    clients("ana", workspace="other").ingest("s", {"role": "user", "content": "Other likes tea."})
    drain(runtime)
    drain(runtime, "other")
    assert [item.text for item in clients("josé").recall("tea")] == ["José likes tea."]
    assert [item.text for item in clients("ana").recall("tea")] == ["Ana likes tea."]
    assert [item.text for item in clients("ana", workspace="other").recall("tea")] == ["Other likes tea."]
    assert clients("eve").sessions.list() == []


@pytest.mark.parametrize("session", NASTY_SESSIONS)
def test_a_session_id_may_be_any_text(memory: Reverie, runtime: Runtime, session: str) -> None:
    """Given an id with slashes, dots, percents or other scripts, then every path leads to that session."""
    memory.ingest(session, LISBON)
    drain(runtime)
    assert memory.sessions.get(session).id == session
    assert len(memory.sessions.messages(session)) == 1
    assert len(memory.working(session)) == 1
    assert memory.sessions.export(session).session.id == session
    assert memory.sessions.forget(session)
    with pytest.raises(NotFound):
        memory.sessions.get(session)


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
def test_working_memory_has_the_last_fifty(clients: Callable[..., Reverie], runtime: Runtime, broker: bool) -> None:
    """Given sixty messages, then the last fifty are there, also after one more and after a forget."""
    memory = clients(broker=broker)
    memory.ingest("s", [{"role": "user", "content": str(number)} for number in range(60)])
    store_inbox(runtime)
    assert [message.content for message in memory.working("s")] == [str(number) for number in range(10, 60)]
    memory.ingest("s", {"role": "user", "content": "60"})
    store_inbox(runtime)
    assert [message.content for message in memory.working("s")] == [str(number) for number in range(11, 61)]
    memory.sessions.forget("s")
    with pytest.raises(NotFound):
        memory.working("s")


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
def test_working_memory_is_answered_without_the_database(
    clients: Callable[..., Reverie], runtime: Runtime, monkeypatch: pytest.MonkeyPatch, broker: bool
) -> None:
    """Given a session of kate's that was read, when its store cannot be used, then she and the agent read its end."""
    memory = clients(broker=broker)
    memory.ingest("s", LISBON, user="kate")
    store_inbox(runtime)
    memory.working("s")
    monkeypatch.setattr(Stores, "workspace", _no_database)
    for user in (None, "kate"):
        assert [message.content for message in memory.working("s", user=user)] == [LISBON["content"]]
    with pytest.raises(Unavailable, match="no database"):
        memory.working("s", user="luis")


def _no_database(*_: object, **__: object) -> Never:
    raise StoreUnavailable("no database")


def test_forgetting_wins_over_what_is_on_its_way(memory: Reverie, runtime: Runtime) -> None:
    """Given a message in the inbox of a workspace that does not exist yet, when its session is forgotten, then it
    is never stored; what comes after is."""
    memory.ingest("s", LISBON)
    assert memory.sessions.forget("s") is False
    drain(runtime)
    assert memory.sessions.list() == []
    memory.ingest("s", {"role": "user", "content": "Hello again."})
    drain(runtime)
    assert [message.content for message in memory.sessions.messages("s")] == ["Hello again."]


def test_a_workspace_reads_as_empty_until_its_first_message(clients: Callable[..., Reverie], runtime: Runtime) -> None:
    """Given a workspace nobody has written to, then reading finds nothing, says so, and makes nothing."""
    memory = clients(workspace="fresh")
    assert memory.sessions.list() == []
    assert memory.admin.dead_letters.list() == []
    found = memory.recall("anything")
    assert found.results == []
    assert "fresh" in found.degraded
    assert memory.sessions.forget("s") is False
    assert memory.admin.dead_letters.drop(1) is False
    for read in (memory.sessions.get, memory.sessions.messages, memory.working, memory.sessions.export):
        with pytest.raises(NotFound):
            read("s")
    with pytest.raises(NotFound):
        memory.recall("anything", session="s")
    with pytest.raises(NotFound):
        memory.admin.dead_letters.get(1)
    assert runtime.stores.names() == []


def test_a_deleted_workspace_leaves_nothing(clients: Callable[..., Reverie], runtime: Runtime) -> None:
    """Given a workspace with messages stored and waiting, when it is deleted, then neither is there any more."""
    memory = clients(workspace="gone")
    memory.ingest("s", LISBON)
    drain(runtime, "gone")
    memory.ingest("s", {"role": "user", "content": "Late."})
    assert memory.admin.workspaces.delete() is True
    assert memory.admin.workspaces.delete() is False
    assert runtime.inbox.stats("gone").size == 0
    assert runtime.stores.names() == []
    assert memory.sessions.list() == []


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
def test_a_dead_letter_is_told_shown_replayed_and_dropped(
    clients: Callable[..., Reverie], runtime: Runtime, broker: bool
) -> None:
    """Given a sequence that is taken, when the call waits, then it is told; the letter can be replayed or dropped."""
    memory = clients(broker=broker)
    first = {"role": "user", "content": "First.", "sequence": 1}
    with pipeline_at_work(runtime):
        memory.ingest("s", first, wait="stored")
        receipt = memory.ingest("s", [{"role": "user", "content": "Free."}, {**first, "id": "late"}], wait="stored")
        assert len(receipt.accepted) == 1
        assert [(item.index, "taken by another" in item.error) for item in receipt.rejected] == [(1, True)]
        with pytest.raises(Rejected, match="taken by another"):
            memory.ingest("s", {**first, "id": "later"}, wait="stored")
    assert memory.admin.dead_letters.list() == [], "the callers know"
    memory.ingest("s", {**first, "id": "late"})
    memory.ingest("s", {**first, "id": "later"})
    drain(runtime)
    letters = memory.admin.dead_letters.list()
    assert [letter.item_id for letter in letters] == ["later", "late"]
    assert letters[0].payload is None
    assert '"First."' in (memory.admin.dead_letters.get(letters[0].id).payload or "")
    assert clients("eve").admin.dead_letters.list() == []
    with pytest.raises(NotFound):
        clients("eve").admin.dead_letters.replay(letters[0].id)

    assert memory.admin.dead_letters.replay(letters[0].id, timeout_seconds=0).item_id == "later"
    # The replay sends a notification of its own at once: no sweep is needed.
    assert runtime.monitor.queue_depths()["ingest"] >= 1
    replayed = memory.admin.dead_letters.get
    with pipeline_at_work(runtime):
        until(lambda: replayed(letters[0].id).attempts == 2, "the replay is not tried")
        again = memory.admin.dead_letters.replay(letters[0].id)
    assert (again.id, again.replay, again.attempts) == (letters[0].id, "failed", 3)
    assert [letter.id for letter in memory.admin.dead_letters.list()] == [letter.id for letter in letters]
    assert memory.admin.dead_letters.drop(letters[0].id) is True
    assert [letter.item_id for letter in memory.admin.dead_letters.list()] == ["late"]


def test_a_dead_letter_of_any_kind_is_replayed_or_says_why_not(memory: Reverie, runtime: Runtime) -> None:
    """Given work of each kind that killed its workers, then a replay does it again, or its error says what to do."""
    memory.ingest("s", LISBON)
    drain(runtime)
    schedule = memory.schedules.add("water the ferns", cron="0 9 * * *", executor=LlmExecutor())
    embed_goals(runtime.store(contract.DEFAULT_WORKSPACE), HashEmbedder())
    with runtime.store(contract.DEFAULT_WORKSPACE).reading() as tx:
        ref_code = tx.for_agent("ana").sessions.get("s").ref_code
    kinds = {**dict.fromkeys(STAGES, "1"), "extract": f"{ref_code} 0", "goals": schedule.id, "recalls": "r"}
    letters = [letter_of_crash("ana", stage, item, 3, "worked") for stage, item in kinds.items()]
    with runtime.store(contract.DEFAULT_WORKSPACE).writing() as tx:
        tx.dead_letters.add(letters, now=1)
    for letter in memory.admin.dead_letters.list():
        if letter.stage == "recalls":
            with pytest.raises(Conflict, match="the words of the recall are not kept: drop it"):
                memory.admin.dead_letters.replay(letter.id)
        else:
            done = "queued" if letter.stage in ("extract", "goals") else "succeeded"
            assert memory.admin.dead_letters.replay(letter.id, timeout_seconds=0).replay == done
    assert embed_goals(runtime.store(contract.DEFAULT_WORKSPACE), HashEmbedder()) == {"goals": 1}
    assert {letter.stage for letter in memory.admin.dead_letters.list()} == {"extract", "recalls"}


@pytest.mark.parametrize("broker", [False, True], ids=["http", "broker"])
@pytest.mark.parametrize("wait", ["queued", "stored", "searchable"])
def test_ids_are_unique_within_their_session(
    clients: Callable[..., Reverie], runtime: Runtime, broker: bool, wait: str
) -> None:
    """Given chats that number their messages from 1, then each is stored in its own; what has the id of another
    message of its session is a conflict that the caller is told, or else a dead letter."""
    memory = clients(broker=broker)
    with pipeline_at_work(runtime):
        for session, name in (("ann", "Lisbon"), ("bo", "Porto")):
            memory.ingest(
                session, {"role": "user", "content": f"I live in {name}.", "id": "1"}, user=session, wait=wait
            )
        other = {"role": "user", "content": "I live in Faro.", "id": "1"}
        if wait == "queued":
            memory.ingest("ann", other, user="ann")
        else:
            with pytest.raises(Conflict, match=r"message '1' of session 'ann' is stored already and says something"):
                memory.ingest("ann", other, user="ann", wait=wait)
            again = memory.ingest(
                "bo", {"role": "user", "content": "I live in Porto.", "id": "1"}, user="bo", wait=wait
            )
            assert again.accepted == ["1"]
        twice = memory.ingest("cy", [{**other, "role": "assistant"}, other, other], user="cy", wait=wait)
        assert (twice.accepted, [one.index for one in twice.rejected]) == (["1"], [1, 2])
        assert "an earlier message of the call has the id '1'" in twice.rejected[0].error
    drain(runtime)
    assert [one.content for one in memory.sessions.messages("ann", user="ann")] == ["I live in Lisbon."]
    assert [one.content for one in memory.sessions.messages("bo", user="bo")] == ["I live in Porto."]
    assert [letter.error_type for letter in memory.admin.dead_letters.list()] == (
        ["Conflict"] if wait == "queued" else []
    )


def test_the_trace_of_a_call_reaches_the_store_and_comes_back(memory: Reverie, url: str, runtime: Runtime) -> None:
    """Given a trace id, then the receipt, the answer's header and the queued task carry it."""
    receipt = memory.ingest("s", LISBON, trace="trace ä/1")
    assert receipt.trace == "trace ä/1"
    task = runtime.broker.lindex(runtime.settings.broker_prefix + "ingest", 0)
    assert b"trace \\u00e4/1" in task
    answered = httpx2.get(f"{url}/v1/sessions", headers={"X-Reverie-Agent": "ana", "X-Reverie-Trace": "t-1"})
    assert answered.headers["X-Reverie-Trace"] == "t-1"
    assert httpx2.get(f"{url}/healthz").headers["X-Reverie-Trace"]


def test_recall_takes_every_argument(memory: Reverie, runtime: Runtime) -> None:
    """Given arguments of recall, then they reach it: a vector of one's own, modes, fusion, explanation."""
    memory.ingest("s", [{"role": "user", "content": "Tea at five.", "tags": ["a", "b"]}, LISBON])
    drain(runtime)
    assert runtime.embedder is not None
    vector = runtime.embedder.embed_query("Tea at five.")
    found = memory.recall("", query_embedding=vector, mode="vector", limit=1, explain=True)
    assert found.results[0].text == "Tea at five."
    assert found.results[0].explanation is not None
    assert found.results[0].explanation.vector is not None
    assert len(memory.recall("tea Lisbon", mode="keyword", session="s", fusion="rrf")) == 2
    assert len(memory.recall("tea Lisbon", tags=["B ", "a"], vector_weight=0.5, fts_weight=0.5)) == 1
    assert len(memory.recall("")) == 0


def test_async_client_has_the_same_calls(url: str, runtime: Runtime) -> None:
    """Given the client for asyncio, then calls run side by side and errors are the same."""

    async def talk() -> None:
        async with AsyncReverie("ana", url=url) as memory:
            await asyncio.gather(*(memory.ingest(f"s{n}", LISBON) for n in range(20)))
            await asyncio.to_thread(drain, runtime)
            assert len(await memory.sessions.list()) == 20
            (found,) = await memory.recall("Lisbon", limit=20)
            assert 1 + found.duplicates == 20  # the same sentence in twenty sessions is one result
            assert (await memory.sessions.get("s3")).messages == 1
            assert len(await memory.sessions.messages("s3")) == len(await memory.working("s3")) == 1
            assert (await memory.status()).broker == "up"
            with pytest.raises(NotFound):
                await memory.sessions.export("none")
            assert await memory.sessions.forget("s3")
            assert await memory.admin.dead_letters.list() == []
            assert await memory.admin.workspaces.delete()

    asyncio.run(talk())
    public = {name for name in dir(Reverie) if not name.startswith("_")}
    assert public == {name for name in dir(AsyncReverie) if not name.startswith("_")}


def test_a_call_beyond_those_that_may_wait_is_refused(
    clients: Callable[..., Reverie], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given as many waiting calls as there may be, when one more waits, then nothing of it is accepted."""
    accept_without_limit(monkeypatch)
    memory = clients()
    monkeypatch.setattr("server.responses.MAX_WAITING", 1)
    for _ in range(2):  # the place of one that has ended is free again
        with pytest.raises(WaitTimeout):
            memory.ingest("s", LISBON, wait="stored", timeout_seconds=0.1)
    monkeypatch.setattr("server.responses.MAX_WAITING", 0)
    with pytest.raises(Unavailable, match="nothing was accepted") as caught:
        memory.ingest("s", {**LISBON, "id": "m"}, wait="stored")
    assert caught.value.unconfirmed == ("m",)
    assert memory.ingest("s", LISBON).state == "queued"


def test_a_broker_that_is_away_is_gone_round(make_runtime: Callable[..., Runtime], url: str, runtime: Runtime) -> None:
    """Given a client whose broker is not there but whose server is, then the messages go over HTTP."""
    with Reverie("ana", broker="redis://127.0.0.1:1/0", url=url) as memory:
        receipt = memory.ingest("s", {**LISBON, "id": "m-1"})
        assert receipt.accepted == ["m-1"]
        drain(runtime)
        assert [message.id for message in memory.working("s")] == ["m-1"]


def test_a_server_without_a_broker_says_so(make_runtime: Callable[..., Runtime]) -> None:
    """Given a broker that is away, then ingest is unavailable with its ids, health fails, and reading goes on."""
    runtime = make_runtime(broker="redis://127.0.0.1:1/0")
    with running_server(runtime) as url, Reverie("ana", url=url) as memory:
        with pytest.raises(Unavailable, match="broker") as caught:
            memory.ingest("s", {**LISBON, "id": "m-1"})
        assert caught.value.unconfirmed == ("m-1",)
        assert httpx2.get(f"{url}/healthz").status_code == 503
        assert memory.sessions.list() == []
        status = memory.status()
        assert status.broker == "down"
        assert "does not answer" in status.broker_error
        assert "reverie_broker_up 0.0" in httpx2.get(f"{url}/metrics").text


def test_a_batch_larger_than_a_request_is_sent_in_parts(memory: Reverie, runtime: Runtime) -> None:
    """Given 12 MB of messages with faults among them, then places in the call are kept over several requests."""
    messages: list[object] = [{"role": "user", "content": f"{n} " + "x" * 1_000_000} for n in range(12)]
    messages[7] = {"role": "nobody", "content": "x"}
    receipt = memory.ingest("s", messages)
    assert len(receipt.accepted) == 11
    assert [(item.index, item.field) for item in receipt.rejected] == [(7, "role")]
    store_inbox(runtime)
    assert [message.id for message in memory.sessions.messages("s")] == receipt.accepted


def test_an_empty_list_is_an_empty_receipt(clients: Callable[..., Reverie]) -> None:
    """Given nothing to hand over, then nothing is accepted and nothing goes wrong, by either way."""
    assert clients().ingest("s", []).accepted == []
    assert clients(broker=True).ingest("s", []).accepted == []


def test_the_raw_interface_answers_as_documented(url: str, runtime: Runtime) -> None:
    """Given plain HTTP, then 202 for queued, 200 for stored, and a document that describes it."""
    headers = {"X-Reverie-Agent": "ana"}
    body = {"session": "s", "messages": [LISBON]}
    assert httpx2.post(f"{url}/v1/messages", json=body, headers=headers).status_code == 202
    with pipeline_at_work(runtime):
        stored = httpx2.post(f"{url}/v1/messages", json={**body, "wait": "stored"}, headers=headers)
    assert stored.status_code == 200
    assert stored.json()["state"] == "stored"
    document = httpx2.get(f"{url}/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert schemas["IngestMessages"]["properties"]["messages"]["items"] == {"$ref": "#/components/schemas/MessageInput"}
    assert {"array", "string"} <= {one["type"] for one in schemas["MessageInput"]["properties"]["content"]["anyOf"]}
    assert set(document["paths"]) >= {"/v1/messages", "/v1/recall", "/v1/sessions/{session}/working"}
    assert httpx2.get(f"{url}/docs").status_code == 200
    assert httpx2.get(f"{url}/healthz").text == "ok\n"


def test_metrics_name_no_agent_session_or_workspace(
    clients: Callable[..., Reverie], url: str, runtime: Runtime
) -> None:
    """Given work of a secret workspace, then metrics count it and do not name it."""
    clients("secretagent", workspace="secretplace").ingest("secretsession", LISBON)
    drain(runtime, "secretplace")
    clients("secretagent", workspace="secretplace").sessions.get("secretsession")
    clients("secretagent", workspace="secretplace").facts.set("secrets", "secret", "secret")
    text = httpx2.get(f"{url}/metrics").text
    assert 'method="PUT",route="/v1/facts/{category}/{key}"' in text
    assert "reverie_memories 1.0" in text
    assert 'reverie_language_model_today{what="calls"} 0.0' in text
    assert 'route="/v1/sessions/{session}"' in text
    assert 'reverie_lag_seconds{percentile="50"}' in text
    assert 'reverie_stage_waiting{stage="embed"} 0.0' in text
    assert "secret" not in text


def test_with_a_token_every_request_needs_it(runtime: Runtime) -> None:
    """Given a token, then it is needed below /v1, compared whole, and a foreign host name is fine."""
    with running_server(runtime, token="s3cret") as url:
        with Reverie("ana", url=url, token="s3cret") as memory:
            assert memory.sessions.list() == []
        for token in (None, "s3cre", "s3cret2", ""):
            with Reverie("ana", url=url, token=token) as memory, pytest.raises(Rejected, match="token") as caught:
                memory.sessions.list()
            assert caught.value.field == "token"
        answered = httpx2.get(f"{url}/v1/sessions", headers={"X-Reverie-Agent": "ana"})
        assert (answered.status_code, answered.json()["type"]) == (401, "urn:reverie:problem:unauthorised")
        assert httpx2.get(f"{url}/healthz", headers={"Host": "memory.example"}).status_code == 200


def test_without_a_token_only_loopback_names_are_served(url: str) -> None:
    """Given a web page whose name was made to resolve to this machine, then it reads nothing."""
    for host in ("evil.example", "evil.example:7437", "127.0.0.1.evil.example", "", "[::2]:80"):
        answered = httpx2.get(f"{url}/v1/status", headers={"Host": host})
        assert answered.status_code == 422, host
        assert answered.json()["field"] == "host"
    for host in ("localhost", "LOCALHOST:7437", "127.0.0.1", "127.0.0.2:80", "[::1]:7437", "[::1]"):
        assert httpx2.get(f"{url}/v1/status", headers={"Host": host}).status_code == 200, host


def test_payloads_are_the_same_by_either_way(clients: Callable[..., Reverie], runtime: Runtime) -> None:
    """Given one message, when it goes each way, then the inbox holds the same payload but for its id and time."""
    taken = []
    for broker in (True, False):
        message = {**LISBON, "id": "m", "created_at": "2026-05-01T09:30:00.123456Z", "tags": ["x"]}
        clients(broker=broker).ingest("s", message, user="u", trace="t")
        (item,) = runtime.inbox.take("default", limit=10)
        runtime.inbox.settle("default", [item])
        taken.append(item.payload)
    assert taken[0] == taken[1]
    assert b'"type":"message"' in taken[0]
    assert MessagePayload.__struct_config__.tag == "message"


def test_a_full_inbox_is_told_over_http_as_by_the_broker(
    clients: Callable[..., Reverie], url: str, runtime: Runtime
) -> None:
    """Given an inbox at its limit, then either way the call is refused at once, with its ids, and 429 says when."""
    runtime.inbox.set_limits(InboxLimits(workspace_items=1))
    clients(broker=True).ingest("s", LISBON)
    for broker in (True, False):
        with pytest.raises(InboxFull, match="inbox of workspace default is full") as raised:
            clients(broker=broker).ingest("s", {**LISBON, "id": "m2"})
        assert raised.value.unconfirmed == ("m2",)
    body = {"session": "s", "messages": [LISBON]}
    answered = httpx2.post(f"{url}/v1/messages", json=body, headers={"X-Reverie-Agent": "ana"})
    assert (answered.status_code, answered.headers["Retry-After"]) == (429, "10")
    assert answered.json()["type"] == "urn:reverie:problem:inbox-full"
    assert (runtime.inbox.totals().items, runtime.inbox.stats("default").size) == (1, 1)


def test_the_page_of_the_interface_needs_no_other_host(url: str) -> None:
    """Given the page at /docs, then it names no other host, and each file that it loads is served here."""
    page = httpx2.get(f"{url}/docs")
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)

    assert page.status_code == 200
    assert "//" not in page.text
    assert {file.rpartition("/")[2] for file in files} >= {"swagger-ui-bundle.js", "swagger-ui.css"}
    for file in [*files, "/openapi.json"]:
        answer = httpx2.get(url + file)
        assert answer.status_code == 200
        assert len(answer.content) > 1_000
    assert httpx2.get(f"{url}/redoc").status_code == 404
