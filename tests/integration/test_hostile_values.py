"""Whatever a call is sent, its answer says what is wrong with it, and nothing about the installation behind it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from server.app import endpoints
from server.authentication import Access
from support.http import running_server
from support.isolation.actors import Cast
from support.isolation.driver import tokens_of
from support.isolation.made_up_calls import Request, Requests
from worker.runtime import Runtime

OPERATORS: Final = "o" * 40
HOSTILE: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    10**30,
    1e308,
    "",
    "\0",
    "\u202e'\"; DROP TABLE messages; --",
    "../../../etc/passwd",
    "9999-12-31T23:59:59-14:00",
    "x" * 5_000,
    [[]],
    {"": {}},
)
# Paths, statements, and names of tables and columns that no answer has a reason to hold.
INTERNALS: Final = re.compile(
    r"site-packages|Traceback|sqlite|sqlalchemy|psycopg|constraint failed|no such (?:table|column)|datatype mismatch"
    r"|\b(?:SELECT|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b|\w+_row\b|row_id|agent_id|\.db\b",
)


def mutated(request: Request, chance: random.Random) -> Iterator[tuple[str, Request]]:
    """Yield a request with each of its fields hostile in turn."""
    body = request.body
    for field in body or {}:
        for value in chance.sample(HOSTILE, 9):
            yield f"{field}={value!r:.40}", replace(request, body={**body, field: value})
    for field in request.query:
        for value in chance.sample(HOSTILE, 9):
            yield f"{field}={value!r:.40}", replace(request, query={**request.query, field: str(value)})
    *_, last = request.path.split("/")
    for value in chance.sample([one for one in HOSTILE if isinstance(one, str) and one], 5):
        path = request.path.removesuffix(last) + quote(value, safe="")
        yield f"path {value!r:.40}", replace(request, path=path)


@pytest.mark.slow
def test_no_answer_tells_of_paths_tables_or_statements(make_runtime: Callable[..., Runtime]) -> None:
    """Given every call with hostile values, then no answer is a crash, or names a path, a table or a statement."""
    chance, cast, runtime = random.Random(12), Cast(), make_runtime()
    told: list[str] = []
    with (
        running_server(runtime, access=Access({"operator": OPERATORS})) as url,
        httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATORS}"}, trust_env=False) as operator,
    ):
        requests = Requests(chance, cast=cast, webhook="https://example.com/hook")
        tokens = tokens_of(cast, operator)
        actor = cast.actors[0]
        for kind in (endpoint.kind for endpoint in endpoints()):
            sent = zip(mutated(requests.of(kind, actor), chance), cycle((OPERATORS, tokens[actor])), strict=False)
            for (what, request), token in sent:
                response = operator.request(
                    request.method,
                    request.path,
                    params=dict(request.query),
                    content=None if request.body is None else msgspec.json.encode(request.body),
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                )
                text = response.text if response.is_error else ""
                if response.status_code == 500 or INTERNALS.search(text) or str(runtime.settings.data) in text:
                    told.append(f"{kind.__name__} {what}: {response.status_code} {text[:300]}")
    assert told == []
