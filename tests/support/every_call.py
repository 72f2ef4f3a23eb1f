"""An agent that makes every call of the client, and the jobs that work on what it leaves, in one workspace.

Calls are made in an order in which each finds something. `missing` names the methods of the client that were not
called, so a new one has to be added here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from beat_schedule import PERIODIC_JOBS
from reverie import Reverie, contract
from reverie.client import Method, SubjectAttribute, _Calls
from reverie.clock import now_micros
from reverie.items import GetOperation, NamespacesOperation, PutOperation, SearchOperation
from support.agents import fire
from support.stages import drain
from worker.app import app, use_runtime
from worker.runtime import Runtime

app.loader.import_default_modules()

DAY: Final = 86_400_000_000
# What the jobs need to have something to do: small limits, and short periods.
SETTINGS: Final[dict[str, Any]] = {
    "message_retention_days": 2,
    "memories_per_scope": 12,
    "context_token_budget": 150,
    "system_prompt_buffer": 0,
    "captured_queries_days": 30,
}
_HOOK: Final = "https://example.org/hook"
_CITIES: Final = ("Lisbon", "Porto", "Ghent", "Turin", "Malmo", "Bergen", "Graz", "Bilbao")
_LATER: Final = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)
_EARLIER: Final = _LATER - timedelta(days=500)
_RECALLS: Final[Sequence[dict[str, Any]]] = (
    {"mode": "keyword"},
    {"mode": "vector"},
    {"mode": "hybrid", "explain": True, "neighbours": 2},
    {"user": "kate"},
    {"session": "talk-0"},
    {"channel": "home", "tags": ["bread"]},
    {"scope": "account", "user": "kate"},
    {"scope": "channel", "channel": "home"},
    {"kinds": ["memory"], "fusion": "rrf"},
    {"kinds": ["file", "message"], "fusion": "weighted"},
    {"as_of": "2020-01-01T00:00:00Z"},
)


class Clock:
    """The time of this machine, and the days that have been skipped."""

    def __init__(self) -> None:
        self._skipped = 0

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return now_micros() + self._skipped

    def skip(self, days: float) -> None:
        """Let days pass."""
        self._skipped += int(days * DAY)


def client_methods(holder: type = _Calls) -> dict[str, Method[Any, Any]]:
    """Return the declared methods of the clients by their names, such as `recall` and `facts.set`."""
    found: dict[str, Method[Any, Any]] = {}
    for name, value in vars(holder).items():
        if isinstance(value, Method):
            found[name] = value
        elif isinstance(value, SubjectAttribute):
            found |= {f"{name}.{inner}": method for inner, method in client_methods(value.kind).items()}
    return found


class _Recorded:
    """A method or a subject of a client that records its name when it is called."""

    def __init__(self, value: Any, name: str, called: set[str]) -> None:
        self._value, self._name, self._called = value, name, called

    def __getattr__(self, name: str) -> _Recorded:
        return _Recorded(getattr(self._value, name), f"{self._name}.{name}", self._called)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._called.add(self._name)
        return self._value(*args, **kwargs)


class EveryCall:
    """Works in one workspace through a client of a server over a runtime."""

    def __init__(self, url: str, runtime: Runtime, workspace: str, clock: Clock, folder: Path) -> None:
        self._client = Reverie("ana", url=url, workspace=workspace)
        self._runtime, self._workspace, self._clock, self._folder = runtime, workspace, clock, folder
        self._called: set[str] = set()

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def missing(self) -> set[str]:
        """Return the methods of the client that were not called."""
        return set(client_methods()) - self._called

    def __getattr__(self, name: str) -> Any:
        """Return a method or a subject of the client."""
        return _Recorded(getattr(self._client, name), name, self._called)

    def settle(self) -> None:
        """Run the stages until nothing is left, for the account's store, too."""
        drain(self._runtime, self._workspace)
        drain(self._runtime, contract.ACCOUNT_STORE)
        self._runtime.recall_buffer.flush()  # what the buffer's own thread has not passed on yet
        with use_runtime(self._runtime):
            for task in (contract.RECORD_RECALLS, contract.EMBED_ITEMS):
                app.tasks[task].body(workspace=self._workspace)

    def store_everything(self) -> None:
        """Store something of every kind, and make it searchable."""
        self._talk()
        self._remember()
        self._keep_items()
        self._plan()
        self.settle()

    def do_what_agents_wait_for(self) -> None:
        """Store some messages and a memory, and recall them: what agents do all the time."""
        for number in range(3):
            session, city = f"talk-{number}", _CITIES[number]
            lines = [f"Tram {line} to {city} leaves at noon" for line in range(400)]
            self.ingest(session, [{"role": "user", "content": line} for line in lines])
            self.settle()
            for more in _RECALLS:
                self.recall("when does the tram leave?", **more)
            self.context(session, "when does the tram leave?", token_budget=2_000)
            self.sessions.newest_messages(session, 10)
            self.sessions.search("tram")
        self.remember("Kate is afraid of trams", id="afraid")
        self.settle()
        self.memories.get("afraid")
        self.memories.search("trams")
        self.facts.get("home", "city")
        self.items.get(["places", "Porto"], "visit")

    def read_everything(self) -> None:
        """Make every call that reads."""
        self._recall()
        self._browse()
        self._look_up()

    def run_jobs(self) -> None:
        """Run every periodic job, by hand and then as the clock does, on a day when they have something to do."""
        for day in range(4):
            for question in ("where does she live?", f"what of {_CITIES[day]}?"):
                self.recall(question, limit=10)
            self.settle()
            self._clock.skip(1)
        self._clock.skip(20)
        with use_runtime(self._runtime):
            for manual in (True, False):
                for job in PERIODIC_JOBS:
                    app.tasks[job.task].body(manual=manual)
                self.settle()

    def remove_everything(self) -> None:
        """Undo, forget, erase, and delete the workspace."""
        self._curate()
        self._forget()
        self._erase()

    def _talk(self) -> None:
        for number, city in enumerate(_CITIES):
            lines = (
                ("user", f"I moved to {city} last week and the flat is still full of boxes."),
                ("assistant", f"How do you like {city} so far? {city} is lovely."),
                ("user", f"From now on, remember that I always buy oat milk on day {number} of the week in {city}."),
                ("user", f"My dentist is Doctor {city}son, two streets from the station."),
            )
            messages = [{"role": role, "content": content} for role, content in lines]
            self.ingest(f"talk-{number}", messages, user="kate" if number % 2 else None, channel="home")
        self.ingest("chat", [{"content": "Hello there", "role": "user"}], provider="telegram", chat_id="7")
        self.files.add("notes/flat.md", "# The flat\n\nThe flat in Porto has two rooms.", session="talk-0")
        self.files.add("notes/car.md", "# The car\n\nThe car is green.")
        event = {"session_id": "code", "hook_event_name": "UserPromptSubmit", "prompt": "fix the bug", "cwd": "/tmp"}
        self.sessions.record_event(tool="claude-code", id="e1", event=event)
        self.settle()
        self.channels.create("work", "about the office")
        self.sessions.start("begun", user="kate", channel="work")
        self.scratchpads.write("talk-0", ["buy milk", "call Kate"])
        self.scratchpads.write_key("talk-0", "step", {"done": 3})
        self.sessions.move("talk-2", "work")
        self.channels.describe("work", "about the garden")
        self.channels.create("empty")
        self.channels.delete("empty")
        self.sessions.close("talk-7", user="kate")

    def _remember(self) -> None:
        for number, city in enumerate(_CITIES):
            at = self._clock() / 1_000_000 + 86_400 * (1 + number)
            ends = datetime.fromtimestamp(at, UTC) if number % 2 else None
            self.remember(f"A baker in {city} sells rye bread", id=f"baker-{number}", expires_at=ends, tags=["bread"])
            self.remember(f"A baker in {city} sells rye bread", id=f"again-{number}", tags=["twice"])
            self.remember(f"Look up trains to {city}", id=f"trains-{number}", tier="conversation", session="talk-0")
            self.remember(f"Kate likes {city}", id=f"likes-{number}", tier="account", kind="preference", user="kate")
        self.remember("Answer in short sentences", kind="instruction", importance=0.9, id="manners")
        self.remember("Kate is allergic to nuts", id="nuts", user="kate", visibility="shared", session="talk-1")
        self.memories.update("baker-0", content="A baker in Lisbon sells cakes", pinned=True)
        self.memories.approve("nuts")
        self.facts.set("home", "city", "Lisbon")
        self.facts.set("home", "city", "Porto")
        self.notes.add("Ask for the timetable", note_id="errand")
        self.notes.update("errand", content="Ask for the ferry's timetable")

    def _keep_items(self) -> None:
        for number, city in enumerate(_CITIES):
            self.items.put(["places", city], "visit", {"year": 2000 + number, "text": city}, index=["text"])
        self.items.put(["short"], "k", {"a": 1}, ttl_seconds=5)
        self.items.batch(
            [
                PutOperation(namespace=["n"], key="k", value={"a": 1}),
                GetOperation(namespace=["n"], key="k"),
                SearchOperation(namespace=["n"], filter={"a": {"$gte": 1}}),
                NamespacesOperation(),
            ]
        )

    def _plan(self) -> None:
        self.schedules.add("water the plants", every=3_600, webhook=_HOOK, id="plants", session="talk-0")
        self.schedules.add("read the news", cron="0 7 * * *", task="agent.news", queue="news", id="news", user="kate")
        self.schedules.add("once", at=_LATER, webhook=_HOOK, id="once", name="one", channel="home")
        self.schedules.update("once", name="two")
        self.schedules.pause("once")
        self.schedules.resume("once")
        run = self.schedules.run_now("news", user="kate").id
        self.runs.cancel(run, user="kate")
        run = self.schedules.run_now("news", user="kate").id
        fire(self._runtime, self._workspace)
        self.runs.complete(run, "read", notify=True, user="kate")
        self.reminders.add("talk-0", "kate", "water the plants", in_=0, id="pulled", delivery="pull")
        self.reminders.add("talk-0", "kate", "call", in_=0, id="pushed", user="kate", channel="home")
        self.reminders.add("talk-0", "kate", "later", due_at=_LATER, id="later")

    def _recall(self) -> None:
        self._recall_from_database()
        for more in _RECALLS:
            self.recall("where is the flat?", **more)
        self.ingest("talk-0", [{"role": "user", "content": "The river is lovely in the evening"}])
        self.settle()
        self.recall("which river is lovely?")  # reads what has changed
        for mode in ("keyword", "vector", "hybrid"):
            self.sessions.search("dentist", mode=mode)
            self.memories.search("bread", mode=mode, tags=["bread"])
            self.memories.search("bread", mode=mode, user="kate")
        for ranking in ("recall", "decay"):
            self.context("talk-0", "where is the flat?", token_budget=4_000, ranking=ranking)
        self.context("talk-1", user="kate", channel="home", token_budget=300)
        self.restore("talk-0")
        self.settle()
        self.contexts.show(self.contexts.list(session="talk-0")[0].id)
        self.memories.recall_events()
        self.memories.recall_events(memory="baker-0", user="kate", explain=True)

    def _recall_from_database(self) -> None:
        """Recall as one does while an index in memory takes long to build: by words and vectors in the database."""
        indexes = self._runtime.indexes
        foreground, patience = indexes._max_foreground_chunks, indexes._patience_seconds
        indexes._max_foreground_chunks, indexes._patience_seconds = -1, 0.0
        for more in _RECALLS:
            indexes.drop(lambda _workspace, _agent: True)
            self.recall("where is the flat?", **more)
        indexes._max_foreground_chunks, indexes._patience_seconds = foreground, patience

    def _browse(self) -> None:
        for user in (None, "kate"):
            self.sessions.list(user=user, status="active")
            self.files.list(user=user)
            self.memories.list(user=user, text="bread")
            self.memories.list(user=user, tier="workspace", kind="fact", tags=["bread"], since=_EARLIER)
            self.memories.list(user=user, session="talk-0", superseded=True, expired=True, limit=3, offset=1)
            self.memories.stats(user=user)
            self.facts.list("home", user=user)
            self.facts.history("home", "city", user=user)
            self.notes.list(user=user, tags=["x"])
            self.schedules.list(user=user, status=["active", "paused"], text="plants", due_before=_LATER)
            self.schedules.count(user=user)
            self.reminders.list(user=user, status="due")
            self.notifications.list(user=user, everything=True)
            self.items.search(["places"], "a city", user=user)
            self.items.search(["places"], filter={"year": {"$gte": 2003}}, user=user)
            self.items.namespaces(user=user, suffix=["Porto"], max_depth=2)
            self.curation.promotions()
            self.admin.erasures.list(user=user)
        self.sessions.list(all_users=True)
        self.schedules.list(
            all_users=True, session="talk-0", executor="task", cadence="cron", channel="home", name="one"
        )
        self.channels.list()
        self.admin.workspaces.agents()
        self.admin.workspaces.list()
        self.memories.pending()
        self.memories.export()
        self.admin.dead_letters.list()
        self.admin.dead_letters.list(all_agents=True)
        self.status()
        self.admin.jobs.list()
        self.admin.quotas.list()
        self.admin.audit(action="forget")
        self.curation.list(job="decay")
        self.curation.list(memory="baker-0")

    def _look_up(self) -> None:
        ref = self.sessions.get("talk-0").ref_code
        self.sessions.get_by_ref(ref)
        (message, *_) = self.sessions.messages("talk-0")
        self.sessions.messages("talk-0", around=message.id, limit=3)
        self.sessions.newest_messages("talk-0", 2, before=3)
        self.working("talk-0")
        self.sessions.export("talk-0")
        self.sessions.summary("talk-7", user="kate")
        self.scratchpads.get("talk-0")
        self.scratchpads.keys("talk-0")
        self.scratchpads.get_key("talk-0", "step")
        self.channels.get("work")
        self.memories.get("baker-0")
        self.facts.get("home", "city")
        self.notes.get("errand")
        self.items.get(["places", "Porto"], "visit", refresh_ttl=True)
        self.schedules.get("plants")
        self.schedules.next_runs("plants")
        self.schedules.preview_runs(every=600)
        (run, *_) = self.runs.list("news", all_users=True)
        self.runs.get(run.id, all_users=True)
        self.reminders.get("later")
        self.runs.worker_key()

    def _curate(self) -> None:
        self.sessions.compact("talk-0", 256)
        self.memory_files.checkpoint("before")
        self.remember("The pier is closed", id="pier")
        self.memory_files.checkpoint("after")
        newest, before = self.memory_files.history(2)
        self.memory_files.diff(before.id, newest.id)
        entries = self.curation.list()
        self.curation.get(entries[0].id)
        self.memories.confirm("pier")
        self.memories.review()
        run = self.curation.run(self.curation.runs()[0].id)
        self.curation.accept(run=run.id)
        self.curation.undo(next(entry.id for entry in entries if entry.undone_at is None))
        self.curation.undo_all(everything=True)

    def _forget(self) -> None:
        (reminder, *_) = self.reminders.claim(all_users=True)
        self.reminders.confirm(reminder)
        self.reminders.cancel("later")
        told = self.notifications.list(all_users=True, everything=True).notifications
        self.notifications.acknowledge([one.id for one in told], all_users=True)
        self.schedules.delete("once")
        self.sessions.pop_message("talk-0")
        self.forget("baker-2")
        self.facts.forget("home", "city")
        self.notes.delete("errand")
        self.items.delete(["places", "Porto"], "visit")
        self.items.sweep()
        self.files.delete(self.files.list()[0].id)
        self.scratchpads.clear("talk-0")
        self.scratchpads.delete_key("talk-0", "step")
        self.scratchpads.clear_keys("talk-0")
        self.sessions.archive("talk-3", user="kate", force=True)
        self.sessions.forget("talk-4")
        self.admin.jobs.run("verify-store", workspace=self._workspace)

    def _erase(self) -> None:
        self.admin.export_file(self._folder / "export.jsonl")
        self.admin.import_file(self._folder / "export.jsonl")
        self.memories.import_(self.memories.export())
        self.admin.quotas.set("workspace", self._workspace, messages=100_000)
        token = self.admin.tokens.create(workspace=self._workspace)
        self.admin.tokens.list()
        self.admin.tokens.revoke(self.admin.tokens.rotate(token.id).id)
        # A sequence that is taken makes a dead letter.
        for name in ("first", "late"):
            self.ingest("late", [{"role": "user", "content": name, "id": name, "sequence": 1}])
        drain(self._runtime, self._workspace)
        (letter,) = self.admin.dead_letters.list()
        self.admin.dead_letters.get(letter.id)
        self.admin.dead_letters.replay(letter.id, timeout_seconds=0)
        drain(self._runtime, self._workspace)
        self.admin.dead_letters.drop(self.admin.dead_letters.list()[0].id)
        for target in ({"user": "kate"}, {"session": "talk-0"}, {"memory": "baker-4"}):
            erasure = self.admin.erasures.create(**target)
            self.admin.erasures.get(erasure.id)
        self.settle()
        with use_runtime(self._runtime):
            app.tasks[contract.CONTINUE_ERASURES].body(manual=True)
        self.admin.workspaces.delete()
