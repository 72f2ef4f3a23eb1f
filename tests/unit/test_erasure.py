"""Erasure removes something with every trace, whenever it is killed, and leaves what belongs to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from adapters.kept_secrets import installation_key
from adapters.webhooks import secrets_in
from memory.recall.events import record_recalls
from memory.trust import erasing
from memory.trust.erasing import STEPS, ErasureJob, continue_erasures
from memory.trust.erasure_rows import Scope
from memory.trust.erasures import plan_erasure, read_erasure, request_erasure
from reverie import Rejected, Reverie
from reverie.problems import Forbidden, Unauthorised
from reverie.trust.erasure_types import Erasure
from support.agents import until
from support.byte_search import places_of
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

# What only kate has said, and what she and another user have said.
SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"
SHARED = "The office closes at six o'clock on Fridays in summer"
KATE = "kate-canary-5f2d91c07a"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime on a real broker."""
    return make_runtime()


@pytest.fixture
def ana(runtime: Runtime) -> Iterator[Reverie]:
    """A client of ana's."""
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        yield client


def fill(runtime: Runtime, ana: Reverie) -> None:
    """Store what kate and lif say, remember, plan and recall."""
    ana.ingest("kates-own-session-7", [{"role": "user", "content": text} for text in (SECRET, SHARED)], user=KATE)
    ana.ingest("lifs", [{"role": "user", "content": text} for text in (SHARED, "Lif likes plums")], user="lif")
    drain(runtime)
    ana.remember(f"remember: {SECRET}", owner_user_id=KATE)
    ana.remember("Lif grows plums", owner_user_id="lif")
    ana.set_fact("lantern", "place", SECRET)
    ana.forget_fact("lantern", "place")
    ana.add_note("Kate's note: " + SECRET, user=KATE)
    ana.put_item(["lanterns"], "heron", {"text": SECRET}, user=KATE)
    ana.put_item(["memories", KATE], "heron", {"text": SECRET})  # as users of LangGraph name theirs
    ana.put_item(["memories", "lif"], "plum", {"text": SHARED})
    ana.add_schedule(f"ask about: {SECRET}", cron="0 9 * * *", user=KATE)
    drain(runtime)
    recall(ana)
    until(lambda: recorded(runtime, ana), "the recalls are not recorded")
    recall(ana)  # these stay in the broker
    until(lambda: flushed(runtime), "the recalls are not in the broker")


def recall(ana: Reverie) -> None:
    """Recall as kate, and as another user in words of hers."""
    assert ana.recall(SECRET, user=KATE)
    assert ana.recall("plums " + SECRET[:40], user="lif")


def recorded(runtime: Runtime, ana: Reverie) -> bool:
    """Record what the server has noted of recalls; return whether the database has some of both users."""
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    return all(ana.recall_events(user=user) for user in (KATE, "lif"))


def flushed(runtime: Runtime) -> bool:
    """Send what the server has noted of recalls; return whether the broker has it."""
    runtime.recall_buffer.flush()
    return "default" in runtime.recall_log.workspaces()


def erase(runtime: Runtime, scope: Scope) -> Erasure:
    """Erase and return the erasure with its receipt."""
    erasure = request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    continue_erasures(runtime.erasure_services)
    return read_erasure(runtime.stores, erasure.id)


@pytest.mark.sqlite("searches the bytes of its files")
def test_a_user_is_erased_and_others_keep_what_they_said(runtime: Runtime, ana: Reverie) -> None:
    """Given two users who have said the same, when one is erased, then only the other one's words are left."""
    fill(runtime, ana)
    data = runtime.settings.data
    assert places_of(data, SECRET), "the search of this test must be able to find something"
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert done.receipt.searched.explained > 0, "what lif has said, too, is no leftover"
    assert places_of(data, SECRET, KATE, "kates-own-session-7") == set()
    for user, texts, memories, sessions in [
        (None, [], [], []),
        (KATE, [], [], []),
        ("lif", [SHARED], ["Lif grows plums"], ["lifs"]),
    ]:
        found = ana.recall("when does the office close", mode="keyword", user=user)
        assert [result.text for result in found] == texts, user
        assert [memory.content for memory in ana.memories(user=user)] == memories, user
        assert [session.id for session in ana.sessions(user=user)] == sessions, user


def test_a_dry_run_counts_what_is_removed(runtime: Runtime, ana: Reverie) -> None:
    """Given a user's data, when an erasure is planned and made, then the plan has the numbers of the receipt."""
    fill(runtime, ana)
    scope = Scope("user", KATE, None, None)
    plan = plan_erasure(runtime.stores, scope, requested_by="tester", now=runtime.now())
    assert plan.counts["default"]["messages"] == 2
    done = erase(runtime, scope)
    assert done.receipt is not None
    assert {place: counts for place, counts in done.receipt.removed.items() if place in plan.counts} == plan.counts


