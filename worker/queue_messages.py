"""What a worker takes from its queues: tasks as Reverie sends them, and nothing else.

Any program with access to the broker can write to a queue. Celery ends its worker on a message that is no JSON, has no
headers or names a time in another form, and obeys what a message asks for: time limits, other tasks to start, a date on
which to run. So a message is checked before Celery sees it; one that Reverie does not send is removed and logged by its
reason, without its content.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from queue import Empty
from typing import Any, Final

import structlog
from celery.worker.consumer import Consumer
from kombu.transport import redis as kombu_redis

from reverie import contract
from reverie.checks import check_workspace
from reverie.errors import Rejected

# A task carries the name of a workspace and ids: a kilobyte with everything around it.
MAX_MESSAGE_BYTES: Final = 64 * 1024
_MAX_TEXT: Final = 1_024
# Parameters that no message gives: what the process has, and a limit that is no text.
_OF_THE_PROCESS: Final = ("runtime", "scope")
_TEXTS: Final = ("workspace", "run")
_MAX_ID: Final = 255
# What is passed on of the headers of a task. Not among it: a time limit, since each task has its own.
_HEADERS: Final = (
    "id", "task", "lang", "expires", "retries", "root_id", "parent_id", "origin", "ignore_result", "argsrepr",
    "kwargsrepr", contract.TRACE_HEADER, contract.SENT_AT_HEADER,
)  # fmt: skip
_PROPERTIES: Final = ("delivery_tag", "delivery_info", "delivery_mode", "body_encoding", "correlation_id", "priority")

log = structlog.get_logger(__name__)


class Refused(ValueError):
    """A message that Reverie does not send; the text is the reason."""


def check_envelope(raw: object) -> None:
    """Check what the transport reads of a message, as it was in the queue. Raises `Refused`."""
    if not isinstance(raw, dict):
        raise Refused("it is no object")
    properties, headers, body = raw.get("properties"), raw.get("headers"), raw.get("body")
    if not isinstance(properties, dict) or not isinstance(headers, dict) or not isinstance(body, str):
        raise Refused("it has no properties, headers or body")
    delivery = properties.get("delivery_info")
    if not _is_text(properties.get("delivery_tag"), _MAX_ID) or not isinstance(delivery, dict):
        raise Refused("it has no delivery tag")
    if not all(isinstance(delivery.get(name), str) for name in ("exchange", "routing_key")):
        raise Refused("it does not say how it was sent")
    if properties.get("body_encoding") != "base64" or "compression" in headers:
        raise Refused("its body is in another encoding")
    if len(body) > MAX_MESSAGE_BYTES:
        raise Refused(f"it has more than {MAX_MESSAGE_BYTES:,} bytes")


def check_task(message: Any, tasks: Mapping[str, Any]) -> None:
    """Check a message whose envelope was checked, and leave of its headers what a task needs. Raises `Refused`.

    `tasks` are the registered ones by name; those of Celery itself are not meant for messages. Raises also what
    decoding raises.
    """
    headers: dict[str, Any] = message.headers
    name = headers.get("task")
    task = tasks.get(name) if isinstance(name, str) else None
    if task is None or not hasattr(task, "body"):
        raise Refused("it names no task of this worker")
    if not _is_text(headers.get("id"), _MAX_ID):
        raise Refused("it has no id")
    if headers.get("eta") is not None:
        raise Refused("it is for later")
    if (message.content_type, message.content_encoding) != ("application/json", "utf-8"):
        raise Refused("it is no JSON")
    message.headers = {name: headers[name] for name in _HEADERS if name in headers}
    message.properties = {name: message.properties[name] for name in _PROPERTIES if name in message.properties}
    if not all(value is None or isinstance(value, (str, int)) for value in message.headers.values()):
        raise Refused("a header has another type")
    expires = headers.get("expires")
    if expires is not None and not _is_text(expires, _MAX_ID):
        raise Refused("the time at which it expires is no text")
    _check_arguments(_arguments_in(message.payload), inspect.signature(task.body).parameters)


def _arguments_in(payload: object) -> dict[str, Any]:
    """Return the named arguments in a body. Raises `Refused` for anything else in it."""
    if not isinstance(payload, list) or len(payload) != 3:
        raise Refused("its body is not that of a task")
    positional, named, embedded = payload
    if positional != [] or not isinstance(named, dict) or not isinstance(embedded, dict):
        raise Refused("its body is not that of a task")
    if any(embedded.values()):
        raise Refused("it asks for other tasks to be started")
    return named


def _check_arguments(named: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raise `Refused` unless these are arguments of a task: names, ids and switches.

    A job is started by the clock with none, and by a person with `manual`; its first parameter is the runtime.
    """
    taken = {name: one for name, one in parameters.items() if name not in _OF_THE_PROCESS}
    missing = {name for name, one in taken.items() if one.default is one.empty} - named.keys()
    if missing or named.keys() - {*taken, "manual"}:
        raise Refused("its arguments are not those of its task")
    for name, value in named.items():
        if not isinstance(value, str if name in _TEXTS else bool) or len(str(value)) > _MAX_TEXT:
            raise Refused("an argument has another type")
    workspace = named.get("workspace")
    if workspace is not None and workspace != contract.ACCOUNT_STORE:
        try:
            check_workspace(workspace)
        except Rejected:
            raise Refused("it is about no workspace") from None


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= longest


def _refuse(error: Exception) -> None:
    # Not the text of an error of Python, which quotes the message.
    reason = str(error) if isinstance(error, Refused) else f"it cannot be read ({type(error).__name__})"
    log.warning("task_message_refused", reason=reason)


class _Acknowledging(kombu_redis.QoS):
    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put the message of a dead worker back into its queue, or remove it if it cannot be read."""
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]
        except (*self.channel.connection_errors, *self.channel.connection.channel_errors):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to what others have written
            _refuse(error)
            with self.pipe_or_acquire(None, client) as pipe:
                self._remove_from_indices(tag, pipe).execute()  # type: ignore[no-untyped-call]


class Channel(kombu_redis.Channel):
    """A channel of Redis that removes from its queues what it cannot read."""

    QoS = _Acknowledging

    def _brpop_read(self, **options: Any) -> Any:
        """Read one message that has arrived, and pass it on."""
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except KeyError as error:  # which kombu counts among the errors of a connection
            _refuse(error)
        except (Empty, *self.connection_errors, *self.connection.channel_errors):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to what others have written
            _refuse(error)
        return None


class Transport(kombu_redis.Transport):
    """The transport of Redis whose channels check what they deliver."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        check_envelope(message)
        super()._deliver(message, queue)  # type: ignore[no-untyped-call]


class QueueConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """The consumer of a worker that is given only tasks as Reverie sends them."""

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, with a transport that checks what it delivers."""
        if conn.transport_cls in ("redis", "rediss"):
            conn.transport_cls = Transport
        return super().ensure_connected(conn)

    def create_task_handler(self, *arguments: Any, **keywords: Any) -> Callable[[Any], None]:
        """Return the function that is called with each message."""
        handle = super().create_task_handler(*arguments, **keywords)

        def on_message(message: Any) -> None:
            try:
                check_task(message, self.app.tasks)
                handle(message)
            except (*self.connection_errors, *self.connection.channel_errors) as error:
                if not isinstance(error, KeyError):
                    raise
                self._remove(message, error)
            except Exception as error:  # noqa: BLE001 - the boundary to what others have written
                self._remove(message, error)

        return on_message

    def _remove(self, message: Any, error: Exception) -> None:
        _refuse(error)
        if not message.acknowledged:
            message.reject()
