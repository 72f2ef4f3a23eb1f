"""Configures one log for structlog and the standard library, and so for Celery, Uvicorn and all other packages.

Every line has the process and, within a task or a request, the trace id. Message content is never logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import MutableMapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from worker.settings import Settings

# Loggers with a line for each request or task at INFO, which are limited to warnings.
_NOISY_LOGGERS = (
    "celery.app.trace", "celery.beat", "celery.redirected", "celery.worker.strategy", "filelock", "httpcore2",
    "httpx2", "kombu", "sentence_transformers", "transformers", "uvicorn.access",
)  # fmt: skip


# A token, even if it was cut off or lengthened.
_TOKEN = re.compile(r"rv_[A-Za-z0-9_-]{16,}")


# The file that `reverie up` writes the output of a process to.
LOG_FILE: Final = "REVERIE_LOG_FILE"
_OUTPUTS: Final = (1, 2)


class RotatedLog(logging.handlers.WatchedFileHandler):
    """Writes to a log file that may be renamed at any time: the next line goes to a new file of its name.

    With `owns_outputs`, standard output and error of the process go there, too, for texts that bypass the log.
    """

    def __init__(self, path: Path, *, owns_outputs: bool) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._owns_outputs = owns_outputs

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. A file that cannot be opened again, as on a full disk, must not fail the caller of the log."""
        before = self.stream
        try:
            super().emit(record)
        except OSError:
            return
        if self._owns_outputs and self.stream is not None and self.stream is not before:
            for output in _OUTPUTS:
                os.dup2(self.stream.fileno(), output)


def configure_logging(settings: Settings, *, process: str, file: Path | None = None) -> None:
    """Send every log line through structlog, to standard error, or to a file. Safe to call again in a forked child.

    The file is `file`, else the one that `reverie up` names.
    """
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
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    path = file or (Path(os.environ[LOG_FILE]) if LOG_FILE in os.environ else None)
    unopened: OSError | None = None
    if path is not None:
        try:
            handler = RotatedLog(path, owns_outputs=file is None)
        except OSError as error:  # a process works without its log
            unopened = error
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_drop_meta, *_renderer(settings)])
    )
    # A full disk is reported where it happens; a traceback for each failed log line would hide that report.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.bind_contextvars(process=process, pid=os.getpid())
    if unopened is not None:
        reason = unopened.strerror or str(unopened)
        structlog.get_logger(__name__).warning("log_file_not_opened", path=str(path), error=reason)


def log_to_standard_error() -> None:
    """Log to standard error, because the output of a command goes to standard output. A configured log is kept."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _plain(colors=False),
            _without_tokens,
        ],
        # Looked up for each line: a test that runs commands in its own process may replace the stream.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def logs_json(settings: Settings) -> bool:
    """Return whether each line of the log is a JSON object."""
    return settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())


def write_line(event: str, _stream: object = None) -> None:
    """Write a JSON line to the log from a signal handler, which may have interrupted a logger that holds its lock."""
    bound = structlog.contextvars.get_contextvars()
    line = {"event": event, **bound, "level": "info", "timestamp": datetime.now(UTC).isoformat()}
    stream = getattr(logging.getLogger().handlers[0], "stream", None)
    with contextlib.suppress(OSError):
        os.write(2 if stream is None else stream.fileno(), f"{json.dumps(line)}\n".encode())


def _renderer(settings: Settings) -> list[Any]:
    if not logs_json(settings):
        return [_plain(colors=sys.stderr.isatty()), _without_tokens]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(), _without_tokens]


def _plain(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """Return the renderer for terminals. The default would print local variables, and so message content, on errors."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _without_tokens(_logger: object, _name: str, line: Any) -> str:
    """Return a line of the log without tokens. No code logs a token on purpose."""
    return _TOKEN.sub("rv_(removed)", str(line))


def _drop_meta(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event
