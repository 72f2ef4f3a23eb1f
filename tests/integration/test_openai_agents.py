"""The session of the OpenAI Agents SDK: what is added comes back, and can be recalled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

from reverie import Rejected, Reverie, Unavailable
from reverie.frameworks.openai_agents import ReverieSession
from support.http import running_server
from support.stages import drain, pipeline_at_work
from worker.runtime import Runtime

_T = TypeVar("_T")

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "I moved to Lisbon in May."},
    {"role": "developer", "content": "Be kind."},
    {"id": "r1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "She asks about lanterns."}]},
    {"type": "reasoning", "id": "r2", "summary": [], "encrypted_content": "gAAAA"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"town": "Cacilhas"}', "id": "f1"},
    {"type": "function_call_output", "call_id": "c1", "output": "Fog, 14 degrees"},
    {"type": "computer_call", "id": "x", "call_id": "c2", "action": {"type": "click", "x": 1}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "c2", "output": {"type": "computer_screenshot", "image_url": "data:x"}},
    {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A heron flew by.", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 100_000}]},
    {"role": "user", "content": 'こんにちは 😊 \x00 \ud800 \u2028 O\'Reilly "quoted" \\ back\nlines\t'},
    {"nobody": {"knows": [1, 2.5, None, True, {"deep": [[[[]]]]}]}},
    {"role": "user", "content": ""},
    {},
]


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server whose pipeline works."""
    set_tracing_disabled(disabled=True)
    with running_server(runtime) as address, pipeline_at_work(runtime):
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Reverie]:
    """A client of the agent ana."""
    with Reverie("ana", url=url) as ana:
        yield ana


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


def add(session: ReverieSession, *items: Any) -> None:
    run(session.add_items(list(items)))


def get(session: ReverieSession, limit: int | None = None) -> list[Any]:
    return cast("list[Any]", run(session.get_items(limit)))


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def test_every_item_comes_back_as_it_was_added(client: Reverie) -> None:
    """Given items of all kinds, when they are added, then they are read at once, the same and in order."""
    session = ReverieSession("s", client)
    assert isinstance(session, Session)
    add(session, *ITEMS[:4])
    add(session)
    add(session, *ITEMS[4:])
    assert get(session) == ITEMS
    assert get(ReverieSession("s", client)) == ITEMS


def test_items_are_messages_that_can_be_recalled(client: Reverie, runtime: Runtime) -> None:
    """Given items, then what was said, a tool's arguments and its result are found, and no part of an image."""
    add(ReverieSession("s", client, user="kate"), *ITEMS)
    drain(runtime)
    for query in ("moved to Lisbon", "weather Cacilhas", "Fog", "heron", "lanterns"):
        assert client.recall(query, mode="keyword", user="kate"), query
    assert not client.recall("AAAAAAAAAA", mode="keyword", user="kate")
    assert not client.recall("heron", mode="keyword", user="luis").results
    roles = [message.role for message in client.sessions.messages("s")]
    assert roles[:6] == ["user", "system", "assistant", "assistant", "assistant", "tool"]


def test_a_limit_is_that_of_the_last_items(client: Reverie) -> None:
    """Given five items, then a limit returns the last ones; without one, that of the settings applies."""
    session = ReverieSession("s", client, session_settings={"limit": 3})
    items = said(*"abcde")
    add(session, *items)
    assert get(session) == items[2:]
    assert get(session, 2) == items[3:]
    assert get(session, 10) == items
    assert get(session, 0) == get(session, -1) == []
    session.session_settings = SessionSettings()
    assert get(session) == items


def test_more_items_than_a_page_has_are_read_in_order(client: Reverie) -> None:
    """Given 2,300 items in one call, then all of them come back."""
    items = said(*(f"turn {number}" for number in range(2_300)))
    session = ReverieSession("s", client)
    add(session, *items)
    assert get(session) == items
    assert get(session, 1_100) == items[-1_100:]


def test_the_last_item_is_popped_until_none_is_left(client: Reverie) -> None:
    """Given items in two sessions, then each pop removes the last one of its own session."""
    session, other = ReverieSession("s", client), ReverieSession("other", client)
    assert run(session.pop_item()) is None
    add(session, *said("a", "b"))
    add(other, *said("c"))
    assert [run(session.pop_item()) for _ in range(3)] == [*said("b", "a"), None]
    assert (get(session), get(other)) == ([], said("c"))
    add(session, *said("d"))
    assert get(session) == said("d")


def test_no_item_is_popped_twice(client: Reverie) -> None:
    """Given items and as many pops at once, of two sessions of one id, then each item is returned once."""
    items = said(*map(str, range(12)))
    both = [ReverieSession("s", client), ReverieSession("s", client)]
    add(both[0], *items)

    async def pop_all() -> list[Any]:
        return await asyncio.gather(*(both[number % 2].pop_item() for number in range(14)))

    popped = [item for item in run(pop_all()) if item is not None]
    assert sorted(popped, key=lambda item: int(item["content"])) == items


def test_items_that_are_added_at_once_are_all_there(client: Reverie) -> None:
    """Given additions from event loops of several threads, then none is lost."""
    session = ReverieSession("s", client)
    items = said(*map(str, range(10)))
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda item: add(session, item), items))
    assert sorted(item["content"] for item in get(session)) == [str(number) for number in range(10)]


