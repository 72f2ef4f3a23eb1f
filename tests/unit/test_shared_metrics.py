"""Counters that all processes share: sums in the broker that survive restarts, and nothing that others write there."""

from __future__ import annotations

import fakeredis
import pytest
import redis

from adapters.broker.shared_metrics import INGESTED, MESSAGE_LATENCY, SHARED_METRICS, WEBHOOKS, SharedMetrics
from reverie.errors import Unavailable


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


def process(server: fakeredis.FakeServer) -> SharedMetrics:
    """Metrics as another process has them."""
    return SharedMetrics(fakeredis.FakeRedis(server=server), prefix="t:")


def test_the_counts_of_processes_add_up_and_outlive_them(server: fakeredis.FakeServer) -> None:
    """Given two processes that counted and ended, then a third reads the sum of both."""
    for amount in (2, 3):
        worker = process(server)
        worker.count(INGESTED, "stored", amount=amount)
        worker.flush()
        worker.flush()  # a second time adds nothing

    samples = process(server).read()[INGESTED]

    assert [(sample.labels, sample.value) for sample in samples] == [(("stored",), 5.0)]


def test_a_measurement_falls_into_one_bucket(server: fakeredis.FakeServer) -> None:
    """Given times below, on and above the bounds, then each is in one bucket, and below zero counts as zero."""
    metrics = process(server)
    metrics.observe(MESSAGE_LATENCY, [-1.0, 0.05, 0.2], "stored")
    metrics.observe(MESSAGE_LATENCY, [9_999.0], "stored")
    metrics.flush()

    (sample,) = metrics.read()[MESSAGE_LATENCY]

    assert sample.value == pytest.approx(9_999.25)
    assert sum(sample.bucket_counts) == 4
    assert (sample.bucket_counts[0], sample.bucket_counts[2], sample.bucket_counts[-1]) == (2, 1, 1)


def test_a_label_that_is_not_declared_makes_no_series(server: fakeredis.FakeServer) -> None:
    """Given a value that is none of the known ones, then nothing is counted: the number of series is bounded."""
    metrics = process(server)
    metrics.count(INGESTED, "secretworkspace")
    metrics.observe(MESSAGE_LATENCY, [1.0], "secretagent")
    metrics.flush()

    assert fakeredis.FakeRedis(server=server).keys("*") == []


def test_without_a_broker_counts_wait_for_it(server: fakeredis.FakeServer) -> None:
    """Given a broker that is away, then flushing says so, and what was counted is added once it is back."""
    metrics = process(server)
    metrics.count(WEBHOOKS, "delivered")
    server.connected = False
    with pytest.raises(Unavailable):
        metrics.flush()
    metrics.count(WEBHOOKS, "delivered")
    server.connected = True
    metrics.flush()

    assert [sample.value for sample in metrics.read()[WEBHOOKS]] == [2.0]


@pytest.mark.parametrize("garbage", [b"many", b"nan", b"-5", b"1e300", b"\xff"])
def test_what_another_program_wrote_is_replaced(server: fakeredis.FakeServer, garbage: bytes) -> None:
    """Given garbage among the sums, then reading takes it for nothing, and counting goes on."""
    raw = redis.Redis.hset
    broker = fakeredis.FakeRedis(server=server)
    raw(broker, "t:metrics", "reverie_webhooks|gone", garbage)
    raw(broker, "t:metrics", "reverie_unknown|x|y", garbage)
    metrics = process(server)

    assert [sample.value for sample in metrics.read()[WEBHOOKS]] == [0.0]

    metrics.count(WEBHOOKS, "delivered")
    metrics.flush()
    assert {sample.labels[0]: sample.value for sample in metrics.read()[WEBHOOKS]} == {"delivered": 1.0, "gone": 0.0}


def test_the_number_of_series_is_bounded() -> None:
    """Given all declared labels, then they make some hundred series, however much is stored."""
    series = 0
    for metric in SHARED_METRICS:
        combinations = 1
        for values in metric.labels.values():
            combinations *= len(values)
        series += combinations * (len(metric.buckets) + 3 if metric.buckets else 1)
    assert series < 500
