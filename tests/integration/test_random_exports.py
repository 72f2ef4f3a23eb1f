"""What random calls of many actors leave behind comes back from an export as it was, whatever it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from reverie import Reverie
from reverie.contract import ACCOUNT_STORE
from server.authentication import Access
from storage.verify import verify
from support.exports import ALL, records_of
from support.http import running_server
from support.isolation.actors import Cast
from support.isolation.driver import Driver, tokens_of
from support.isolation.made_up_calls import Requests
from support.stages import drain
from worker.runtime import Runtime

OPERATORS = "o" * 40
CALLS = 200
# Where webhooks of the made-up schedules would go: nobody serves them here.
WEBHOOK = "http://127.0.0.1:9/"
# They take away what is to be exported, or leave an open run, which no other installation takes.
LEFT_OUT = {"DeleteWorkspace", "Erase", "RunScheduleNow"}


class Storing(Requests):
    """Random calls that leave something behind."""

    def kind(self) -> type:
        """Return a random call that is not left out."""
        while (tried := super().kind()).__name__ in LEFT_OUT:
            pass
        return tried


@contextmanager
def operated(make_runtime: Callable[..., Runtime], data: Path) -> Iterator[tuple[Runtime, str]]:
    """Run an installation of its own, and yield its runtime and address."""
    runtime = make_runtime(data=data, broker_prefix=f"t-{data.name}:", webhook_allow_private="127.0.0.1")
    with running_server(runtime, access=Access({"operator": OPERATORS})) as url:
        yield runtime, url


@pytest.mark.parametrize("seed", [20261122])
def test_whatever_was_stored_comes_back(make_runtime: Callable[..., Runtime], tmp_path: Path, seed: int) -> None:
    """Given what random calls left, when it is exported, imported into an empty installation, and exported again, then
    both exports have the same records, importing again adds nothing, and the databases are consistent."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with operated(make_runtime, tmp_path / "one") as (runtime, url):
        _play(runtime, url, seed)
        with Reverie("operator", url=url, token=OPERATORS) as operator:
            parts = operator.admin.export_file(first).parts
    assert len(parts) >= 6, "the test must have something of most kinds"
    with (
        operated(make_runtime, tmp_path / "two") as (runtime, url),
        Reverie("operator", url=url, token=OPERATORS) as operator,
    ):
        done = operator.admin.import_file(first, **ALL)
        assert done.added == {part: found.records for part, found in parts.items()}
        _work(runtime)
        assert operator.admin.import_file(first, **ALL).added == {}
        operator.admin.export_file(second)
        assert [
            found for name in runtime.stores.all_names() for found in verify(runtime.stores.workspace(name)).wrong
        ] == []
    assert records_of(second) == records_of(first)


def _play(runtime: Runtime, url: str, seed: int) -> None:
    chance, cast = random.Random(seed), Cast()
    credentials = {"Authorization": f"Bearer {OPERATORS}"}
    with httpx2.Client(base_url=url, headers=credentials, trust_env=False) as operator:
        tokens = tokens_of(cast, operator)
    play = Driver(cast, Storing(chance, cast=cast, webhook=WEBHOOK), chance, url=url, tokens=tokens)
    for number in range(CALLS):
        play.step()
        if number % 50 == 49:
            _work(runtime)
    play.close()


def _work(runtime: Runtime) -> None:
    for name in [*runtime.stores.names(), ACCOUNT_STORE]:
        drain(runtime, name)
