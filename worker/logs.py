"""One log for everything: structlog's own events and those of Celery, Uvicorn and the rest, in one form.

Every line carries the process and, within a task or a request, the trace id. Content of messages is never logged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog

from worker.settings import Settings

# What these say at INFO is about themselves, a line for each request or task.
_QUIET = ("httpx2", "httpcore2", "uvicorn.access", "celery.worker.strategy", "celery.app.trace", "kombu", "alembic",
          "sentence_transformers", "filelock", "transformers", "celery.beat", "celery.redirected")  # fmt: skip


def configure_logging(settings: Settings, *, process: str) -> None:
    """Send every log line through structlog, to standard error. Safe to call again in a forked child."""
    shared: Sequence[Any] = (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_drop_meta, *_renderer(settings)])
    )
    # A full disk is told where it is met; a traceback for each line that could not be written would bury that.
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.bind_contextvars(process=process, pid=os.getpid())


def log_to_standard_error() -> None:
    """Keep what is logged out of the answer of a command, which stands on standard output. A log that is set stays."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _plain(colors=False),
        ],
        # Looked up for each line: who runs commands in its own process may put another stream there.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _renderer(settings: Settings) -> list[Any]:
    console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    if console:
        return [_plain(colors=sys.stderr.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _plain(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """For people. The default shows local variables with an error, and with them what was said."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _drop_meta(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event
