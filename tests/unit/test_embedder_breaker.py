"""The breaker round an embedder: open after a failure, one probe after the wait, closed by success."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import EmbedderUnavailable, EmbeddingRefused, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder


class Scripted(HashEmbedder):
    """Raises what `failure` holds; counts the calls that reach it."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.calls = 0

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return super().embed_query(text)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def inner() -> Scripted:
    return Scripted()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guarded(inner: Scripted, clock: Clock) -> GuardedEmbedder:
    return GuardedEmbedder(inner, clock=clock)


def fail(guarded: GuardedEmbedder) -> EmbedderUnavailable:
    with pytest.raises(EmbedderUnavailable) as caught:
        guarded.embed_query("x")
    return caught.value


def test_an_open_breaker_does_not_call(inner: Scripted, guarded: GuardedEmbedder, clock: Clock) -> None:
    inner.failure = EmbedderUnavailable("connection refused")
    assert guarded.state == "up"

    fail(guarded)
    again = fail(guarded)

    assert inner.calls == 1
    assert guarded.state == "down"
    assert guarded.last_error == "connection refused"
    assert guarded.retry_at == clock.now + 1
    assert "connection refused" in str(again)
    assert again.retry_after_seconds == pytest.approx(1)


def test_waits_double_to_a_minute(inner: Scripted, guarded: GuardedEmbedder, clock: Clock) -> None:
    inner.failure = EmbedderUnavailable("down")
    waits = []
    for _ in range(8):
        fail(guarded)
        assert guarded.retry_at is not None
        waits.append(guarded.retry_at - clock.now)
        clock.now = guarded.retry_at

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert inner.calls == 8


def test_success_closes_and_forgets(inner: Scripted, guarded: GuardedEmbedder, clock: Clock) -> None:
    inner.failure = EmbedderUnavailable("down")
    fail(guarded)
    clock.now += 1
    fail(guarded)
    clock.now += 2
    inner.failure = None

    guarded.embed_query("x")

    assert (guarded.state, guarded.last_error, guarded.retry_at) == ("up", "", None)
    inner.failure = EmbedderUnavailable("down")
    fail(guarded)
    assert guarded.retry_at == clock.now + 1


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 1), (120.0, 120), (1e9, 600)])
def test_the_wait_asked_for_is_kept_within_reason(
    inner: Scripted, guarded: GuardedEmbedder, clock: Clock, asked: float, waited: float
) -> None:
    inner.failure = EmbedderUnavailable("limited", retry_after_seconds=asked)

    fail(guarded)

    assert guarded.retry_at == clock.now + waited


def test_a_refused_text_says_nothing_of_the_embedder(inner: Scripted, guarded: GuardedEmbedder, clock: Clock) -> None:
    inner.failure = EmbeddingRefused("too long")
    with pytest.raises(EmbeddingRefused):
        guarded.embed_query("x")
    assert guarded.state == "up"

    inner.failure = EmbedderUnavailable("down")
    fail(guarded)
    clock.now += 1
    inner.failure = EmbeddingRefused("too long")
    for _ in range(2):
        with pytest.raises(EmbeddingRefused):
            guarded.embed_query("x")


def test_one_probe_goes_through_and_others_do_not_wait_for_it(clock: Clock) -> None:
    entered, finish = threading.Event(), threading.Event()

    class Slow(Scripted):
        def embed_query(self, text: str) -> NDArray[np.float32]:
            if self.failure is None:
                entered.set()
                assert finish.wait(60)
            return super().embed_query(text)

    inner = Slow()
    guarded = GuardedEmbedder(inner, clock=clock)
    inner.failure = EmbedderUnavailable("down")
    fail(guarded)
    clock.now += 1
    inner.failure = None
    probe = threading.Thread(target=guarded.embed_query, args=("x",))
    probe.start()
    assert entered.wait(60)

    fail(guarded)

    finish.set()
    probe.join()
    assert guarded.state == "up"


def test_while_one_thread_loads_the_model_others_do_not_wait(inner: Scripted, guarded: GuardedEmbedder) -> None:
    """Given a model that a thread loads, then a call of another fails at once, without counting as an outage."""
    loading, release = threading.Event(), threading.Event()

    def load() -> None:
        with guarded.loading_here():
            loading.set()
            release.wait()
            guarded.embed_query("warm up")

    loader = threading.Thread(target=load)
    loader.start()
    loading.wait()
    for call in (guarded.load, lambda: guarded.embed(["x"]), lambda: guarded.embed_query("x")):
        with pytest.raises(EmbedderUnavailable, match="hash-64 is being loaded"):
            call()
    release.set()
    loader.join()

    assert guarded.state == "up"
    assert guarded.embed_query("x").shape == (64,)
    assert inner.calls == 2
