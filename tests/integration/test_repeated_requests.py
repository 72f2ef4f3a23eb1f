"""Requests whose answer was lost: the client sends them again, and they are carried out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from adapters.broker.erasing import BrokerErasure
from reverie import contract
from reverie.calls import is_repeatable, route_of, scope_of
from reverie.client import Reverie
from reverie.errors import Conflict
from reverie.memories.calls import ConfirmMemory, Remember
from reverie.pipeline.broker import connect
from reverie.scheduling.types import WebhookExecutor
from server.app import endpoints
from server.caller import Caller
from server.responses import Repeats
from storage.curation import EntryDraft
from storage.memories.records import NewMemory
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

HOOK = WebhookExecutor(url="https://8.8.8.8/hook")


@pytest.fixture(autouse=True)
def _broker_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is slow, as on a busy machine, is not away."""
    monkeypatch.setattr("server.responses._BROKER_SECONDS", 60.0)


@pytest.fixture
def here(runtime: Runtime) -> Runtime:
    """An agent with two memories, one of which a job has removed."""
    with runtime.store("default").writing() as tx:
        rows = tx.for_agent("ana")
        for name in ("walnuts", "figs"):
            rows.memories.add(NewMemory(id=name, content=f"ana keeps {name}", created_at=1), now=runtime.now())
        draft = EntryDraft("it faded away")
        with tx.curation.entry(draft, job=contract.PRUNE_DECAYED, agent="ana", action="prune", at=runtime.now()):
            rows.memories.delete([rows.memories.get("walnuts").row_id])
    return runtime


@contextmanager
def losing_answers(client: Reverie, after: Callable[[], None] = lambda: None) -> Iterator[list[httpx2.Response]]:
    """Have the first answer to each request be lost on its way to the client, as by a proxy that ends."""
    transport: Any = client.connection._http
    real, lost = transport._connected(), list[httpx2.Response]()

    class Losing:
        def request(self, *arguments: Any, **keywords: Any) -> httpx2.Response:
            answer = real.request(*arguments, **keywords)
            if len(lost) == 0:
                lost.append(answer)
                after()
                raise httpx2.RemoteProtocolError("the server disconnected without sending a response")
            return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_connected", Losing)
        yield lost
    assert len(lost) == 1


def test_an_undo_whose_answer_was_lost_is_no_conflict(ana: Reverie) -> None:
    """Given an undo that was carried out, when the client repeats it, then it gets the answer of the first."""
    (entry,) = ana.curation.list()
    with losing_answers(ana) as lost:
        undone = ana.curation.undo(entry.id)
    assert undone.undone_at is not None
    assert lost[0].status_code == 200
    with pytest.raises(Conflict, match="already been undone"):
        ana.curation.undo(entry.id)  # another request