def test_a_cleared_session_is_forgotten_and_can_be_used_at_once(client: Reverie, runtime: Runtime) -> None:
    """Given a session, when it is cleared, then nothing of it is found, and what is added then is there alone."""
    session = ReverieSession("s", client)
    run(session.clear_session())
    add(session, *said("The heron lantern burns."))
    drain(runtime)
    run(session.clear_session())
    assert get(session) == []
    assert not client.recall("heron", mode="keyword")
    add(session, *said("plums"))
    assert get(session) == said("plums")


def test_a_change_is_complete_when_its_cancelled_task_ends(client: Reverie) -> None:
    """Given an addition whose task is cancelled while it is made, then it ends afterwards, and the item is there."""
    session = ReverieSession("s", client)

    async def cancel() -> None:
        task = asyncio.ensure_future(session.add_items(cast("list[Any]", said("a"))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert get(session) == said("a")


def test_messages_of_other_callers_are_items_too(client: Reverie, runtime: Runtime) -> None:
    """Given messages that were ingested, then they are items with role and content, except results of tools."""
    client.ingest("s", [*said("hello"), {"role": "tool", "content": "42"}, {"role": "assistant", "content": "hi"}])
    drain(runtime)
    session = ReverieSession("s", client)
    assert get(session) == get(session, 2) == [*said("hello"), {"role": "assistant", "content": "hi"}]
    assert [run(session.pop_item()) for _ in range(3)] == [{"role": "assistant", "content": "hi"}, *said("hello"), None]


def test_what_cannot_be_added_is_refused_before_anything_is(client: Reverie) -> None:
    """Given an item that is too large, no object, or not JSON, then nothing of the call is added."""
    session = ReverieSession("s", client)
    for bad, error in (({"role": "user", "content": "x" * 3_200_000}, Rejected), ("text", Rejected), ({1j}, Rejected)):
        with pytest.raises(error):
            add(session, *said("a"), bad)
    with pytest.raises(TypeError):
        add(session, *said("a"), {"role": "user", "content": object()})
    assert get(session) == []
    add(session, large := {"role": "user", "content": "é" * 1_300_000})
    assert get(session) == [large]
    for name in ("", " ", "a\nb", "x" * 300):
        with pytest.raises(Rejected, match="session_id"):
            ReverieSession(name, client)
    with pytest.raises(TypeError, match=r"must be a reverie\.Reverie"):
        ReverieSession("s", cast("Any", object()))


def test_sessions_whose_ids_differ_in_case_or_blanks_are_apart(client: Reverie) -> None:
    """Given ids that look alike or need escapes in a path, then each has its own items."""
    names = ["Foo", "foo", "foo ", " foo", "a/b?c=d&e#f", "..", "ü", "100%"]
    for name in names:
        add(ReverieSession(name, client), *said(name))
    for name in names:
        assert get(ReverieSession(name, client)) == said(name)


def test_a_server_that_is_down_is_named_in_the_error() -> None:
    """Given no server, then reading says which address does not answer and what to do."""
    session = ReverieSession("s", Reverie("ana", url="http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match="reverie up"):
        get(session)


@pytest.mark.parametrize("way", ["run", "run_sync", "run_streamed"])
def test_an_agent_goes_on_with_its_conversation(client: Reverie, way: str) -> None:
    """Given an agent with a tool, when it runs twice, then the model sees the first turn with its call."""

    @function_tool
    def weather(town: str) -> str:
        """Return the weather."""
        return f"Fog in {town}"

    model = ScriptedModel()
    agent = Agent(name="guide", model=model, tools=[weather])
    session = ReverieSession("s", client)

    def turn(text: str) -> str:
        if way == "run_sync":
            with ThreadPoolExecutor(1) as thread:
                return str(thread.submit(_run_sync, agent, text, session).result().final_output)
        return str(run(_streamed(agent, text, session) if way == "run_streamed" else _run(agent, text, session)))

    model.enqueue([function_call("weather", {"town": "Lisbon"}, call_id="c1")])
    model.enqueue([assistant_message("Foggy.")])
    assert turn("How is Lisbon?") == "Foggy."
    model.enqueue([assistant_message("Lisbon.")])
    assert turn("Which town was it?") == "Lisbon."
    history = cast("list[Any]", model.calls[-1].input)
    assert [item.get("type", item.get("role")) for item in history] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
        "user",
    ]
    assert len(get(session)) == 6


async def _run(agent: Agent[Any], text: str, session: ReverieSession) -> Any:
    return (await Runner.run(agent, text, session=session)).final_output


async def _streamed(agent: Agent[Any], text: str, session: ReverieSession) -> Any:
    result = Runner.run_streamed(agent, text, session=session)
    async for _ in result.stream_events():
        pass
    return result.final_output


def _run_sync(agent: Agent[Any], text: str, session: ReverieSession) -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return Runner.run_sync(agent, text, session=session)
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def test_a_closed_session_refuses_all_calls(client: Reverie) -> None:
    """Given a closed session, then no call passes, not even one with nothing to do, and the items are still there."""
    session = ReverieSession("chat", client)
    run(session.add_items(cast("Any", ITEMS[:1])))
    session.close()
    for call in (session.get_items, lambda: session.add_items([]), session.pop_item, session.clear_session):
        with pytest.raises(RuntimeError, match="ReverieSession is closed"):
            run(cast("Any", call()))
    assert run(ReverieSession("chat", client).get_items()) == ITEMS[:1]


def test_a_setting_that_the_sdk_does_not_know_is_refused(client: Reverie) -> None:
    with pytest.raises(TypeError, match="Unknown session settings: limitt"):
        ReverieSession("chat", client, session_settings={"limitt": 1})
