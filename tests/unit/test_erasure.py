"""Erasure removes something with every trace, whenever it is killed, and leaves what belongs to others."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters.broker.recall_log import RecallNote
from memory.fragments import FragmentSet, HashKey, Matcher, fragments_of
from memory.lifecycle import erasing
from memory.lifecycle.erasing import STEPS, ErasureJob, continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import plan_erasure, read_erasure, request_erasure
from memory.lifecycle.receipts import parts_in_rows
from memory.recall import record_recalls
from memory.trust.webhook_secrets import AgentSecrets
from reverie import Rejected, Reverie
from reverie.clock import new_id, now_micros
from reverie.errors import Conflict, Forbidden, NotFound, StoreUnusable, Unauthorised
from reverie.trust.calls import Erasure
from storage.lifecycle.erasures import ErasureRecord, message_name
from support.agents import until
from support.byte_search import places_of
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

# What only kate has said, and what she and another user have said.
SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"
SHARED = "The office closes at six o'clock on Fridays in summer"
KATE = "kate-canary-5f2d91c07a"


def fill(runtime: Runtime, ana: Reverie) -> None:
    """Store what kate and lif say, remember, plan and recall."""
    ana.ingest("kates-own-session-7", [{"role": "user", "content": text} for text in (SECRET, SHARED)], user=KATE)
    ana.ingest("lifs", [{"role": "user", "content": text} for text in (SHARED, "Lif likes plums")], user="lif")
    drain(runtime)
    ana.remember(f"remember: {SECRET}", owner_user_id=KATE)
    ana.remember("Lif grows plums", owner_user_id="lif")
    ana.facts.set("lantern", "place", SECRET)
    ana.facts.forget("lantern", "place")
    ana.notes.add("Kate's note: " + SECRET, user=KATE)
    ana.items.put(["lanterns"], "heron", {"text": SECRET}, user=KATE)
    ana.items.put(["memories", KATE], "heron", {"text": SECRET})  # as users of LangGraph name theirs
    ana.items.put(["memories", "lif"], "plum", {"text": SHARED})
    ana.schedules.add(f"ask about: {SECRET}", cron="0 9 * * *", user=KATE)
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
    return all(ana.memories.recall_events(user=user) for user in (KATE, "lif"))


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
        assert [memory.content for memory in ana.memories.list(user=user)] == memories, user
        assert [session.id for session in ana.sessions.list(user=user)] == sessions, user


@pytest.mark.parametrize("limits", [(None, None), ("ana", None), (None, "default")], ids=str)
def test_what_an_erased_user_asked_is_not_recorded_after_the_receipt(
    runtime: Runtime, ana: Reverie, limits: tuple[str | None, str | None]
) -> None:
    """Given a server that hands over recalls late, then those from before an erasure of their user are dropped."""
    fill(runtime, ana)
    (chunk, *_), before = chunks_of(runtime), runtime.now()
    assert erase(runtime, Scope("user", KATE, *limits)).state == "done"
    notes = [
        RecallNote(agent="ana", recall=new_id(), query=f"asked by {user}", at=at, hits=[(chunk, 1.0)], user=user)
        for user, at in ((KATE, before), ("lif", before), (KATE, runtime.now()))
    ]
    runtime.recall_log.append("default", [msgspec.json.encode(note) for note in notes])
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    with runtime.store("default").reading() as tx:
        found = tx.connection.exec_driver_sql(
            "SELECT recall FROM recall_events WHERE query LIKE 'asked by %'"
        ).scalars()
        assert sorted(found) == sorted(note.recall for note in notes[1:])


def chunks_of(runtime: Runtime) -> list[int]:
    """Return the chunks of what lif has said."""
    with runtime.store("default").reading() as tx:
        return list(tx.connection.exec_driver_sql("SELECT id FROM chunks WHERE text = 'Lif likes plums'").scalars())


def test_a_dry_run_counts_what_is_removed(runtime: Runtime, ana: Reverie) -> None:
    """Given a user's data, when an erasure is planned and made, then the plan has the numbers of the receipt."""
    fill(runtime, ana)
    scope = Scope("user", KATE, None, None)
    plan = plan_erasure(runtime.stores, scope, requested_by="tester", now=runtime.now())
    assert plan.counts["default"]["messages"] == 2
    done = erase(runtime, scope)
    assert done.receipt is not None
    assert {place: counts for place, counts in done.receipt.removed.items() if place in plan.counts} == plan.counts


