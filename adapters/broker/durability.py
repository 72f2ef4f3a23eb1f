"""Whether a broker keeps what it acknowledges, as far as it tells its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import redis

from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker


def durability_warnings(broker: redis.Redis, *, flushed: bool) -> list[str]:
    """Return what of a broker's configuration could lose accepted messages, each with what to set.

    With `flushed`, something else flushes its file to the disk, as the process `broker-sync` does. What the broker does
    not tell is not warned of. Raises `Unavailable` if it does not answer.
    """
    found = {**_info(broker, "persistence"), **_info(broker, "memory"), **_info(broker, "replication")}
    fsync = _setting(broker, "appendfsync")
    warnings = []
    if str(found.get("aof_enabled", "1")) == "0":
        warnings.append("it keeps no file of its writes, so a restart loses what is queued: set `appendonly yes`")
    elif fsync == "everysec":
        warnings.append(
            "if it is killed while its disk is slow, it may lose writes that it has acknowledged: set"
            " `appendfsync always`"
        )
    elif fsync == "no" and not flushed:
        warnings.append(
            "a power cut can lose the last half minute of its writes: set `appendfsync always`, or run broker-sync and"
            " set REVERIE_BROKER_FLUSHED=true"
        )
    policy = str(found.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        warnings.append(f"it removes messages when its memory is full ({policy}): set `maxmemory-policy noeviction`")
    if found.get("role") == "slave":
        warnings.append("it is a replica and takes no writes: name the primary server in REVERIE_BROKER")
    if str(found.get("aof_last_write_status", "ok")) != "ok":
        warnings.append("it cannot write its file: is its disk full?")
    return warnings


def _info(broker: redis.Redis, section: str) -> Mapping[str, Any]:
    try:
        return cast("Mapping[str, Any]", call_broker(lambda: broker.info(section)))
    except Unavailable as error:
        if isinstance(error.__cause__, redis.ResponseError):  # its user may not ask
            return {}
        raise


def _setting(broker: redis.Redis, name: str) -> str:
    try:
        found = cast("Mapping[str, str]", call_broker(lambda: broker.config_get(name)))
    except Unavailable as error:
        if isinstance(error.__cause__, redis.ResponseError):  # its user may not ask, or a provider hides it
            return ""
        raise
    return found.get(name, "")
