"""Nothing of what was forgotten is sent to an embedding endpoint, a language model, a reranker or a webhook receiver.

A real HTTP server stands for all four and logs every request. Each kind of thing that can be forgotten is stored with a
word of its own. After all were forgotten, everything that sends texts is run, and the words are looked for.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import pytest

from adapters.embedders.base import HashEmbedder
from adapters.embedders.record import EmbedderRecord
from beat_schedule import PERIODIC_JOBS
from memory.pipeline.reembedding import ReembedTarget, reembed
from reverie import Reverie, ReverieError, contract
from support.agents import fire
from support.endpoint import Endpoint, chat_endpoint, say, send
from support.every_call import SETTINGS, Clock
from support.extracting import answer
from support.http import running_server
from support.reranking import score_by
from support.sending import new_secret
from support.stages import drain, store_inbox
from worker.app import app, use_runtime
from worker.model_specs import embedder_spec
from worker.runtime import Runtime

# What is in the inbox has no number in its session and no entry in the list of files by which it could be named.
ONLY_STORED: Final = frozenset({"message", "file"})
WORKSPACES: Final = ("ws", "gone", "deleted", contract.ACCOUNT_STORE)
QUERY: Final = "When does the ferry leave the harbour?"


def respond(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Answer by the path. A summary repeats the end of its prompt, so that it has the words that it covers.

    The language model refuses each response format, so that it gets prompts again without one.
    """
    if handler.path.endswith("/embeddings"):
        vectors = HashEmbedder().embed(question["input"]).tolist()
        data = [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]
        send(json.dumps({"data": data}).encode())(handler, question)
    elif handler.path.endswith("/rerank"):
        score_by(lambda _query, text: 1.0 / len(text))(handler, question)
    elif "response_format" in question:
        send(b"response_format is not supported", 400)(handler, question)
    elif handler.path.endswith("/completions"):
        is_structured = "JSON schema" in question["messages"][0]["content"]
        say(answer() if is_structured else question["messages"][1]["content"][-1_000:])(handler, question)
    else:
        send(b"{}")(handler, question)