def test_a_job_killed_at_every_step_goes_on(runtime: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a job that dies before and after the work of each step, when it is continued, then everything is erased."""
    fill(runtime, ana)

    class Killed(BaseException):
        pass

    deaths: list[tuple[str, str]] = []

    def mortal(step: str, work: Callable[[ErasureJob], str | None]) -> Callable[[ErasureJob], str | None]:
        def die(job: ErasureJob) -> str | None:
            if (step, "before") not in deaths:
                deaths.append((step, "before"))
                raise Killed
            following = work(job)
            if (step, "after") not in deaths:
                deaths.append((step, "after"))
                raise Killed
            return following

        return die

    for step in STEPS[:-1]:
        monkeypatch.setitem(erasing._RUN, step, mortal(step, erasing._RUN[step]))
    with pytest.raises(Killed):
        erase(runtime, Scope("user", KATE, None, None))
    every = [(step, when) for step in STEPS[:-1] for when in ("before", "after")]
    for at in range(2, len(every) + 1):
        with pytest.raises(Killed):
            continue_erasures(runtime.erasure_services)
        assert deaths == every[:at]
    continue_erasures(runtime.erasure_services)
    (done,) = ana.admin.erasures.list()
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
    assert SECRET in [message.content for message in ana.sessions.messages("lifs")]


def test_an_erasure_waits_until_what_was_accepted_before_it_is_stored(runtime: Runtime, ana: Reverie) -> None:
    """Given an older message of another user in the inbox, then the erasure says what it waits for, and goes on."""
    fill(runtime, ana)
    ana.ingest("lifs", {"role": "user", "content": "still on its way"}, user="lif")
    waiting = erase(runtime, Scope("user", KATE, None, None))
    assert (waiting.state, waiting.step, waiting.attempts) == ("waiting", "release", 1)
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
    assert [message.content for message in ana.sessions.messages("kates-next")] == ["I am back"]
    assert places_of(runtime.settings.data, SECRET) == set()


def test_a_message_takes_along_what_came_from_it_and_leaves_its_session(runtime: Runtime, ana: Reverie) -> None:
    """Given a session, when one message is erased, then the others stay and are found, and that of another session with
    its id."""
    question = "Where does the heron lantern of Cacilhas burn on Thursdays?"
    messages = [{"role": "user", "content": question, "id": "the-question-of-kate-1"}]
    ana.ingest("talk", [*messages, {"role": "assistant", "content": "By the old pier"}], user=KATE)
    ana.ingest("talk", {"role": "user", "content": "Another one", "id": "m-2"}, user=KATE)
    ana.ingest("bo's", {"role": "user", "content": "What Bo said", "id": "m-2"}, user="bo")
    drain(runtime)
    with pytest.raises(Conflict, match=r"2 sessions have a message 'm-2': name its session"):
        ana.admin.erasures.create(message="m-2")
    assert erase(runtime, Scope("message", message_name("talk", "m-2"), "ana", "default")).target_hash
    assert [one.content for one in ana.sessions.messages("bo's", user="bo")] == ["What Bo said"]
    assert ana.admin.erasures.create(message="the-question-of-kate-1", dry_run=True).counts["default"]["messages"] == 1
    done = erase(runtime, Scope("message", message_name("talk", "the-question-of-kate-1"), "ana", "default"))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    drain(runtime)
    assert places_of(runtime.settings.data, question, "the-question-of-kate-1") == set()
    assert [result.text for result in ana.recall("old pier", mode="keyword", user=KATE)] == ["By the old pier"]


def test_what_to_erase_must_be_named(ana: Reverie) -> None:
    """Given a call that names nothing, or two things, then it is refused, and nothing is erased."""
    with pytest.raises(Rejected, match="name what to erase"):
        ana.admin.erasures.create()
    with pytest.raises(Rejected, match="exclude each other"):
        ana.admin.erasures.create(user=KATE, session="s")
    assert ana.admin.erasures.list() == []


def test_of_a_group_only_what_the_user_said_is_erased(runtime: Runtime, ana: Reverie) -> None:
    """Given a group of three users, when the one who began it is erased, then the others still see the group and what
    they said; when all are erased, then nothing of it is left."""
    for user, text in ((KATE, SECRET), ("lif", "Lif sings alto in the choir"), ("mia", "Mia sings bass in the choir")):
        ana.ingest("choir", {"role": "user", "content": text}, user=user)
    ana.files.add("doc://lamp", f"A document: {SECRET}", user=KATE)
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
        contents = [message.content for message in ana.sessions.messages("choir", user=user)]
        assert contents == ["Lif sings alto in the choir", "Mia sings bass in the choir"]
        assert len(ana.recall("choir", mode="keyword", user=user)) == 2
    assert ana.sessions.list(user=KATE) == []
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
        ana.admin.tokens.create(
            workspace="default", agents=["ana"], user=user, scopes=["read", "write", "forget"], name=name
        )
        for user, name in ((KATE, KATE), (KATE, "kates-other-token"), ("lif", "lifs"))
    )
    url = ana.connection.config.url
    with Reverie("ana", url=url, token=mine.token) as kate:
        erasure = kate.admin.erasures.create(user=KATE)
        continue_erasures(runtime.erasure_services)
        receipt = kate.admin.erasures.get(erasure.id).receipt
        assert receipt is not None
        assert (receipt.leftovers, receipt.removed["tokens"]) == ({}, {"revoked": 2})
        assert receipt.requested_by == f"erased-{receipt.target_hash[:16]}"
        until(lambda: _refused(lambda: kate.forget("unknown"), Forbidden), "the token still deletes")
        assert kate.admin.erasures.get(erasure.id).receipt == receipt
    with Reverie("ana", url=url, token=other.token) as revoked:
        until(lambda: _refused(revoked.memories.list, Unauthorised), "the token still reads")
    with Reverie("ana", url=url, token=lifs.token) as still:
        assert still.memories.list()
    listed = msgspec.json.encode(
        runtime.stores.tokens().list(workspace=None, valid_at=None, limit=9, offset=0)
    ).decode()
    assert KATE not in listed
    assert "kates-other-token" not in listed


def test_an_erased_agent_is_not_named_with_its_webhook_secrets(runtime: Runtime, ana: Reverie) -> None:
    """Given an agent whose webhook secret was rotated, when it is erased, then its name is nowhere, and an agent of
    that name does not get the secret back that was replaced."""
    agent = "ana-canary-90af31"
    with Reverie(agent, url=ana.connection.config.url) as client:
        client.remember("something")
    secrets = AgentSecrets(runtime.stores, "default")
    now = datetime.now(UTC)
    first = secrets.secrets(agent, now)
    newest = secrets.rotate(agent, now)[0]
    done = erase(runtime, Scope("agent", "", agent, None))
    assert done.receipt is not None, done.error
    assert places_of(runtime.settings.data / "workspaces", agent) == set()
    later = now + timedelta(days=8)
    assert secrets.secrets(agent, later) == [newest]
    assert secrets.rotate(agent, later)[0] not in [newest, *first]


@pytest.mark.parametrize("kind", ["agent", "workspace"])
def test_the_record_of_an_erased_agent_or_workspace_keeps_a_hash_of_its_name(
    runtime: Runtime, ana: Reverie, kind: str
) -> None:
    """Given a whole agent or workspace, when it was erased, then neither its record nor its receipt has the name."""
    names = {"agent": "ana-canary-90af31", "workspace": "harbour-canary-90af31"}
    with Reverie(names["agent"], url=ana.connection.config.url, workspace=names["workspace"]) as client:
        client.remember("something")
    limits = {name: value if name == kind else None for name, value in names.items()}
    done = erase(runtime, Scope(kind, "", **limits))  # type: ignore[arg-type]
    assert done.receipt is not None, done.error
    assert getattr(done, kind) == f"erased-{done.target_hash[:16]}"
    assert names[kind] not in repr(runtime.stores.erasures().find(done.id))
    assert done.counts == done.receipt.removed


@pytest.mark.sqlite("searches the bytes of its files")
@pytest.mark.parametrize("kind", ["memory", "fact", "note"])
def test_what_belongs_to_nobody_is_erased_by_its_id(runtime: Runtime, ana: Reverie, kind: str) -> None:
    """Given a memory, a fact with an earlier value, or a note of nobody, when it is erased by its id, then it is gone
    with a receipt that found nothing of it."""
    if kind == "memory":
        erased = ana.remember(SECRET).id
    elif kind == "note":
        erased = ana.notes.add(SECRET).note_id
    else:
        ana.facts.set("lantern", "place", SECRET)
        erased = ana.facts.set("lantern", "place", "elsewhere, they say").id
    kept = ana.remember("the office closes at six").id
    drain(runtime)
    assert places_of(runtime.settings.data, SECRET)
    done = erase(runtime, Scope("memory", erased, "ana", "default"))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert done.receipt.removed["default"]["memories"] == (2 if kind == "fact" else 1)
    assert [memory.id for memory in ana.memories.list()] == [kept]
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


# --- erasures that fail ---


def test_short_rows_are_looked_through_without_sorting_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given as many parts as 10,000 messages have, when short rows are looked through, then none sorts all parts."""
    sorted_sizes = [0]

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arrays: Any, **options: Any) -> Any:
            sorted_sizes.extend(array.size for array in arrays)
            return function(*arrays, **options)

        return noted

    key = HashKey(bytes(32))
    parts = np.random.default_rng(0).integers(0, 2**64, 300_000, dtype=np.uint64)
    known = fragments_of(key, [SECRET])
    wanted = FragmentSet(np.union1d(known.wide, parts), np.union1d(known.narrow, parts), tokens=parts)
    matcher = Matcher(key, wanted)
    for name in ("sort", "unique", "intersect1d", "isin"):
        monkeypatch.setattr(np, name, noting(getattr(np, name)))
    assert [row for row in range(1_000) if matcher.is_in(f"the plums of row {row} are ripe".encode())] == []
    assert 0 < max(sorted_sizes) < 1_000
    assert matcher.is_in(f"she said: {SECRET}".encode())


