"""Takes messages from a worker's queues, and does so again after the broker was unavailable.

A message that is no task of Reverie is removed. Failures while the broker is away must not keep the worker from taking
messages later, or block its event loop, which also looks after the pool.

A worker accepts only tasks in the form in which Reverie sends them.

Any program with access to the broker can write to a queue. Celery ends its worker on a message that is no JSON, has no
headers or names a time in another form, and obeys what a message asks for: time limits, other tasks to start, a date on
which to run. So each message is checked before Celery sees it; a message that Reverie cannot have sent is removed, and
the reason is logged without its content.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import Empty
from typing import Any, Final

import structlog
from billiard.exceptions import WorkerLostError
from celery import signals
from celery.app import events
from celery.events.dispatcher import EventDispatcher
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from reverie import contract
from reverie.checks import check_workspace
from reverie.errors import Rejected
from worker.consumption import Consumption

# A task has the name of a workspace and ids: a kilobyte in all.
MAX_MESSAGE_BYTES: Final = 64 * 1024
_MAX_TEXT: Final = 1_024
# Parameters that a message must not set: the runtime of the process, and a scope, which is no text.
_NOT_IN_MESSAGES: Final = ("runtime", "scope")
_TEXTS: Final = ("workspace", "run")
_MAX_ID: Final = 255
# The headers that are passed on, without time limits, since each task has its own.
_HEADERS: Final = (
    "id", "task", "lang", "expires", "retries", "root_id", "parent_id", "origin", "ignore_result", "argsrepr",
    "kwargsrepr", contract.TRACE_HEADER, contract.SENT_AT_HEADER,
)  # fmt: skip
_PROPERTIES: Final = ("delivery_tag", "delivery_info", "delivery_mode", "body_encoding", "correlation_id", "priority")

log = structlog.get_logger(__name__)


class Refused(ValueError):
    """A message that Reverie does not send; the text is the reason."""


def check_envelope(raw: object) -> None:
    """Check the parts of a queued message that the transport reads. Raises `Refused`."""
    if not isinstance(raw, dict):
        raise Refused("it is no object")
    properties, headers, body = raw.get("properties"), raw.get("headers"), raw.get("body")
    if not isinstance(properties, dict) or not isinstance(headers, dict) or not isinstance(body, str):
        raise Refused("it has no properties, headers or body")
    delivery = properties.get("delivery_info")
    if not _is_short_text(properties.get("delivery_tag")) or not isinstance(delivery, dict):
        raise Refused("it has no delivery tag")
    if not all(isinstance(delivery.get(name), str) for name in ("exchange", "routing_key")):
        raise Refused("it does not say how it was sent")
    if properties.get("body_encoding") != "base64" or "compression" in headers:
        raise Refused("its body is in another encoding")
    if len(body) > MAX_MESSAGE_BYTES:
        raise Refused(f"it has more than {MAX_MESSAGE_BYTES:,} bytes")


def check_task(message: Any, tasks: Mapping[str, Any]) -> None:
    """Check a message with a checked envelope, and keep only the headers that a task needs. Raises `Refused`.

    `tasks` are the registered tasks by name; Celery's own tasks are not meant for messages. Also raises errors of
    decoding.
    """
    headers: dict[str, Any] = message.headers
    name = headers.get("task")
    task = tasks.get(name) if isinstance(name, str) else None
    if task is None or not hasattr(task, "body"):
        raise Refused("it names no task of this worker")
    if not _is_short_text(headers.get("id")):
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
    if expires is not None and not _is_short_text(expires):
        raise Refused("the time at which it expires is no text")
    _check_arguments(_arguments_in(message.payload), inspect.signature(task.body).parameters)


def _arguments_in(payload: object) -> dict[str, Any]:
    """Return the named arguments in a body. Raises `Refused` if it has anything else."""
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
    taken = {name: one for name, one in parameters.items() if name not in _NOT_IN_MESSAGES}
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


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID


def log_refusal(error: Exception) -> None:
    """Log why a message was removed."""
    # Not the text of a Python error, which quotes the message.
    reason = str(error) if isinstance(error, Refused) else f"it cannot be read ({type(error).__name__})"
    log.warning("task_message_refused", reason=reason)


# Celery's default is up to 30 s between two tries to connect, during which a returned broker is not used.
_LONGEST_WAIT_TO_CONNECT_SECONDS: Final = 3


class _Acknowledging(kombu_redis.QoS):
    """Counts the unsettled messages of a channel, so that it gets no more than its worker has room for."""

    def ack(self, delivery_tag: Any) -> None:
        """Acknowledge a message whose task has ended. See `_place_freed`."""
        with self._place_freed(delivery_tag):
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Remove a message without a task, or put it back into its queue. See `_place_freed`."""
        with self._place_freed(delivery_tag):
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call]

    @contextmanager
    def _place_freed(self, delivery_tag: Any) -> Iterator[None]:
        """Free the place of a message on this channel, even if the broker cannot be told that it is settled.

        Celery only logs a failed acknowledgement. If the place stayed taken, the channel would never send a BRPOP
        again, and would not even notice that its connection is lost. With a free place it sends one, notices the loss,
        and the worker connects anew. The broker delivers the message again after its visibility timeout.
        """
        try:
            yield
        finally:
            self.channel.consumption.changed()
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put the message of a dead worker back into its queue, or remove it if it cannot be read."""
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]
        except (*self.channel.connection_errors, *self.channel.connection.channel_errors):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to what others have written
            log_refusal(error)
            with self.pipe_or_acquire(None, client) as pipe:
                self._remove_from_indices(tag, pipe).execute()  # type: ignore[no-untyped-call]


class Channel(kombu_redis.Channel):
    """A channel of Redis that removes unreadable messages from its queues."""

    QoS = _Acknowledging
    consumption: Consumption

    def __init__(self, connection: Any, *arguments: Any, **keywords: Any) -> None:
        # The channel keeps its own reference: while tasks are in progress, it outlives its connection.
        self.consumption = connection.consumption
        super().__init__(connection, *arguments, **keywords)  # type: ignore[no-untyped-call]

    def _brpop_read(self, **options: Any) -> Any:
        """Read one message that has arrived, and pass it on."""
        try:
            taken = super()._brpop_read(**options)  # type: ignore[no-untyped-call]
            self.consumption.changed()
            self.consumption.looked()
            return taken
        except KeyError as error:  # kombu treats this as an error of the connection
            log_refusal(error)
        except Empty:
            self.consumption.looked()
            raise
        except (*self.connection_errors, *self.connection.channel_errors):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to what others have written
            log_refusal(error)
        return None


class Transport(kombu_redis.Transport):
    """The transport of Redis whose channels check the messages that they deliver."""

    Channel = Channel
    # The broker answers a read of empty queues after so many seconds, kombu's default being 1. A task is answered at
    # once. Six idle workers that read once a second took a fifth of what an idle Reverie uses of a core.
    brpop_timeout = 2
    consumption: Consumption
    queues_expire: bool

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the event loop read the queues; it looks each second for queues that expire only if there are any."""
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]
        if not self.queues_expire:
            self.cycle._binding_expiry_tref.cancel()  # type: ignore[union-attr]

    def _deliver(self, message: Any, queue: str) -> None:
        check_envelope(message)
        super()._deliver(message, queue)  # type: ignore[no-untyped-call]


class QueueConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """The consumer of a worker, which gets only tasks in the form in which Reverie sends them."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        queues, known = self.app.amqp.queues.consume_from, self.app.tasks
        tasks = [known[name] for name, queue in contract.TASK_QUEUES.items() if queue in queues and name in known]
        limits = [task.time_limit or self.app.conf.task_time_limit for task in tasks]
        self.consumption = Consumption(max(limits, default=self.app.conf.task_time_limit))

    def ensure_connected(self, conn: Any) -> Any:
        """Connect as soon as the broker is there, with a transport that checks its messages."""
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=_LONGEST_WAIT_TO_CONNECT_SECONDS)
        if conn.transport_cls in ("redis", "rediss"):
            # Only the queues of remote control expire.
            own = {"consumption": self.consumption, "queues_expire": self.app.conf.worker_enable_remote_control}
            conn.transport_cls = type("_Transport", (Transport,), own)
        return super().ensure_connected(conn)

    def register_with_event_loop(self, hub: Any) -> None:
        """Make the event loop note each of its turns."""
        super().register_with_event_loop(hub)
        hub.on_tick.add(self._note_turn)

    def _note_turn(self) -> None:
        channel = self.task_consumer and self.task_consumer.channel
        self.consumption.turned(full=bool(channel) and not channel.qos.can_consume())

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
        log_refusal(error)
        if not message.acknowledged:
            message.reject()


class PoolRequest(Request):  # type: ignore[misc]  # celery has no types
    """A task that a worker has given to its pool."""

    def on_failure(self, exc_info: Any, *arguments: Any, **keywords: Any) -> None:
        """Report a task whose process was killed by a signal: Celery puts such a task back without any report."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, WorkerLostError):
            signals.task_failure.send(sender=self.task, task_id=self.id, exception=error)
        super().on_failure(exc_info, *arguments, **keywords)


class _Dispatcher(EventDispatcher):  # type: ignore[misc]  # celery has no types
    """Sends the events that Flower shows, from the event loop of a worker."""

    def send(self, type: str, *arguments: Any, **keywords: Any) -> Any:
        """Send an event, once.

        Celery's heartbeat tries again for as long as the broker does not answer, in the event loop. Meanwhile, no task
        would be taken or acknowledged, and no time limit enforced. An error here makes the worker connect anew instead.
        """
        return super().send(type, *arguments, **{**keywords, "retry": False})


class Events(events.Events):  # type: ignore[misc]  # celery has no types
    """Celery's events, sent by the class above."""

    dispatcher_cls = _Dispatcher
