"""What the services for Google ADK must do, run by pytest in an environment that has it: tests/integration/test_adk.py

The server is at REVERIE_URL. Each check has an app of its own, so that they can run in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from reverie import Rejected, Reverie, Unavailable
from reverie.frameworks.adk import ReverieMemoryService, ReverieSessionService

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


def event(text: str | None = None, *, at: float = 1_700_000_000.0, author: str = "user", **state: Any) -> Event:
    content = types.Content(role=author, parts=[types.Part(text=text)]) if text is not None else None
    delta = {name.replace("__", ":"): value for name, value in state.items()}
    return Event(
        author=author,
        invocation_id=str(uuid4()),
        content=content,
        timestamp=at,
        actions=EventActions(state_delta=delta),
    )


class App:
    """The sessions and the memory of one app, called one after the other."""

    def __init__(self) -> None:
        self.name = f"app {uuid4()}"
        self.sessions = ReverieSessionService()
        self.memory = ReverieMemoryService()

    def create(self, user: str = "kate", **more: Any) -> Session:
        return run(self.sessions.create_session(app_name=self.name, user_id=user, **more))

    def get(self, session_id: str, user: str = "kate", **config: Any) -> Any:
        given = GetSessionConfig(**config) if config else None
        call = self.sessions.get_session(app_name=self.name, user_id=user, session_id=session_id, config=given)
        return run(call)

    def listed(self, user: str | None = "kate") -> list[tuple[str, str]]:
        found = run(self.sessions.list_sessions(app_name=self.name, user_id=user)).sessions
        assert all(session.events == [] for session in found)
        return [(session.user_id, session.id) for session in found]

    def append(self, session: Session, added: Event) -> Event:
        stored: Event = run(self.sessions.append_event(session, added))
        return stored

    def found(self, query: str, user: str = "kate") -> list[MemoryEntry]:
        memories: list[MemoryEntry] = run(
            self.memory.search_memory(app_name=self.name, user_id=user, query=query)
        ).memories
        return memories


@pytest.fixture
def app() -> App:
    return App()


def test_a_session_is_read_as_it_was_created(app: App) -> None:
    """Given sessions with and without an id, then each is read and listed as it is, padded ids too, until deleted."""
    assert app.get("s") is None
    assert app.get(" ") is None
    made = app.create(session_id=" s ", state={"a": {"b": [1, None, "ü"]}, "temp:t": 1})
    assert (made.id, made.state, made.events) == ("s", {"a": {"b": [1, None, "ü"]}}, [])
    assert app.get("s") == app.get(" s ") == made
    other = app.create()
    assert {name for _, name in app.listed()} == {"s", other.id}
    with pytest.raises(AlreadyExistsError):
        app.create(session_id="s")
    for _ in range(2):
        run(app.sessions.delete_session(app_name=app.name, user_id="kate", session_id=" s "))
    assert app.get("s") is None
    assert app.listed() == [("kate", other.id)]
    assert app.create(session_id="s").state == {}


def test_of_two_that_create_a_session_at_once_one_does(app: App) -> None:
    """Given two creations of one id at once, then one of them raises."""

    async def both() -> list[Any]:
        calls = [
            app.sessions.create_session(app_name=app.name, user_id="kate", session_id="s", state={"by": number})
            for number in range(2)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = run(both())
    (won,) = [result for result in results if isinstance(result, Session)]
    assert [type(result) for result in results if result is not won] == [AlreadyExistsError]
    assert app.get("s").state == won.state


def test_events_come_back_as_they_were_appended(app: App) -> None:
    """Given events of all kinds, then the session is read as it is in memory, but for temporary state."""
    session = app.create()
    blob = types.Part.from_bytes(data=b"\x00\xff image", mime_type="image/png")
    call = types.Part(function_call=types.FunctionCall(id="c", name="weather", args={"town": "Lisbon"}))
    response = types.Part(function_response=types.FunctionResponse(id="c", name="weather", response={"fog": True}))
    for number, parts in enumerate(([types.Part(text="hi"), blob], [call], [response], [])):
        appended = event(at=session.last_update_time + 1, author="guide" if number else "user", sk=number)
        appended.content = types.Content(role="model", parts=parts)
        appended.long_running_tool_ids = {"t"}
        app.append(session, appended)
    app.append(session, Event(author="user", partial=True))
    assert len(session.events) == 4
    assert app.get(session.id) == session


def test_state_belongs_to_the_app_the_user_or_the_session(app: App) -> None:
    """Given state with each prefix, then it is seen where it belongs, None included, and temporary state only here."""
    first = app.create(state={"k": 1, "user:u": 1, "app:a": 1})
    changed = app.append(first, event(k=None, user__v=2, app__b={"c": 2}, temp__t=3))
    assert first.state["temp:t"] == 3
    assert "temp:t" not in changed.actions.state_delta
    whole = {"k": None, "user:u": 1, "user:v": 2, "app:a": 1, "app:b": {"c": 2}}
    assert app.get(first.id).state == whole
    assert app.create().state == {name: value for name, value in whole.items() if ":" in name}
    assert app.create("luis").state == {"app:a": 1, "app:b": {"c": 2}}
    assert run(app.sessions.get_user_state(app_name=app.name, user_id="kate")) == {"u": 1, "v": 2}
    assert run(app.sessions.get_user_state(app_name=app.name, user_id="nobody")) == {}
    assert App().create().state == {}


def test_the_state_is_read_though_the_event_that_set_it_is_not(app: App) -> None:
    """Given a state that an early event has set, then it is there with only the newest events, or none."""
    session = app.create(state={"first": True})
    app.append(session, event(k="v", at=session.last_update_time + 1))
    for number in range(3):
        app.append(session, event(f"turn {number}", at=session.last_update_time + 1))
    for config in ({"num_recent_events": 0}, {"num_recent_events": 1}, {"after_timestamp": 1.0}):
        assert app.get(session.id, **config).state == {"first": True, "k": "v"}


def test_a_session_is_read_with_the_events_that_are_asked_for(app: App) -> None:
    """Given five events, then the configuration limits them by number, by time, and by both."""
    session = app.create()
    for second in range(1, 6):
        app.append(session, event(at=float(second)))

    def times(**config: Any) -> list[float]:
        return [one.timestamp for one in app.get(session.id, **config).events]

    assert times() == [1, 2, 3, 4, 5]
    assert times(num_recent_events=0) == []
    assert times(num_recent_events=3) == [3, 4, 5]
    assert times(after_timestamp=4.0) == [4, 5]
    assert times(after_timestamp=50.0) == []
    assert times(after_timestamp=4.0, num_recent_events=3) == [4, 5]
    assert app.get(session.id).last_update_time == session.last_update_time == 5


def test_users_do_not_see_each_others_sessions(app: App) -> None:
    """Given sessions of one id of three users with awkward names, then each sees only their own."""
    users = ["kate", "kate:s", "a/b c%"]
    for number, user in enumerate(users):
        app.append(app.create(user, session_id="s", state={"n": number}), event(f"I am {user}"))
    for number, user in enumerate(users):
        own = app.get("s", user)
        assert (own.state, own.events[0].content.parts[0].text) == ({"n": number}, f"I am {user}")
        assert app.listed(user) == [(user, "s")]
    assert sorted(app.listed(None)) == sorted((user, "s") for user in users)
    with Reverie(app.name) as client:
        assert client.sessions.messages("adk:kate:s", user="kate")
        assert [one.user for one in client.sessions.list(user="kate")].count("kate:s") == 0


def test_sessions_are_listed_by_their_last_event(app: App) -> None:
    """Given sessions whose events go back in time, then the one with the newest event is the last one."""
    sessions = [app.create(session_id=name) for name in "abc"]
    for session, at in zip(sessions, (3.0, 1.0, 2.0), strict=True):
        app.append(session, event(at=at))
    assert [name for _, name in app.listed()] == ["b", "c", "a"]


def test_an_event_after_one_that_the_session_does_not_have_is_refused(app: App) -> None:
    """Given a session that was read before an event, when another event is appended to it, then it is stale."""
    session = app.create()
    stale = session.model_copy(deep=True)
    app.append(session, event(at=session.last_update_time + 1, k=1))
    with pytest.raises(StaleSessionError, match="modified in storage"):
        app.append(stale, event(at=session.last_update_time + 2, k=2))
    assert app.get(session.id).state == {"k": 1}
    run(app.sessions.delete_session(app_name=app.name, user_id="kate", session_id=session.id))
    with pytest.raises(SessionNotFoundError):
        app.append(session, event())


def test_of_events_that_follow_the_same_one_at_once_one_is_stored(app: App) -> None:
    """Given two copies of a session, when both are appended to at once, then one event is stored and one refused."""
    made = app.create()
    for turn in range(5):
        copies = [app.get(made.id) for _ in range(2)]
        events = [event(at=copies[0].last_update_time + 10 + number, **{f"k{turn}": number}) for number in range(2)]

        async def both(copies: list[Any] = copies, events: list[Event] = events) -> list[Any]:
            calls = [app.sessions.append_event(copy, one) for copy, one in zip(copies, events, strict=True)]
            return await asyncio.gather(*calls, return_exceptions=True)

        results = run(both())
        assert sorted(isinstance(result, StaleSessionError) for result in results) == [False, True]
        won = results.index(next(result for result in results if isinstance(result, Event)))
        assert app.get(made.id).state[f"k{turn}"] == won
    assert len(app.get(made.id).events) == 5
    with Reverie(app.name) as client:
        assert client.admin.dead_letters.list() == []


def test_an_event_that_is_appended_again_is_stored_once(app: App) -> None:
    """Given an event that was stored, when it is appended again, then nothing changes."""
    session = app.create()
    app.append(session, added := event("hello"))
    app.append(session, added.model_copy(deep=True))
    assert len(session.events) == len(app.get(session.id).events) == 1


def test_what_is_too_large_is_refused(app: App) -> None:
    """Given an event of 4 MB, then it is refused, and one of 1 MB comes back."""
    session = app.create()
    with pytest.raises(Rejected, match="3,145,728"):
        app.append(session, event("x" * 4_000_000))
    app.append(session, event("é" * 500_000))
    assert app.get(session.id).events[0].content.parts[0].text == "é" * 500_000


def test_events_are_messages_that_can_be_recalled(app: App) -> None:
    """Given a session, then what was said in it is recalled for its user."""
    app.append(app.create(), event("The heron lantern burns."))
    with Reverie(app.name) as client:
        client.ingest("wait", {"role": "user", "content": "done"}, wait="searchable")
        assert client.recall("heron", user="kate", mode="keyword")
        assert not [one for one in client.recall("heron", user="luis", mode="keyword") if "heron" in one.text]


def test_memory_has_what_was_said_in_a_session_once(app: App) -> None:
    """Given a session that is added twice, then a search of its user finds each text once, with its author."""
    session = Session(id="s", app_name=app.name, user_id="kate", events=[event("I like jasmine tea."), event()])
    for _ in range(2):
        run(app.memory.add_session_to_memory(session))
    more = [event("The guide knows jasmine rice.", author="guide", at=0.0)]
    run(app.memory.add_events_to_memory(app_name=app.name, user_id="kate", events=more))
    found = {memory.content.parts[0].text: memory for memory in app.found("jasmine")}
    assert {text: memory.author for text, memory in found.items()} == {
        "I like jasmine tea.": "user",
        "The guide knows jasmine rice.": "guide",
    }
    assert found["I like jasmine tea."].timestamp == "2023-11-14T22:13:20+00:00"
    assert app.found("jasmine", "luis") == []
    assert App().found("jasmine") == []
    changed = session.events[0].model_copy(update={"content": types.Content(parts=[types.Part(text="jasmine gin")])})
    run(app.memory.add_events_to_memory(app_name=app.name, user_id="kate", events=[changed]))
    assert {memory.content.parts[0].text for memory in app.found("jasmine")} == set(found)
    empty = Session(id="e", app_name=app.name, user_id="kate")
    run(app.memory.add_session_to_memory(empty))


def test_a_memory_is_added_and_deleted_by_its_id(app: App) -> None:
    """Given entries, then they are found with their metadata, and no more once they are deleted."""
    entry = MemoryEntry(
        id="m1",
        content=types.Content(parts=[types.Part(text="Kate rows on Sundays.")]),
        author="guide",
        timestamp="2026-01-01T00:00:00",
        custom_metadata={"a": 1},
    )
    blank = MemoryEntry(content=types.Content(parts=[]))
    run(app.memory.add_memory(app_name=app.name, user_id="kate", memories=[entry], custom_metadata={"b": 2}))
    with pytest.raises(Rejected, match="no text"):
        run(app.memory.add_memory(app_name=app.name, user_id="kate", memories=[blank]))
    (found,) = app.found("rows on Sundays")
    assert (found.id, found.author, found.timestamp) == ("m1", "guide", entry.timestamp)
    assert found.custom_metadata == {"a": 1, "b": 2}
    for user, left in (("luis", 1), ("kate", 0)):
        run(app.memory.delete_memory(app_name=app.name, user_id=user, memory_id="m1"))
        assert len(app.found("rows on Sundays")) == left
    run(app.memory.delete_memory(app_name=app.name, user_id="kate", memory_id=None))


def test_a_server_that_is_down_is_named_in_the_error() -> None:
    """Given no server, then the error says which address does not answer and what to do."""
    service = ReverieSessionService(url="http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="reverie up"):
        run(service.get_session(app_name="a", user_id="u", session_id="s"))


class ScriptedLlm(BaseLlm):
    """A model that repeats how many turns it was shown."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        text = f"turn {len(llm_request.contents)}"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def test_a_runner_goes_on_with_its_conversation(app: App) -> None:
    """Given an agent with both services, when it runs twice, then its model sees the first turn in the second."""
    agent = LlmAgent(name="guide", model=ScriptedLlm(model="scripted"))
    runner = Runner(app_name=app.name, agent=agent, session_service=app.sessions, memory_service=app.memory)
    app.create(session_id="s")

    async def turn(text: str) -> str:
        said = types.Content(role="user", parts=[types.Part(text=text)])
        answers = [one async for one in runner.run_async(user_id="kate", session_id="s", new_message=said)]
        return str(answers[-1].content.parts[0].text)

    assert [run(turn(text)) for text in ("hello", "again")] == ["turn 1", "turn 3"]
    assert len(app.get("s").events) == 4