@pytest.mark.parametrize("step", STEPS[:-1])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_job_killed_at_any_step_goes_on(
    runtime: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """Given a job that dies before or after the work of a step, when it is continued, then everything is erased."""
    fill(runtime, ana)

    class Killed(BaseException):
        pass

    work = erasing._RUN[step]

    def die(job: ErasureJob) -> str | None:
        if after:
            work(job)
        raise Killed

    monkeypatch.setitem(erasing._RUN, step, die)
    with pytest.raises(Killed):
        erase(runtime, Scope("user", KATE, None, None))
    monkeypatch.setitem(erasing._RUN, step, work)
    continue_erasures(runtime.erasure_services)
    (done,) = ana.erasures()
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert places_of(runtime.settings.data, SECRET, KATE) == set()


def test_what_another_user_says_meanwhile_in_the_same_words_is_not_lost(
    runtime: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a message of another user that is accepted while the broker is cleared, then it is stored later."""
    fill(runtime, ana)
    clear = erasing._RUN["broker"]

    def say_and_clear(job: ErasureJob) -> str | None:
        ana.ingest("lifs", {"role": "user", "content": SECRET}, user="lif")
        return clear(job)

    monkeypatch.setitem(erasing._RUN, "broker", say_and_clear)
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}, "what is on its way from another user is no leftover"
    drain(runtime)
    assert SECRET in [message.content for message in ana.messages("lifs")]


def test_an_erasure_waits_until_what_was_accepted_before_it_is_stored(runtime: Runtime, ana: Reverie) -> None:
    """Given an older message of another user in the inbox, then the erasure says what it waits for, and goes on."""
    fill(runtime, ana)
    ana.ingest("lifs", {"role": "user", "content": "still on its way"}, user="lif")
    waiting = erase(runtime, Scope("user", KATE, None, None))
    assert (waiting.state, waiting.step) == ("running", "release")
    assert "not stored yet, in default" in waiting.error
    drain(runtime)
    assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}


def test_what_was_accepted_before_does_not_reappear_and_what_comes_later_is_kept(
    runtime: Runtime, ana: Reverie
) -> None:
    """Given messages in the inbox, when their user is erased, then they are never stored, and later ones are."""
    fill(runtime, ana)
    ana.ingest("kates-next", {"role": "user", "content": "on its way: " + SECRET}, user=KATE)
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.removed["inbox"] == {"items": 1}
    drain(runtime)
    ana.ingest("kates-next", {"role": "user", "content": "I am back"}, user=KATE)
    drain(runtime)
    assert [message.content for message in ana.messages("kates-next")] == ["I am back"]
    assert places_of(runtime.settings.data, SECRET) == set()


def test_a_message_takes_along_what_came_from_it_and_leaves_its_session(runtime: Runtime, ana: Reverie) -> None:
    """Given a session, when one message is erased, then the others stay and are found."""
    question = "Where does the heron lantern of Cacilhas burn on Thursdays?"
    messages = [{"role": "user", "content": question, "id": "the-question-of-kate-1"}]
    ana.ingest("talk", [*messages, {"role": "assistant", "content": "By the old pier"}], user=KATE)
    drain(runtime)
    done = erase(runtime, Scope("message", "the-question-of-kate-1", "ana", "default"))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    drain(runtime)
    assert places_of(runtime.settings.data, question, "the-question-of-kate-1") == set()
    assert [result.text for result in ana.recall("old pier", mode="keyword", user=KATE)] == ["By the old pier"]


def test_what_to_erase_must_be_named(ana: Reverie) -> None:
    """Given a call that names nothing, or two things, then it is refused, and nothing is erased."""
    with pytest.raises(Rejected, match="name what to erase"):
        ana.erase()
    with pytest.raises(Rejected, match="exclude each other"):
        ana.erase(user=KATE, session="s")
    assert ana.erasures() == []


def test_of_a_group_only_what_the_user_said_is_erased(runtime: Runtime, ana: Reverie) -> None:
    """Given a group of three users, when the one who began it is erased, then the others still see the group and what
    they said; when all are erased, then nothing of it is left."""
    for user, text in ((KATE, SECRET), ("lif", "Lif sings alto in the choir"), ("mia", "Mia sings bass in the choir")):
        ana.ingest("choir", {"role": "user", "content": text}, user=user)
    ana.ingest_file("doc://lamp", f"A document: {SECRET}", user=KATE)
    drain(runtime)
    recall(ana)
    until(lambda: flushed(runtime), "the recalls are not in the broker")
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert (done.counts["default"]["messages"], done.counts["default"]["files"]) == (1, 1)
    assert places_of(runtime.settings.data, SECRET, KATE) == set()
    drain(runtime)
    for user in ("lif", "mia"):
        contents = [message.content for message in ana.messages("choir", user=user)]
        assert contents == ["Lif sings alto in the choir", "Mia sings bass in the choir"]
        assert len(ana.recall("choir", mode="keyword", user=user)) == 2
    assert ana.sessions(user=KATE) == []
    for user in ("lif", "mia"):
        erase(runtime, Scope("user", user, None, None))
    store = runtime.stores.workspace("default")
    with store.reading() as tx:
        assert tx.kept_out.agents() == []


def _refused(call: Callable[[], object], error: type[Exception]) -> bool:
    try:
        call()
    except error:
        return True
    return False


def test_the_tokens_of_an_erased_user_end_and_name_nobody(runtime: Runtime, ana: Reverie) -> None:
    """Given tokens of a user, one of which asks for the erasure, when it is done, then they are revoked and name the
    user by a hash, the one that asked reads the receipt, and a token of another user still works."""
    fill(runtime, ana)
    mine, other, lifs = (
        ana.create_token(workspace="default", agents=["ana"], user=user, scopes=["read", "write", "forget"], name=name)
        for user, name in ((KATE, KATE), (KATE, "kates-other-token"), ("lif", "lifs"))
    )
    url = ana.connection.config.url
    with Reverie("ana", url=url, token=mine.token) as kate:
        erasure = kate.erase(user=KATE)
        continue_erasures(runtime.erasure_services)
        receipt = kate.erasure(erasure.id).receipt
        assert receipt is not None
        assert (receipt.leftovers, receipt.removed["tokens"]) == ({}, {"revoked": 2})
        assert receipt.requested_by == f"erased-{receipt.target_hash[:16]}"
        until(lambda: _refused(lambda: kate.forget("unknown"), Forbidden), "the token still deletes")
        assert kate.erasure(erasure.id).receipt == receipt
    with Reverie("ana", url=url, token=other.token) as revoked:
        until(lambda: _refused(revoked.memories, Unauthorised), "the token still reads")
    with Reverie("ana", url=url, token=lifs.token) as still:
        assert still.memories()
    listed = msgspec.json.encode(
        runtime.stores.tokens().list(workspace=None, valid_at=None, limit=9, offset=0)
    ).decode()
    assert KATE not in listed
    assert "kates-other-token" not in listed


def test_an_erased_agent_is_not_named_with_its_webhook_secrets(runtime: Runtime, ana: Reverie) -> None:
    """Given an agent whose webhook secret was rotated, when it is erased, then its name is gone, and an agent of that
    name does not get the secret back that was replaced."""
    agent = "ana-canary-90af31"
    with Reverie(agent, url=ana.connection.config.url) as client:
        client.remember("something")
    folder = runtime.settings.data / "workspaces" / "default"
    secrets = secrets_in(folder, installation_key(runtime.settings.data))
    now = datetime.now(UTC)
    first = secrets.secrets(agent, now)
    newest = secrets.rotate(agent, now)[0]
    done = erase(runtime, Scope("agent", "", agent, None))
    assert done.receipt is not None, done.error
    assert done.receipt.removed["webhook secrets"] == {"names": 1}
    assert agent not in (folder / "webhook-secrets.json").read_text()
    later = now + timedelta(days=8)
    assert secrets.secrets(agent, later) == [newest]
    assert secrets.rotate(agent, later)[0] not in [newest, *first]


@pytest.mark.sqlite("searches the bytes of its files")
@pytest.mark.parametrize("kind", ["memory", "fact", "note"])
def test_what_belongs_to_nobody_is_erased_by_its_id(runtime: Runtime, ana: Reverie, kind: str) -> None:
    """Given a memory, a fact with an earlier value, or a note of nobody, when it is erased by its id, then it is gone
    with a receipt that found nothing of it."""
    if kind == "memory":
        erased = ana.remember(SECRET).id
    elif kind == "note":
        erased = ana.add_note(SECRET).note_id
    else:
        ana.set_fact("lantern", "place", SECRET)
        erased = ana.set_fact("lantern", "place", "elsewhere, they say").id
    kept = ana.remember("the office closes at six").id
    drain(runtime)
    assert places_of(runtime.settings.data, SECRET)
    done = erase(runtime, Scope("memory", erased, "ana", "default"))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert done.receipt.removed["default"]["memories"] == (2 if kind == "fact" else 1)
    assert [memory.id for memory in ana.memories()] == [kept]
    assert places_of(runtime.settings.data, SECRET) == set()


def test_indexes_in_memory_drop_what_is_erased_without_a_recall(runtime: Runtime, ana: Reverie) -> None:
    """Given indexes of two agents in memory, when a user of one is erased, then that index is dropped and the other
    one stays."""
    with Reverie("bob", url=ana.connection.config.url) as bob:
        for client, user in ((ana, KATE), (bob, "lif")):
            client.ingest("chat", {"role": "user", "content": SECRET}, user=user)
        drain(runtime)
        assert ana.recall(SECRET, user=KATE)
        assert bob.recall(SECRET, user="lif")
    both = runtime.indexes.nbytes
    erase(runtime, Scope("user", KATE, None, None))
    until(lambda: 0 < runtime.indexes.nbytes < both, "the index is still in memory")
