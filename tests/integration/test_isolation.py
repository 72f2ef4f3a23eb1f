"""No actor is shown a word of another, whatever random calls of all actors ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import storage.scheduling.schedules
from reverie.calls import Call
from reverie.pipeline.calls import IngestMessages
from reverie.scheduling.calls import AddSchedule, CompleteRun, Remind, RunScheduleNow
from server.app import endpoints
from server.authentication import Access
from support.http import running_server
from support.isolation.actors import Cast
from support.isolation.driver import Driver, Tally, tokens_of
from support.isolation.made_up_calls import Request, Requests
from support.isolation.traces import look_in_files
from support.isolation.webhooks import Webhooks
from support.stages import drain
from worker.runtime import Runtime
from worker.scheduling.jobs import deliver, execute

OPERATORS = "o" * 40
CALLS = 240
READS = ("schedules", "reminders", "notifications")
SCHEDULING = ("schedules", "runs", "reminders", "notifications")


class MostlyScheduling(Requests):
    """Random calls, of which most are about schedules."""

    def kind(self) -> type[Call[Any]]:
        """Return a random call."""
        tried = super().kind()
        while _family(tried) not in SCHEDULING and self._chance.random() < 0.7:
            tried = super().kind()
        return tried


def _family(kind: type[Call[Any]]) -> str:
    return kind.route.split("/")[2]


def played(make_runtime: Callable[..., Runtime], *, seed: int) -> Tally:
    """Play all actors for a while, the workers between their calls, and at the end every reading call of scheduling."""
    chance, cast = random.Random(seed), Cast()
    with Webhooks(cast) as webhooks:
        settings = {name.removeprefix("REVERIE_").lower(): value for name, value in webhooks.settings.items()}
        runtime = make_runtime(**settings)
        with (
            running_server(runtime, access=Access({"operator": OPERATORS})) as url,
            httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATORS}"}, trust_env=False) as operator,
        ):
            requests = MostlyScheduling(chance, cast=cast, webhook=webhooks.url)
            play = Driver(cast, requests, chance, url=url, tokens=tokens_of(cast, operator))
            for actor in cast.actors:  # so that there is something of everybody from the start
                for kind in (AddSchedule, Remind, RunScheduleNow, CompleteRun, IngestMessages):
                    play.send(requests.of(kind, actor), actor)
                if actor.in_group:
                    play.send(requests.in_group(actor), actor)
            for number in range(CALLS):
                play.step()
                if number % 60 == 59:
                    _work(runtime, cast)
            for actor in cast.actors:
                for kind in (endpoint.kind for endpoint in endpoints() if endpoint.kind.route.startswith("GET")):
                    if _family(kind) in SCHEDULING:
                        play.send(requests.of(kind, actor), actor)
                for path in READS:  # without any other filter
                    who = {} if actor.user is None else {"user": actor.user}
                    play.send(Request("read", "GET", f"/v1/{path}", path, query=who), actor)
            play.close()
        for place, text, found in webhooks.leaks():
            play.tally.add(place, "a webhook", text, found)
        look_in_files(runtime.settings.data, cast, play.tally)
    return play.tally


def _work(runtime: Runtime, cast: Cast) -> None:
    """Do what the workers would: store and index, execute the runs, and deliver."""
    for workspace in cast.workspaces():
        store = drain(runtime, workspace)
        with store.reading() as tx:
            pending = tx.connection.exec_driver_sql("SELECT id FROM schedule_runs WHERE status = 'pending'")
            runs: list[Any] = list(pending.scalars())
        for run in runs:
            execute(runtime, workspace, run)
    deliver(runtime, manual=True)


def test_no_actor_is_shown_a_word_of_another(make_runtime: Callable[..., Runtime]) -> None:
    """Given tenants, agents and users with words of their own, when all call everything, then no word gets about."""
    tally = played(make_runtime, seed=7)
    assert tally.examples == []
    assert tally.attacks > CALLS / 20
    assert tally.succeeded["read"] == len(READS) * len(Cast().actors)
    worked = {name for name, count in tally.succeeded.items() if count}
    assert worked >= {"AddSchedule", "RunScheduleNow", "Remind", "IngestMessages", "ListScheduleRuns"}


def test_a_leak_would_be_found(make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given lists of schedules that are not limited to a user, then the same calls find words of others."""
    monkeypatch.setattr(storage.scheduling.schedules, "of_schedule", lambda _viewer, _alias: "1")
    assert "GET /v1/schedules" in {leak.place for leak in played(make_runtime, seed=7).examples}
