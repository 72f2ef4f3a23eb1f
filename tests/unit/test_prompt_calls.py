"""Calls that are not waited for longer than a limit, whatever they hang in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from adapters.calls import PromptCalls, ServiceUnavailable
from adapters.embedders.base import REMOTE, EmbedderUnavailable, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder

A_MOMENT = 0.05
LONG = 30.0


class Hanging:
    """Does not return before it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        assert self.let_go.wait(LONG)
        return "late"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.let_go.set()


def calls(wait_seconds: float = A_MOMENT) -> PromptCalls:
    return PromptCalls("the endpoint", ServiceUnavailable, wait_seconds)


def test_a_call_that_is_in_time_returns_its_result() -> None:
    assert calls(LONG).call(lambda: 7) == 7


def test_a_call_raises_what_the_function_raises() -> None:
    for error in (ValueError("odd"), TimeoutError("its own"), KeyboardInterrupt()):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            calls(LONG).call(fail)
        assert raised.value is error


def test_a_call_that_hangs_is_not_waited_for(hanging: Hanging) -> None:
    with pytest.raises(ServiceUnavailable, match=r"did not answer within 0\.05 s"):
        calls().call(hanging)


def test_while_a_call_is_late_others_fail_at_once(hanging: Hanging) -> None:
    prompt = calls()
    with pytest.raises(ServiceUnavailable):
        prompt.call(hanging)
    for _ in range(20):
        with pytest.raises(ServiceUnavailable, match="has not answered for"):
            prompt.call(hanging)
    assert hanging.calls == 1


def test_a_call_whose_thread_is_late_to_begin_is_late_too(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, threads = calls(), list[threading.Thread]()
    with monkeypatch.context() as busy:
        busy.setattr(threading.Thread, "start", lambda thread: threads.append(thread))  # it gets no processor
        with pytest.raises(ServiceUnavailable, match="did not answer within"):
            prompt.call(hanging)
        with pytest.raises(ServiceUnavailable, match="has not answered for"):
            prompt.call(hanging)
    hanging.let_go.set()
    for thread in threads:
        thread.run()
    assert hanging.calls == 1
    assert prompt.call(lambda: "well") == "well"


def test_a_call_that_gets_no_thread_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    prompt = calls(LONG)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ServiceUnavailable, match="did not answer within"):
            prompt.call(lambda: "well")
    assert prompt._began == {}
    assert prompt.call(lambda: "well") == "well"


def test_when_the_late_call_has_ended_others_are_made_again(hanging: Hanging) -> None:
    prompt = calls()
    with pytest.raises(ServiceUnavailable):
        prompt.call(hanging)
    hanging.let_go.set()
    for _ in range(2_000):
        try:
            assert prompt.call(lambda: "well") == "well"
            break
        except ServiceUnavailable:
            threading.Event().wait(0.005)
    else:
        pytest.fail("the late call has ended, and no other is made")


class HangingEndpoint(HashEmbedder):
    """An embedder behind HTTP whose host cannot be looked up, which takes no timeout."""

    device = REMOTE

    def __init__(self, hanging: Hanging) -> None:
        super().__init__()
        self.hanging = hanging

    def embed_query(self, text: str) -> np.ndarray:
        self.hanging()
        return super().embed_query(text)

    def load(self) -> None:
        self.hanging()


def test_a_recall_does_not_wait_for_an_endpoint_that_hangs(hanging: Hanging) -> None:
    guarded = GuardedEmbedder(HangingEndpoint(hanging), recall_wait_seconds=A_MOMENT)
    with pytest.raises(EmbedderUnavailable, match=r"did not answer within 0\.05 s"):
        guarded.for_recalls.load()
    with pytest.raises(EmbedderUnavailable, match="has not answered"):
        guarded.for_recalls.embed_query("where is the boat?")


def test_the_pipeline_waits_for_an_endpoint_as_long_as_its_requests_take(hanging: Hanging) -> None:
    guarded = GuardedEmbedder(HangingEndpoint(hanging), recall_wait_seconds=A_MOMENT)
    asked = threading.Thread(target=guarded.load)
    asked.start()
    asked.join(4 * A_MOMENT)
    assert asked.is_alive()
    hanging.let_go.set()
    asked.join(LONG)
    assert not asked.is_alive()


def test_a_model_in_this_process_is_waited_for() -> None:
    guarded = GuardedEmbedder(HashEmbedder(), recall_wait_seconds=A_MOMENT)
    assert guarded.for_recalls is guarded
