"""The figures of a day: one sample a minute, bounded, and drawn as curves with gaps where nothing is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fakeredis
import pytest

from adapters.broker.inbox import WorkerInbox
from adapters.broker.monitor import Monitor
from memory.pipeline.broker_status import take_sample
from reverie.errors import Unavailable
from server.page.pipeline import HEIGHT, curves
from storage.pipeline.samples import MINUTE_MICROS, SAMPLES_KEPT, PipelineSample, PipelineSamples
from storage.stores import Stores
from support.pipeline import turns

NOW = 30_000_000 * MINUTE_MICROS


@pytest.fixture
def samples(tmp_path: Path) -> Iterator[PipelineSamples]:
    stores = Stores(tmp_path)
    yield stores.pipeline_samples()
    stores.close()


def sample(minute: int, accepted: int = 0, *, waiting: int = 0, lag: float | None = None) -> PipelineSample:
    return PipelineSample(minute, accepted, waiting, lag, lag)


def test_a_minute_has_one_sample(samples: PipelineSamples) -> None:
    """Given sweeps every few seconds, then the first of a minute is kept, with what the broker knows."""
    server = fakeredis.FakeServer()
    broker = fakeredis.FakeRedis(server=server)
    inbox, monitor = WorkerInbox(broker, prefix="t:"), Monitor(broker, prefix="t:")
    inbox.accept("w", turns("one", "two"))
    monitor.record_lags([0.5], now=NOW / 1_000_000)
    take_sample(samples, inbox, monitor, now=NOW)
    inbox.accept("w", turns("three"))
    take_sample(samples, inbox, monitor, now=NOW + MINUTE_MICROS - 1)
    take_sample(samples, inbox, monitor, now=NOW + MINUTE_MICROS)
    assert samples.last_day(now=NOW + MINUTE_MICROS) == [
        PipelineSample(30_000_000, 2, 2, 0.5, 0.5),
        PipelineSample(30_000_001, 3, 3, 0.5, 0.5),
    ]

    server.connected = False
    with pytest.raises(Unavailable):
        take_sample(samples, inbox, monitor, now=NOW + 2 * MINUTE_MICROS)


def test_a_day_is_kept(samples: PipelineSamples) -> None:
    """Given samples of more than a day, then a day of them is left; those of a clock that was ahead go."""
    for minute in (1, 2, 3, 20, SAMPLES_KEPT + 2, SAMPLES_KEPT + 9, SAMPLES_KEPT + 3):
        samples.add(sample(minute))
    assert [one.minute for one in samples.last_day(now=(SAMPLES_KEPT + 3) * MINUTE_MICROS)] == [
        20,
        SAMPLES_KEPT + 2,
        SAMPLES_KEPT + 3,
    ]


def test_curves_show_rates_and_gaps() -> None:
    """Given minutes, an hour without any, and a broker that counted anew, then rates are of what is known."""
    day = [sample(1_000, 0), sample(1_001, 60), sample(1_060, 60), sample(1_061, 180), sample(1_062, 3, waiting=7)]
    messages, lag, waiting = curves(day, minute=1_062)
    assert (messages.highest, messages.latest) == (2.0, 2.0)
    assert len(messages.lines) == 2
    assert messages.lines[0].split(",")[1] != messages.lines[1].split()[0].split(",")[1]
    assert (lag.lines, lag.highest, lag.latest) == ([], 0.0, None)
    assert (waiting.highest, waiting.latest) == (7.0, 7.0)


def test_a_flat_curve_lies_on_the_ground() -> None:
    """Given a day on which nothing happened, then the curve is a line at the bottom."""
    _, _, waiting = curves([sample(minute) for minute in range(100, 200)], minute=200)
    (line,) = waiting.lines
    assert {float(point.split(",")[1]) for point in line.split()} == {HEIGHT - 2.0}