def test_an_undo_whose_server_was_killed_before_it_answered_is_no_conflict(
    ana: Reverie, here: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an undo that was committed, and no answer that anybody kept, then its repetition is answered as done."""
    with here.store("default").writing() as tx:
        rows = tx.for_agent("ana")
        draft = EntryDraft("it faded away")
        with tx.curation.entry(draft, job=contract.PRUNE_DECAYED, agent="ana", action="prune", at=here.now()):
            rows.memories.delete([rows.memories.get("figs").row_id])
    monkeypatch.setattr(Repeats, "_keep", lambda *_, **__: None)
    entries = {entry.memories[0]: entry.id for entry in ana.curation.list()}
    with losing_answers(ana):
        assert ana.curation.undo(entries["figs"]).undone_at is not None
    with losing_answers(ana):
        undone = ana.curation.undo_all(everything=True)
    assert (undone.undone, undone.failed) == ([entries["walnuts"]], {})
    assert {one.id for one in ana.memories.list()} == {"figs", "walnuts"}
    with pytest.raises(Conflict, match="already been undone"):
        ana.curation.undo(entries["figs"])


def test_what_was_written_once_is_there_once(ana: Reverie) -> None:
    """Given a memory, a reminder and a schedule whose answers were lost, then each is there once."""
    with losing_answers(ana):
        memory = ana.remember("ana likes plums")
    assert [one.id for one in ana.memories.list() if "plums" in one.content] == [memory.id]
    with losing_answers(ana):
        reminder = ana.reminders.add("s", "kate", "the oven is hot", in_=timedelta(hours=1))
    assert [one.id for one in ana.reminders.list().reminders] == [reminder.id]
    with losing_answers(ana):
        schedule = ana.schedules.add("say hello", every=3600, executor=HOOK)
    assert [one.id for one in ana.schedules.list().schedules] == [schedule.id]


def test_what_was_deleted_is_said_to_have_been(ana: Reverie) -> None:
    """Given a deletion whose answer was lost, when it is repeated, then it does not say that there was nothing."""
    with losing_answers(ana):
        assert ana.forget("figs") is True
    assert ana.forget("figs") is False


def post(url: str, path: str, key: str, body: dict[str, Any]) -> httpx2.Response:
    headers = {"X-Reverie-Agent": "ana", "Idempotency-Key": key}
    return httpx2.post(f"{url}{path}", json=body, headers=headers, trust_env=False)


def test_a_server_that_was_started_again_answers_as_the_one_before(
    here: Runtime, make_runtime: Callable[[], Runtime]
) -> None:
    """Given a server that ended after it carried out a request, then the next one has its answer from the broker."""
    with running_server(here) as url, Reverie("ana", url=url) as client:
        (entry,) = client.curation.list()
        first = post(url, f"/v1/curation/{entry.id}/undo", "k", {})
    (name,) = here.broker.keys(f"{here.settings.broker_prefix}answered:*")
    assert 0 < here.broker.ttl(name) <= 600
    with running_server(make_runtime()) as url:
        again = post(url, f"/v1/curation/{entry.id}/undo", "k", {})
        other = post(url, f"/v1/curation/{entry.id}/undo", "another", {})
    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 409)
    assert again.content == first.content


def test_a_key_is_for_one_call_of_one_caller(url: str) -> None:
    """Given a key that was used, then another call, or that of another agent, is not taken for the first one."""
    first = post(url, "/v1/memories", "k", {"content": "ana likes plums"}).json()
    assert post(url, "/v1/memories", "k", {"content": "ana likes plums"}).json() == first
    assert post(url, "/v1/memories", "k", {"content": "ana likes pears"}).json()["id"] != first["id"]
    headers = {"X-Reverie-Agent": "bob", "Idempotency-Key": "k"}
    bobs = httpx2.post(f"{url}/v1/memories", json={"content": "ana likes plums"}, headers=headers, trust_env=False)
    assert bobs.json()["id"] != first["id"]
    assert post(url, "/v1/memories", "k" * 129, {"content": "x"}).status_code == 422


def test_a_request_repeated_while_the_first_is_carried_out_waits_for_it(url: str, ana: Reverie) -> None:
    """Given the same request eight times at once, then one memory is stored, and all have the same answer."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(url, "/v1/memories", "k", {"content": "plums"}).json()["id"], range(8)))
    assert len(set(answers)) == 1
    assert len([one for one in ana.memories.list() if one.content == "plums"]) == 1


def test_errors_are_not_kept(url: str) -> None:
    """Given a request that failed, when it is repeated, then it is carried out."""
    assert post(url, "/v1/memories/later/approve", "k", {}).status_code == 404
    made = post(url, "/v1/memories", "m", {"content": "plums", "id": "later"})
    assert made.status_code == 200
    assert post(url, "/v1/memories/later/approve", "k", {}).status_code != 404


def test_without_a_broker_requests_are_answered_and_this_server_knows_them(
    here: Runtime, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker that is away, then a repeated request still gets the first answer."""
    monkeypatch.setattr(here, "broker", connect("unix:///nowhere"))
    first = post(url, "/v1/memories", "k", {"content": "plums"}).json()
    assert post(url, "/v1/memories", "k", {"content": "plums"}).json() == first


@pytest.mark.parametrize("at_the_other", [False, True], ids=["the same server", "another server"])
def test_what_is_forgotten_is_in_no_kept_answer(
    here: Runtime, make_runtime: Callable[[], Runtime], *, at_the_other: bool
) -> None:
    """Given an answer that quotes a memory, when that is forgotten at any server, then no server answers with it.

    Nor is the request carried out again, which would store a fact once more.
    """
    asked = [("/v1/memories/figs/confirm", {}), ("/v1/facts/food/fruit", {"value": "fresh figs"})]
    with running_server(here) as url, running_server(make_runtime()) as other:
        headers = {"X-Reverie-Agent": "ana", "Idempotency-Key": "k"}

        def ask(at: str) -> list[httpx2.Response]:
            calls = zip(("POST", "PUT"), asked, strict=True)
            return [
                httpx2.request(method, at + path, json=body, headers=headers, trust_env=False)
                for method, (path, body) in calls
            ]

        assert ["figs" in answer.text for answer in ask(url)] == [True, True]
        with Reverie("ana", url=other if at_the_other else url) as client:
            assert client.forget("figs")
            assert client.facts.forget("food", "fruit")
            for answer in [*ask(url), *ask(other)]:
                assert (answer.status_code, "fresh" in answer.text, "keeps" in answer.text) == (409, False, False)
            assert client.facts.list() == []
    kept = [here.broker.get(key) or b"" for key in here.broker.keys(f"{here.settings.broker_prefix}answered:*")]
    assert not any(b"figs" in value for value in kept)


def test_an_answer_made_while_something_is_forgotten_is_not_kept(here: Runtime) -> None:
    """Given a request that another server carries out meanwhile, then its answer goes to who waits for it alone."""
    repeats, other = (Repeats(lambda: here.broker, prefix=here.settings.broker_prefix) for _ in range(2))
    caller, key = Caller(agent="ana", workspace="default", trace=""), "default:somebody:k"

    def make() -> bytes:
        other.forget(caller)
        return b"figs"

    assert repeats.answer(key, ConfirmMemory, make) == b"figs"
    with pytest.raises(Conflict, match="no longer kept"):
        repeats.answer(key, ConfirmMemory, make)
    of_another = "elsewhere:somebody:k"
    assert repeats.answer(of_another, ConfirmMemory, lambda: b"dates") == b"dates"
    other.forget(caller)
    assert repeats.answer(of_another, ConfirmMemory, lambda: b"") == b"dates"
    kept = here.broker.keys(f"{here.settings.broker_prefix}answered:*")
    assert not any(b"figs" in (here.broker.get(name) or b"") for name in kept)


def test_what_is_forgotten_without_a_broker_is_forgotten_when_it_is_back(here: Runtime) -> None:
    brokers = [here.broker]
    repeats, key = Repeats(lambda: brokers[-1], prefix=here.settings.broker_prefix), "default:somebody:k"
    assert repeats.answer(key, ConfirmMemory, lambda: b"figs") == b"figs"
    brokers.append(connect("unix:///nowhere"))
    repeats.forget(Caller(agent="ana", workspace="default", trace=""))
    brokers.pop()
    with pytest.raises(Conflict):
        repeats.answer(key, ConfirmMemory, lambda: b"figs")


def test_an_erasure_leaves_no_request_to_be_carried_out_again(here: Runtime) -> None:
    """Given an answer that quotes what is erased, then its request is neither answered nor carried out again."""
    prefix = here.settings.broker_prefix
    repeats, key = Repeats(lambda: here.broker, prefix=prefix), "default:somebody:k"
    assert repeats.answer(key, ConfirmMemory, lambda: b"figs") == b"figs"
    erasure = BrokerErasure(here.broker, here.inbox, prefix=prefix, embedded=False)
    assert erasure.remove(lambda _: False, quotes=lambda value: b"figs" in value) == {"string": 1}
    with pytest.raises(Conflict):
        repeats.answer(key, ConfirmMemory, lambda: b"figs")
    assert 0 < here.broker.ttl(f"{prefix}answered:{key}") <= 600


def test_a_removed_message_of_any_size_is_removed_once(here: Runtime, url: str, ana: Reverie) -> None:
    """Given a removed message that is longer than most answers, then its request removes no second one."""
    for content in ("first", "plum " * 10_000):
        ana.ingest("s", {"role": "user", "content": content})
    drain(here)
    path = "/v1/sessions/s/newest"
    headers = {"X-Reverie-Agent": "ana", "Idempotency-Key": "k"}
    answers = [httpx2.delete(url + path, headers=headers, trust_env=False) for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert len(answers[0].content) > 50_000
    assert [one.content for one in ana.sessions.messages("s")] == ["first"]


def test_no_secret_is_kept_in_the_broker(here: Runtime, url: str) -> None:
    """Given a token that was made, then its repetition has the same text, and the broker does not."""
    first = post(url, "/v1/tokens", "k", {"name": "t", "scopes": ["read"]})
    assert first.status_code == 200, first.text
    assert post(url, "/v1/tokens", "k", {"name": "t", "scopes": ["read"]}).json() == first.json()
    assert here.broker.keys(f"{here.settings.broker_prefix}answered:*") == []


def test_answers_kept_in_the_broker_go_with_their_workspace(here: Runtime, url: str, ana: Reverie) -> None:
    """Given an answer kept for a repetition, when the workspace is deleted, then the broker has it no more."""
    assert post(url, "/v1/memories", "k", {"content": "plums"}).status_code == 200
    kept = f"{here.settings.broker_prefix}answered:*"
    assert len(here.broker.keys(kept)) == 1
    assert ana.admin.workspaces.delete()
    assert not any(b"plums" in (here.broker.get(key) or b"") for key in here.broker.keys(kept))


def test_answers_kept_in_the_broker_are_few_and_small(here: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more answers than are kept, and large ones, then the broker has the newest of the small ones."""
    monkeypatch.setattr("server.responses.BROKER_ANSWERS", 3)
    repeats = Repeats(lambda: here.broker, prefix="p:")
    for key, size in {"large": 9_000, "huge": 9 * 1024 * 1024, "a": 9, "b": 9, "c": 9, "d": 9}.items():
        assert len(repeats.answer(key, Remember, lambda size=size: b"x" * size)) == size
    assert sorted(here.broker.keys("p:answered:*")) == [b"p:answered:b", b"p:answered:c", b"p:answered:d"]
    assert here.broker.llen("p:answered") == 3
    assert here.broker.ttl("p:answered") > 0
    again = Repeats(lambda: here.broker, prefix="p:").answer("d", Remember, lambda: b"")
    assert again == b"x" * 9


def test_every_call_that_changes_something_is_repeated_with_a_key_or_by_its_ids() -> None:
    """Given all calls, then those sent without a key only read, store by id, or put items, of which the last counts."""
    changing = [one.kind for one in endpoints() if scope_of(one.kind) != "read" and route_of(one.kind).method != "GET"]
    assert len(changing) > 40
    unkeyed = {kind.__name__ for kind in changing if not is_repeatable(kind)}
    assert unkeyed == {"IngestMessages", "IngestFile", "RecordEvent", "PutItem", "BatchItems", "SweepItems"}
