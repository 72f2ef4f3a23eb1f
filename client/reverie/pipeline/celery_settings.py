"""The Celery settings on which producers and workers must agree."""

from __future__ import annotations

import threading
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from reverie import contract

# While it is imported, the package replaces itself in `sys.modules`. A thread that asks for it just then gets the one
# that was replaced, which has nothing in it.
_importing: Final = threading.Lock()


def celery_class() -> Any:
    """Return `celery.Celery`, imported by one thread at a time. The first import takes a quarter of a second."""
    with _importing:
        from celery import Celery

        return Celery


def celery_url(broker_url: str) -> str:
    """Convert a broker URL to kombu's: `unix:///run/b.sock?db=0` is `redis+socket:///run/b.sock?virtual_host=0`."""
    parts = urlsplit(broker_url)
    if parts.scheme != "unix":
        return broker_url
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{unquote(parts.path)}?virtual_host={database}"


def celery_settings(prefix: str) -> dict[str, Any]:
    """Return the Celery settings that both ends share: JSON only, one key prefix, no results, queues by task name."""
    return {
        "broker_transport_options": {
            "global_keyprefix": prefix,
            "visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS,
            # Return the messages of dead workers to their queue every 10 s; kombu's throttle would run only every
            # 100th.
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            # Without these, a broker that hangs blocks whoever sends or receives a task for as long as it hangs.
            "socket_connect_timeout": contract.BROKER_TIMEOUT_SECONDS,
            "socket_timeout": contract.BROKER_TIMEOUT_SECONDS,
        },
        "visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS,
        "result_backend_transport_options": {"visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS},
        "task_serializer": "json",
        "accept_content": ["json"],
        "result_serializer": "json",
        "task_ignore_result": True,
        # Whoever reaches the broker could otherwise stop workers, revoke tasks and read what they work on.
        "worker_enable_remote_control": False,
        "task_default_queue": contract.QUEUE_INGEST,
        "task_create_missing_queues": True,
        "task_routes": {name: {"queue": queue} for name, queue in contract.TASK_QUEUES.items()},
        "broker_connection_retry_on_startup": True,
        "enable_utc": True,
        "timezone": "UTC",
    }