def test_a_megabyte_is_looked_through_for_a_short_text_in_bounded_memory() -> None:
    """Given a megabyte of random bytes, when it is looked through for a token, then less than 100 MB are used."""
    key = HashKey(bytes(32))
    matcher = Matcher(key, fragments_of(key, ["marmalade"]))
    data = np.random.default_rng(0).bytes(1 << 20) + b"xmarmaladex"
    tracemalloc.start()
    found = matcher.tokens_within(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 1
    assert peak < 100_000_000


def test_the_lease_is_renewed_while_a_large_store_is_looked_through(runtime: Runtime, ana: Reverie) -> None:
    """Given a store of several megabytes, when its rows are looked through, then the job goes on block by block."""
    texts = ["lanterns by the harbour " * 2_000 for _ in range(60)]
    ana.ingest("s", [{"role": "user", "content": text} for text in texts], user="kate")
    drain(runtime)
    key, renewed = HashKey(bytes(32)), list[None]()
    parts_in_rows(runtime.stores, key, fragments_of(key, [SECRET]), on_block=lambda: renewed.append(None))
    assert len(renewed) > len(runtime.stores.all_names()) + 2


@pytest.mark.parametrize("workspace", ["hello world", "../etc", "UPPER", "@account", "-x", "a" * 64, "naïve", "a/b"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_workspace_that_no_name_can_be_of_is_refused(
    runtime: Runtime, ana: Reverie, workspace: str, dry_run: bool
) -> None:
    """Given what is no name of a workspace, when something is to be erased there, then the call is refused."""
    with pytest.raises(Rejected, match="is not a name") as refused:
        ana.admin.erasures.create(user=KATE, workspace=workspace, dry_run=dry_run)
    assert refused.value.field == "workspace"
    with pytest.raises(Rejected, match="is not a name"):
        request_erasure(
            runtime.stores, runtime.settings.data, Scope("workspace", "", None, workspace), requested_by="t", now=1
        )
    assert runtime.stores.erasures().page(limit=1) == []


@pytest.mark.parametrize(
    "named", [{"user": ""}, {"workspace": ""}, {"session": "a\nb"}, {"message": "\ud800"}, {"agent": "  "}]
)
def test_what_no_row_can_be_named_by_is_refused(ana: Reverie, named: dict[str, str]) -> None:
    """Given a selector that is blank or has control characters, when it is to be erased, then the call is refused."""
    with pytest.raises(Rejected):
        ana.admin.erasures.create(**named)


def test_a_stored_erasure_that_cannot_be_carried_out_has_failed_and_holds_up_nobody(
    runtime: Runtime, ana: Reverie
) -> None:
    """Given an erasure of what is no workspace, stored earlier, when the job runs, then it has failed, and says why."""
    fill(runtime, ana)
    bad = replace(_unchecked("first"), workspace="hello world", kind="workspace", target=None)
    runtime.stores.erasures().add(bad)
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.state == "done"
    failed = read_erasure(runtime.stores, bad.id)
    assert (failed.state, failed.attempts, failed.receipt) == ("failed", 1, None)
    assert "is not a name" in failed.error
    assert continue_erasures(runtime.erasure_services) == {}


def test_one_that_fails_at_every_step_holds_up_no_other(
    runtime: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an erasure that fails at each step in turn, then others are done at once, and it is tried again later."""
    fill(runtime, ana)
    first = request_erasure(
        runtime.stores, runtime.settings.data, Scope("user", KATE, None, None), requested_by="t", now=runtime.now()
    )
    failures: list[tuple[str, Exception]] = [(step, ValueError("quotes " + SECRET)) for step in STEPS[:-1]]
    at = STEPS.index("rows")
    failures[at:at] = [("rows", Rejected("no")), ("rows", StoreUnusable("broken"))]
    for number, (step, error) in enumerate(failures):
        real, user = erasing._RUN[step], f"of-{number}" if number else "lif"
        ana.notes.add(f"note {number}", user=user)

        def fails(
            job: ErasureJob,
            real: Callable[[ErasureJob], str | None] = real,
            error: Exception = error,
        ) -> str | None:
            if job._erasure.id == first.id:
                raise error
            return real(job)

        monkeypatch.setitem(erasing._RUN, step, fails)
        before = read_erasure(runtime.stores, first.id)
        assert erase(runtime, Scope("user", user, None, None)).state == "done"
        assert ana.notes.list(user=user) == []
        waiting = read_erasure(runtime.stores, first.id)
        attempts = before.attempts if before.step == step else 0  # since its last step
        assert (waiting.state, waiting.attempts, waiting.step) == ("waiting", attempts + 1, step)
        assert waiting.next_try_at is not None
        assert SECRET not in waiting.error
        assert continue_erasures(runtime.erasure_services) == {"finished": 0, "waiting": 0}
        monkeypatch.setitem(erasing._RUN, step, real)
        runtime.stores.erasures().fail(first.id, "", next_try_at=None)
    continue_erasures(runtime.erasure_services)
    assert read_erasure(runtime.stores, first.id).state == "done"


def test_one_that_fails_for_ten_minutes_is_named_until_it_ends(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an erasure that was asked for eleven minutes ago and fails, then each run names it with its error, also
    while it is not tried, and no run once it has ended. One that waits for a host is reported with the host."""
    asked = request_erasure(
        runtime.stores, runtime.settings.data, Scope("user", KATE, None, None), requested_by="t", now=runtime.now()
    )
    runtime.stores.erasures().fail(asked.id, "the disk is full", next_try_at=now_micros() + 60_000_000)
    assert "late_erasures" not in continue_erasures(runtime.erasure_services)
    monkeypatch.setattr(erasing, "LATE_MICROS", -60_000_000)
    counts = continue_erasures(runtime.erasure_services)
    assert counts["late_erasures"] == {f"erasure {asked.id}": "the disk is full"}
    monkeypatch.setattr(erasing, "_is_due", lambda _: False)
    runtime.stores.erasures().advance(asked.id, step="hosts")
    runtime.stores.erasures().fail(asked.id, "a host is away", next_try_at=None)
    assert "late_erasures" not in continue_erasures(runtime.erasure_services)
    monkeypatch.undo()
    continue_erasures(runtime.erasure_services)
    assert read_erasure(runtime.stores, asked.id).state == "done"


def test_one_that_failed_while_the_clock_was_ahead_is_tried_again(runtime: Runtime) -> None:
    """Given a next try in a year, noted before the clock was set back, when the job runs, then it is not waited for."""
    asked = request_erasure(
        runtime.stores, runtime.settings.data, Scope("user", KATE, None, None), requested_by="t", now=runtime.now()
    )
    for ahead_seconds, state in ((3_600, "waiting"), (31_536_000, "done")):
        runtime.stores.erasures().fail(asked.id, "away", next_try_at=now_micros() + ahead_seconds * 1_000_000)
        continue_erasures(runtime.erasure_services)
        assert read_erasure(runtime.stores, asked.id).state == state


@pytest.mark.sqlite("damages a file")
def test_a_store_that_cannot_be_opened_keeps_no_other_from_being_erased(runtime: Runtime, ana: Reverie) -> None:
    """Given a damaged workspace, when a user is erased everywhere, then only that workspace still has to be done."""
    with Reverie("ana", workspace="aaa", url=ana.connection.config.url) as first:
        first.remember("something of aaa")
    fill(runtime, ana)
    runtime.stores.close()
    path = runtime.stores.database_path("aaa")
    content = path.read_bytes()
    path.write_bytes(b"no database at all" * 1_000)
    waiting = erase(runtime, Scope("user", KATE, None, None))
    assert waiting.state == "waiting"
    assert "aaa" in waiting.error
    path.write_bytes(content)


def _unchecked(erasure_id: str) -> ErasureRecord:
    return ErasureRecord(
        id=erasure_id, kind="user", target=KATE, target_hash="", agent=None, workspace=None, requested_by="tester",
        requested_at=1, step=STEPS[0],
    )  # fmt: skip


@pytest.mark.parametrize("limit", ["default", None])
def test_a_receipt_names_what_a_limit_leaves_in_the_account(runtime: Runtime, ana: Reverie, limit: str | None) -> None:
    """Given memories of a user in the account, when only a workspace is erased, then the receipt says what stays."""
    for number in range(2):
        ana.remember(f"Kate likes lantern {number}", owner_user_id=KATE, tier="account", kind="preference")
    ana.remember("Lif likes plums", owner_user_id="lif", tier="account", kind="preference")
    ana.ingest("kates", {"role": "user", "content": SECRET}, user=KATE)
    drain(runtime)
    drain(runtime, "@account")
    done = erase(runtime, Scope("user", KATE, None, limit))
    assert done.receipt is not None, done.error
    left = [memory.content for memory in ana.memories.list(user=KATE)]
    named = [one for one in done.receipt.remains if "in the account" in one.what]
    assert done.receipt.leftovers == {}, "an index that has her id for what is kept is no trace of what is not"
    if limit is None:
        assert (left, named) == ([], [])
        return
    assert len(left) == 2
    assert named[0].what.startswith("2 memories of this user in the account")
    assert "an erasure without a workspace" in named[0].what
    assert any("other workspaces" in one.what for one in done.receipt.remains)
    assert set(done.receipt.removed) & {"kept in @account"} == set(done.counts) & {"kept in @account"} == set()
    assert erase(runtime, Scope("user", KATE, None, None)).state == "done"
    assert ana.memories.list(user=KATE) == []


# --- short texts ---


@pytest.mark.sqlite("searches the bytes of its files")
@pytest.mark.parametrize("short", ["Likes jam", "PIN 4711-x", "Plümchen", "Cacilhas"])
@pytest.mark.parametrize("said_by_others", [False, True])
def test_a_short_text_is_looked_for_as_a_whole(
    runtime: Runtime, ana: Reverie, short: str, said_by_others: bool
) -> None:
    """Given a text of fewer than 16 bytes in a file, when it is erased, then the receipt names that file, unless others
    have said the same; no part of a longer word is taken for it."""
    ana.ingest("kates", {"role": "user", "content": short}, user=KATE)
    ana.ingest("lifs", {"role": "user", "content": f"I know {short}" if said_by_others else "Plums"}, user="lif")
    drain(runtime)
    data = runtime.settings.data
    (data / "notes.txt").write_text(f"he said: {short.lower()}!", "utf-8")
    (data / "others.txt").write_text(f"un{short}s", "utf-8")
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == ({} if said_by_others else {"notes.txt": 1})
    assert done.receipt.searched.parts > 0


@pytest.mark.sqlite("searches the bytes of its files")
def test_a_short_text_that_is_erased_is_in_no_file(runtime: Runtime, ana: Reverie) -> None:
    """Given short texts in every kind of row, and ids that Reverie's own words have, then nothing is left of them."""
    for session in ("default", "messages", "status", "kates-1"):
        texts = ("Likes jam", "is done", "workspace", "Tuesday")
        ana.ingest(session, [{"role": "user", "content": text} for text in texts], user=KATE)
    drain(runtime)
    ana.remember("Hates eels", owner_user_id=KATE)
    ana.notes.add("Cacilhas", user=KATE)
    assert ana.recall("Likes jam", user=KATE)
    assert any(b"Likes jam" in file for file in files_of(runtime))
    done = erase(runtime, Scope("user", KATE, None, None))
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}
    assert not any(text in file for file in files_of(runtime) for text in (b"Likes jam", b"Hates eels", b"Cacilhas"))


@pytest.mark.sqlite("searches the bytes of its files")
def test_a_time_or_an_address_of_the_installation_is_no_leftover(make_runtime: Callable[..., Runtime]) -> None:
    """Given a schedule with times and a local receiver, then the same minute and host in Reverie's own files are no
    trace of it; a copy of its goal is one, whatever the file is called."""
    runtime = make_runtime(webhook_allow_private="127.0.0.1")
    data, at = runtime.settings.data, datetime.now(UTC) + timedelta(days=1)
    (data / "run" / "scratch").mkdir(parents=True)
    (data / "run" / "server.json").write_text('{"url":"http://127.0.0.1:7437"}')
    (data / "notes.txt").write_text(f"begun at {at.isoformat()}, {at.isoformat()[:16]}:59.5Z")
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        for copied in ({}, {"run/scratch/copy": 1}):
            for name in copied:
                (data / name).write_text("polish the heron lamp")
            ana.schedules.add("polish the heron lamp", at=at, webhook="http://127.0.0.1:7601/hook", user=KATE)
            done = erase(runtime, Scope("user", KATE, None, None))
            assert done.receipt is not None, done.error
            assert set(done.receipt.leftovers) == set(copied)


@pytest.mark.parametrize("kind", ["user", "session", "workspace"])
def test_no_answer_for_repeated_requests_keeps_a_short_text(runtime: Runtime, ana: Reverie, kind: str) -> None:
    """Given texts too short for a window that were answered with, then the broker has none of them after an erasure."""
    ana.sessions.start("kates-own-session-7", user=KATE, channel="Plum-alley")
    ana.scratchpads.write("kates-own-session-7", ["Hates eels"], user=KATE)
    ana.channels.describe("Plum-alley", "plum talk")
    texts = [b"Hates eels"] + [b"Plum-alley", b"plum talk"] * (kind == "workspace")
    assert all(any(text in value for _, value in runtime.erasure_services.broker.values()) for text in texts)
    agent, limit = ("ana", "default") if kind == "session" else (None, None)
    target = {"user": KATE, "session": "kates-own-session-7", "workspace": "default"}[kind]
    done = erase(runtime, Scope(kind, target, agent, "default" if kind == "workspace" else limit))  # type: ignore[arg-type]
    assert done.receipt is not None, done.error
    assert [value for _, value in runtime.erasure_services.broker.values() for text in texts if text in value] == []


def test_a_recall_just_before_its_workspace_is_deleted_leaves_no_query(runtime: Runtime, ana: Reverie) -> None:
    """Given a recall that the server has not handed on yet, when the workspace is deleted, then it never is."""
    ana.ingest("s", {"role": "user", "content": SECRET})
    drain(runtime)
    assert ana.recall("lantern of Cacilhas")
    ana.admin.workspaces.delete()
    runtime.recall_buffer.flush()
    assert [value for _, value in runtime.erasure_services.broker.values() if b"lantern of" in value] == []


def files_of(runtime: Runtime) -> list[bytes]:
    """Return the content of all files: other forms of a short text, such as base64, are found by chance."""
    return [path.read_bytes() for path in runtime.settings.data.rglob("*") if path.is_file()]


def test_what_is_about_somebody_is_shown_then_erased_with_a_receipt(runtime: Runtime, ana: Reverie) -> None:
    """Given a sister who is named and gone on about, then a dry run lists it, and an erasure removes it."""
    texts = ["My sister Rosalinda moved to Coimbra.", "She has a heron called Ofelia.", "The weather is fine today."]
    ana.ingest("s", [{"role": "user", "content": text, "id": f"m{n}"} for n, text in enumerate(texts)])
    drain(runtime)
    memory = ana.remember("User's sister Rosalinda keeps herons.").id
    kept = ana.remember("User's sister is a pilot.").id
    plan = ana.admin.erasures.create(about="my sister", dry_run=True)
    assert [(one.id, one.reason) for one in plan.items] == [
        ("m0", "named"),
        ("m1", "same conversation"),
        (memory, "named"),
        (kept, "named"),
    ]
    erasure = ana.admin.erasures.create(about="my sister", keep=[kept])
    continue_erasures(runtime.erasure_services)
    receipt = ana.admin.erasures.get(erasure.id).receipt
    assert receipt is not None
    assert (receipt.kind, receipt.leftovers) == ("selection", {})
    assert [one.id for one in ana.sessions.messages("s")] == ["m2"]
    assert [one.id for one in ana.memories.list()] == [kept]
    assert places_of(runtime.settings.data, "heron called Ofelia") == set()
    with pytest.raises(NotFound, match="nothing is about"):
        ana.admin.erasures.create(about="Rosalinda")


def test_who_may_be_meant_is_asked_back(runtime: Runtime, ana: Reverie) -> None:
    """Given two people of one name, then nothing is erased, and both are named; a user reaches own words alone."""
    ana.ingest("s", [{"role": "user", "content": "My boss Vera is ill."}], user="kate")
    ana.ingest("t", [{"role": "user", "content": "My sister Vera sings."}], user="lif")
    drain(runtime)
    plan = ana.admin.erasures.create(about="Vera", dry_run=True)
    assert (plan.items, plan.people) == ([], ["my boss Vera", "my sister Vera"])
    with pytest.raises(Conflict, match="my boss Vera or my sister Vera"):
        ana.admin.erasures.create(about="Vera")
    assert [one.text for one in ana.admin.erasures.create(about="Vera", user="lif", dry_run=True).items] == [
        "My sister Vera sings."
    ]