class Agents:
    """The clients of a server, by agent and workspace."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clients: dict[tuple[str, str], Reverie] = {}

    def __call__(self, agent: str = "ana", workspace: str = "ws") -> Reverie:
        """Return the client of an agent in a workspace."""
        if (agent, workspace) not in self._clients:
            self._clients[agent, workspace] = Reverie(agent, url=self._url, workspace=workspace)
        return self._clients[agent, workspace]

    def all(self) -> list[Reverie]:
        """Return the clients that were used so far."""
        return list(self._clients.values())


def talk(ana: Reverie, session: str, text: str, *, user: str | None = None) -> None:
    """Store a session with a text and enough other words that it is summarised."""
    lines = [f"The harbour of town {number} has a ferry of its own, and I like it." for number in range(12)]
    messages = [{"role": "user", "content": line, "id": f"{session}-{at}"} for at, line in enumerate((text, *lines))]
    ana.ingest(session, messages, user=user)


def store_much(ana: Reverie, text: str, *, user: str | None = None) -> None:
    """Store the text as something of every kind in one workspace."""
    session = f"talk-of-{user}"
    talk(ana, session, text, user=user)
    ana.remember(text, user=user)
    ana.facts.set("ferry", f"time-{user}", text, user=user)
    ana.notes.add(text, user=user)
    ana.files.add(f"notes/{user}.md", text, user=user)
    ana.items.put(["harbour"], f"k-{user}", {"text": text}, index=["text"], user=user)
    ana.schedules.add(text, every=3_600, user=user)
    ana.reminders.add(session, "somebody", text, in_=0, user=user)


def of_account(ana: Reverie, text: str, **fields: Any) -> None:
    """Store the text as a memory of the account, which belongs to no workspace."""
    ana.remember(text, tier="account", kind="preference", **fields)


def delete_file(ana: Reverie, name: str) -> None:
    """Delete a file by its name, once it is stored."""
    for file in ana.files.list():
        if file.source_uri.endswith(name):
            ana.files.delete(file.id)


Store = Callable[[Agents, str], object]
Forget = Callable[[Agents], object]
KINDS: Final[dict[str, tuple[Store, Forget]]] = {
    "memory": (lambda to, text: to().remember(text, id="m"), lambda to: to().forget("m")),
    "memory of the account": (
        lambda to, text: of_account(to(), text, id="a"),
        lambda to: to().forget("a"),
    ),
    "erased memory": (
        lambda to, text: to().remember(text, id="e"),
        lambda to: to().admin.erasures.create(memory="e"),
    ),
    "fact": (
        lambda to, text: [to().facts.set("ferry", "time", f"{text} {number}") for number in range(2)],
        lambda to: to().facts.forget("ferry", "time"),
    ),
    "note": (lambda to, text: to().notes.add(text, note_id="n"), lambda to: to().notes.delete("n")),
    "message": (
        lambda to, text: to().ingest("popped", [{"role": "user", "content": text}]),
        lambda to: to().sessions.pop_message("popped"),
    ),
    "erased message": (
        lambda to, text: talk(to(), "message", text),
        lambda to: to().admin.erasures.create(session="message", message="message-0"),
    ),
    "session": (lambda to, text: talk(to(), "session", text), lambda to: to().sessions.forget("session")),
    "erased session": (
        lambda to, text: talk(to(), "erased", text),
        lambda to: to().admin.erasures.create(session="erased"),
    ),
    "user": (
        lambda to, text: [store_much(to(), text, user="kate"), of_account(to(), text, user="kate")],
        lambda to: to().admin.erasures.create(user="kate"),
    ),
    "file": (lambda to, text: to().files.add("harbour.md", text), lambda to: delete_file(to(), "harbour.md")),
    "item": (
        lambda to, text: to().items.put(["harbour"], "k", {"text": text}, index=["text"]),
        lambda to: to().items.delete(["harbour"], "k"),
    ),
    "schedule": (
        lambda to, text: to().schedules.add(text, every=3_600, id="s"),
        lambda to: to().schedules.delete("s"),
    ),
    "reminder": (
        lambda to, text: to().reminders.add("kept", "somebody", text, in_=0, id="r"),
        lambda to: to().reminders.cancel("r"),
    ),
    "agent": (
        lambda to, text: [store_much(to("bob"), text), of_account(to("bob"), text)],
        lambda to: to().admin.erasures.create(agent="bob"),
    ),
    "workspace": (
        lambda to, text: store_much(to("ana", "gone"), text),
        lambda to: to().admin.erasures.create(workspace="gone"),
    ),
    "deleted workspace": (
        lambda to, text: store_much(to("ana", "deleted"), text),
        lambda to: to("ana", "deleted").admin.workspaces.delete(),
    ),
}


def word_of(kind: str) -> str:
    return f"quokka{kind.replace(' ', '')}x"


class Installation:
    """A runtime whose four services are one logging server, and everything that sends them texts."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint, agents: Agents, clock: Clock) -> None:
        self.runtime, self.endpoint, self.agents, self.clock = runtime, endpoint, agents, clock

    def store_all(self) -> None:
        """Accept something of every kind; nothing of it is cut or embedded yet."""
        talk(self.agents(), "kept", "The ferry of the last harbour leaves at midnight.")
        for kind, (store, _) in KINDS.items():
            store(self.agents, f"The {word_of(kind)} ferry leaves the harbour at noon.")

    def reach(self, moment: str) -> None:
        """Have what was accepted stored, cut or made searchable."""
        for name in WORKSPACES:
            if moment in ("stored", "cut"):
                store_inbox(self.runtime, name)
            if moment == "cut":
                self.task(contract.CHUNK_MESSAGES, workspace=name)
            if moment == "searchable":
                drain(self.runtime, name)

    def forget(self, kinds: Collection[str]) -> None:
        """Forget these kinds in the order of the table; erasures are only asked for. Then begin a new log."""
        for kind in kinds:
            KINDS[kind][1](self.agents)
        self.endpoint.requests.clear()

    def forget_during(self, mark: str) -> None:
        """Forget everything while the first request with a mark and one of the words is answered."""

        def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
            text = f"{handler.path} {json.dumps(question)}"
            if mark in text and "quokka" in text:
                self.endpoint.answer = respond
                self.forget(KINDS)
            respond(handler, question)

        self.endpoint.answer = answer

    def run_all(self) -> None:
        """Run everything that sends texts: the stages, recalls, all periodic jobs, and recalls again."""
        self._work()
        self._look()
        self.clock.skip(3)
        for job in PERIODIC_JOBS:
            self.task(job.task, manual=True)
        fire(self.runtime, "ws")
        self._work()
        self._look()
        self._embed_again()

    def sent(self) -> dict[str, list[str]]:
        """Return the texts of requests that hold words of kinds, by kind."""
        found = defaultdict(list)
        for request in self.endpoint.requests:
            body = json.dumps(request)
            for kind in KINDS:
                if word_of(kind) in body:
                    found[kind].append(body)
        return dict(found)

    def task(self, name: str, **arguments: Any) -> None:
        """Run a task in this process."""
        with use_runtime(self.runtime):
            app.tasks[name].body(**arguments)

    def _work(self) -> None:
        names = self.runtime.stores.names()
        for name in (one for one in WORKSPACES if one in names or one == contract.ACCOUNT_STORE):
            with contextlib.suppress(ReverieError):
                drain(self.runtime, name)
                for task in (contract.EMBED_ITEMS, contract.EMBED_GOALS, contract.RECORD_RECALLS):
                    self.task(task, workspace=name)

    def _look(self) -> None:
        for client in self.agents.all():
            with contextlib.suppress(ReverieError):  # a workspace that is gone, or a session that is being erased
                for user in (None, "kate"):
                    client.recall(QUERY, limit=50, user=user)
                    client.memories.search(QUERY, user=user)
                    client.items.search(["harbour"], QUERY, user=user)
                    client.recall(QUERY, limit=50, user=user, as_of="2100-01-01T00:00:00Z")
                for session in client.sessions.list(all_users=True):
                    client.context(session.id, QUERY, token_budget=4_000, refine=True, user=session.user)
                    client.sessions.compact(session.id, 256)

    def _embed_again(self) -> None:
        embedder = self.runtime.embedder
        assert embedder is not None
        record = EmbedderRecord.from_embedder(embedder_spec(self.runtime.settings), embedder)
        for name in ("ws", contract.ACCOUNT_STORE):
            reembed(self.runtime.store(name), ReembedTarget(embedder, record, force=True), now=self.runtime.now)


