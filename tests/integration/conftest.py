"""A server over the runtime `here`, which each module makes as it needs it, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reverie import Reverie
from support.http import running_server
from worker.runtime import Runtime


@pytest.fixture
def url(here: Runtime) -> Iterator[str]:
    """The address of a server over the runtime."""
    with running_server(here) as address:
        yield address


@pytest.fixture
def ana(url: str) -> Iterator[Reverie]:
    """A client of the agent ana."""
    with Reverie("ana", url=url) as client:
        yield client
