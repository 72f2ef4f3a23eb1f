"""Renews the plans that PostgreSQL keeps for a connection.

A plan is made from the sizes that the tables have at that moment, and kept until statistics are collected, which may be
minutes later. One that was made for empty tables reads all rows of a store for each row that it looks for. To plan each
statement anew costs more than carrying it out: with renewed plans the server used a third of the processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, event, exc

# Tables grow little in this time, and a hundred statements that are planned anew are a hundredth of it.
RENEW_SECONDS: Final = 5.0


def renew_plans(engine: Engine, *, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Let each connection of `engine` forget its plans when it is taken for use and they may be older than 5 s.

    Those of triggers and of references between tables are forgotten as well.
    """

    def on_checkout(raw: psycopg.Connection[Any], record: Any, _fairy: object) -> None:
        now = monotonic()
        if now - record.info.setdefault("planned_at", now) < RENEW_SECONDS:
            return
        record.info["planned_at"] = now
        try:
            raw.autocommit = True  # or it would begin the transaction of who takes the connection
            raw.execute("DISCARD PLANS")
            raw.autocommit = False
        except psycopg.OperationalError as error:
            raise exc.DisconnectionError from error

    event.listen(engine, "checkout", on_checkout)