@pytest.fixture
def here(make_runtime: Callable[..., Runtime]) -> Iterator[Installation]:
    clock = Clock()
    with chat_endpoint(respond) as endpoint:
        runtime = make_runtime(
            clock=clock,
            **SETTINGS,
            embedding_provider="openai",
            embedding_model="m",
            embedding_base_url=endpoint.url,
            language_model="m",
            language_model_base_url=endpoint.url,
            reranker_base_url=endpoint.url,
            notifier_webhook_url=f"{endpoint.url}/hook",
            webhook_secret=new_secret(),
            webhook_allow_private="127.0.0.1",
        )
        with running_server(runtime) as url, contextlib.ExitStack() as closing:
            agents = Agents(url)
            yield Installation(runtime, endpoint, agents, clock)
            for client in agents.all():
                closing.callback(client.close)


def test_what_is_not_forgotten_is_sent(here: Installation) -> None:
    """Given something of every kind, when nothing is forgotten, then the word of each is in some request."""
    here.store_all()
    here.reach("searchable")
    here.run_all()
    assert set(here.sent()) == set(KINDS)


@pytest.mark.parametrize("moment", ["accepted", "stored", "cut", "searchable"])
def test_nothing_forgotten_is_sent(here: Installation, moment: str) -> None:
    """Given something of every kind, when it is forgotten at some moment, then no later request holds its word."""
    here.store_all()
    here.reach(moment)
    kinds = [kind for kind in KINDS if moment != "accepted" or kind not in ONLY_STORED]
    here.forget(kinds)
    here.run_all()
    assert {kind: texts for kind, texts in here.sent().items() if kind in kinds} == {}
    assert "last harbour" in json.dumps(here.endpoint.requests)


@pytest.mark.parametrize("mark", ["/embeddings", "/completions", "response_format", "/rerank", "/hook"])
def test_nothing_forgotten_during_a_request_is_sent_with_the_next(here: Installation, mark: str) -> None:
    """Given something of every kind, when it is forgotten while a request is answered, then no later one holds it."""
    here.store_all()
    here.reach("cut" if mark == "/embeddings" else "searchable")
    here.forget_during(mark)
    here.run_all()
    assert here.endpoint.answer is respond
    assert here.sent() == {}
