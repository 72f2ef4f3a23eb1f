"""Checked payloads from a caller's messages and files, and the receipt.

The checks run twice: in the caller's process, for an immediate error, and in the worker, because any process may write
to an inbox. A payload that passes can be stored as it is. The client and the HTTP server share this module, so that
both behave in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import asdict

from reverie import contract
from reverie.checks import check_label, check_payload, check_time, normalise_tags
from reverie.clock import new_id, now_micros, to_micros
from reverie.contract import FilePayload, MessagePayload, Outcome, Payload, Role, WaitFor, content_hash
from reverie.decoding import convert, type_name
from reverie.errors import Conflict, Rejected, Rejection
from reverie.parts import in_parts
from reverie.pipeline.calls import IngestFile, Receipt
from reverie.sessions.types import Message

if TYPE_CHECKING:
    from reverie.pipeline.producer import Producer


class MessageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message as a caller writes it; only role and content are required."""

    role: Role
    content: str | None = None
    id: str | None = None
    created_at: datetime | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] = []
    token_count: int | None = None
    importance: float | None = None
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    sequence: int | None = None
    original: str | None = None
    user: str | None = None
    visibility: contract.Visibility | None = None


class MessageDict(TypedDict, total=False):
    """A message as a caller writes it in Python, for type checkers: the fields of `MessageInput`.

    The content may be parts with a text, as in OpenAI's messages: `[{"type": "text", "text": "hello"}]`.
    """

    role: Required[Role]
    content: str | Sequence[Mapping[str, Any]] | None
    id: str | None
    created_at: datetime | str | None
    name: str | None
    tool_call_id: str | None
    tool_name: str | None
    tool_calls: list[dict[str, Any]]
    token_count: int | None
    importance: float | None
    metadata: dict[str, Any]
    tags: list[str]
    sequence: int | None
    original: str | None
    user: str | None
    visibility: contract.Visibility | None


# Fields of stored and exported messages that a new message cannot set, since only Reverie knows them.
STORED_FIELDS: Final = frozenset(Message.__struct_fields__) - frozenset(MessageInput.__struct_fields__)


class SessionInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session of messages, by id or by provider and chat id, with its user and channel."""

    session: str | None = None
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    strict: bool = False
    visibility: contract.Visibility | None = None


def build_session(raw: Mapping[str, Any]) -> SessionInput:
    """Check the session of a call; fill in the session id from provider and chat id. Raises `Rejected`."""
    given = convert(raw, SessionInput, name="session")
    session = given.session
    if session is None:
        if not (given.provider and given.chat_id):
            raise Rejected("name the session, or both provider and chat_id", field="session")
        session = contract.chat_key(given.provider, given.chat_id)
    elif bool(given.provider) != bool(given.chat_id):
        raise Rejected("provider and chat_id go together", field="provider")
    return msgspec.structs.replace(
        given,
        session=check_label("session", session, required=True),
        user=check_label("user", given.user),
        provider=check_label("provider", given.provider),
        chat_id=check_label("chat_id", given.chat_id),
        channel=check_label("channel", given.channel),
    )


def build_messages(
    raw: object, *, agent: str, session_input: SessionInput, trace: str
) -> tuple[list[MessagePayload], list[Rejection]]:
    """Turn a caller's list of messages into payloads, and return them with the rejections of invalid messages.

    Raises `Rejected` if `raw` is not a list or has more than 1,000 messages.
    """
    if raw is None:
        raise Rejected("give the messages: a list of them, or a single one", field="messages")
    if isinstance(raw, (str, bytes, Mapping)) or not isinstance(raw, Iterable):
        raise Rejected('messages must be a list, as in [{"role": "user", "content": "hello"}]', field="messages")
    items = list(raw)
    if len(items) > contract.MAX_MESSAGES_PER_CALL:
        raise Rejected(
            f"{len(items)} messages in one call; the limit is {contract.MAX_MESSAGES_PER_CALL}", field="messages"
        )
    payloads: list[MessagePayload] = []
    rejected: list[Rejection] = []
    contents: dict[str, str] = {}
    for index, item in enumerate(items):
        try:
            payload = build_message(item, agent=agent, session_input=session_input, trace=trace)
            content = content_hash(payload)
            if contents.setdefault(payload.id, content) != content:
                text = f"an earlier message of the call has the id {payload.id!r} and says something else"
                raise Conflict(text, field="id")
            payloads.append(payload)
        except Rejected as error:
            conflict = isinstance(error, Conflict)
            rejected.append(Rejection(index=index, field=error.field, error=str(error), conflict=conflict))
    return payloads, rejected


def build_message(raw: object, *, agent: str, session_input: SessionInput, trace: str) -> MessagePayload:
    """Turn one message of a caller into a checked payload, with a new id and time if it has none. Raises `Rejected`."""
    assert session_input.session is not None, "build_session fills in the session"
    given = raw if isinstance(raw, MessageInput) else _message_input(raw, session_input.session)
    micros = now_micros() if given.created_at is None else to_micros(check_time("created_at", given.created_at))
    own = {
        "id": given.id if given.id is not None else new_id(),
        "content": given.content or "",
        "created_at": micros,
        "tags": normalise_tags(given.tags) if given.tags else [],
        "user": _agreed_value("user", check_label("user", given.user), session_input.user),
        "visibility": _agreed_value("visibility", given.visibility, session_input.visibility),
    }
    payload = MessagePayload(agent=agent, trace=trace, **asdict(session_input) | asdict(given) | own)
    check_payload(payload)
    return payload


def _agreed_value(field: str, own: Any, of_call: Any) -> Any:
    """Return the value of a field in a message, else in its call. Raises `Rejected` if the two differ."""
    if own is not None and of_call is not None and own != of_call:
        raise Rejected(f"{field} of the message is {own!r}, that of the call {of_call!r}: leave one out", field=field)
    return of_call if own is None else own


def build_file(given: IngestFile, *, agent: str, trace: str) -> FilePayload:
    """Turn a document's text into a checked payload. Raises `Rejected`.

    Without an id, the id is made from the source, so that the same document keeps its id when it is sent again.
    """
    content: object = given.content  # unchecked: callers can pass anything
    metadata: object = given.metadata
    if not isinstance(content, str):
        raise Rejected("the content of a file must be text", field="content")
    if not isinstance(metadata, Mapping | None):
        raise Rejected(f"metadata must be an object, not {type_name(metadata)}", field="metadata")
    uri = check_label("source_uri", given.source_uri, required=True, limit=2_048)
    session, user = check_label("session", given.session), check_label("user", given.user)
    payload = FilePayload(
        id=given.id if given.id is not None else str(uuid5(NAMESPACE_URL, f"{session}\x1f{user}\x1f{uri}")),
        agent=agent,
        source_uri=uri,
        content=content,
        created_at=now_micros(),
        trace=trace,
        session=session,
        metadata=dict(metadata or {}),
        tags=normalise_tags(given.tags),
        user=user,
        visibility=given.visibility,
    )
    check_payload(payload)
    return payload


def _message_input(raw: object, session: str) -> MessageInput:
    """Convert a message, which may be one that was read or exported, of the same session, or a Pydantic model."""
    if isinstance(raw, Message):
        raw = asdict(raw)
    elif hasattr(raw, "model_dump"):
        raw = raw.model_dump()
    if not isinstance(raw, Mapping):
        raise Rejected(f"a message must be an object with role and content, not {type_name(raw)}", field="message")
    own_session = raw.get("session")
    if own_session is not None and own_session != session:
        raise Rejected(
            f"the message is of session {str(own_session)[:80]!r}, the call is for {session!r}:"
            " leave out the message's session to copy it",
            field="session",
        )
    # OpenAI's messages have null and empty lists for what they lack, and call the role `system` by a newer name, too.
    given = {name: value for name, value in raw.items() if name not in STORED_FIELDS and value not in (None, [])}
    if given.get("role") == "developer":
        given["role"] = "system"
    if isinstance(given.get("content"), list):
        given["content"] = _text_of(given["content"])
    return convert(given, MessageInput, name="message")


def _text_of(parts: list[Any]) -> str:
    """Return the text of a content in parts, as OpenAI's messages may have it. Raises `Rejected` for other parts."""
    texts = []
    for number, part in enumerate(parts, 1):
        text = part.get("text", part.get("refusal")) if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type_name(part)
            raise Rejected(
                f"content: part {number} is {str(kind)[:40]!r}, and only text is stored: leave the part out, or"
                ' describe it in words, as {"type": "text", "text": "..."}',
                field="content",
            )
        texts.append(text)
    return "\n".join(texts)


_NOT_STORED = {
    "dead": "it became a dead letter",
    "forgotten": "its session was forgotten after it was accepted: it was not stored",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """The items of one call: valid payloads with their indexes in the call, and rejections of the others."""

    payloads: tuple[Payload, ...]
    indexes: tuple[int, ...]
    rejected: tuple[Rejection, ...]
    trace: str

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the payloads."""
        return tuple(payload.id for payload in self.payloads)

    def part(self, start: int, end: int) -> Submission:
        """Return the payloads from `start` to `end` as a submission that keeps their indexes in the call."""
        return Submission(self.payloads[start:end], self.indexes[start:end], (), self.trace)

    def receipt(self, state: WaitFor, outcomes: Iterable[Outcome] = ()) -> Receipt:
        """Return the receipt of the call. Raises `Rejected` if there were items and all of them were rejected."""
        by_id = {outcome.id: outcome for outcome in outcomes}
        accepted: list[str] = []
        rejected = list(self.rejected)
        for index, payload in zip(self.indexes, self.payloads, strict=True):
            outcome = by_id.get(payload.id)
            if outcome is not None and outcome.state in _NOT_STORED:
                error = outcome.error or f"message {payload.id}: {_NOT_STORED[outcome.state]}"
                rejected.append(Rejection(index=index, field=outcome.field, error=error, conflict=outcome.conflict))
            else:
                accepted.append((outcome.stored_as if outcome is not None else "") or payload.id)
        degraded = next((outcome.degraded for outcome in by_id.values() if outcome.degraded), "")
        return checked_receipt(state, accepted, rejected, trace=self.trace, degraded=degraded)


def prepare_messages(messages: object, *, agent: str, session_input: SessionInput, trace: str) -> Submission:
    """Check a call's messages, a list or a single one. Raises `Rejected` if all of them are invalid."""
    items = [messages] if isinstance(messages, Mapping) or hasattr(messages, "model_dump") else messages
    payloads, rejected = build_messages(items, agent=agent, session_input=session_input, trace=trace)
    if rejected and not payloads:
        raise _all_rejected(rejected)
    invalid = {rejection.index for rejection in rejected}
    indexes = tuple(index for index in range(len(payloads) + len(rejected)) if index not in invalid)
    return Submission(tuple(payloads), indexes, tuple(rejected), trace)


def single(payload: Payload) -> Submission:
    """Return the submission of one payload."""
    return Submission((payload,), (0,), (), payload.trace)


def enqueue(
    producer: Producer,
    submission: Submission,
    *,
    wait: WaitFor,
    timeout_seconds: float,
    on_accepted: Callable[[], None] = lambda: None,
) -> Receipt:
    """Enqueue a submission and return its receipt; `on_accepted` is called when all of it is in the inbox.

    Raises `Unavailable`, `WaitTimeout`, `QuotaExceeded`, and `Rejected` if nothing was stored.
    """
    outcomes = producer.enqueue(
        submission.payloads, wait=wait, timeout_seconds=timeout_seconds, on_accepted=on_accepted
    )
    return submission.receipt(wait, outcomes)


def checked_receipt(
    state: WaitFor, accepted: list[str], rejected: list[Rejection], *, trace: str, degraded: str = ""
) -> Receipt:
    """Return a receipt with rejections in the order of the call. Raises `Rejected` if nothing was accepted."""
    rejected = sorted(rejected, key=lambda rejection: rejection.index)
    if rejected and not accepted:
        raise _all_rejected(rejected)
    return Receipt(state=state, accepted=accepted, rejected=rejected, trace=trace, degraded=degraded)


def split_submission(submission: Submission, *, max_items: int, max_bytes: int) -> Iterator[Submission]:
    """Split a submission into parts of bounded size, as JSON; one item is never split."""
    sized = ((payload, len(msgspec.json.encode(payload))) for payload in submission.payloads)
    start = 0
    for payloads in in_parts(sized, most=max_items, size=max_bytes):
        yield submission.part(start, start + len(payloads))
        start += len(payloads)


def _all_rejected(rejected: list[Rejection]) -> Rejected:
    first = rejected[0]
    kind = Conflict if all(rejection.conflict for rejection in rejected) else Rejected
    what = "conflict" if kind is Conflict else "are invalid"
    more = f" (all {len(rejected)} messages {what}; this is the first error)" if len(rejected) > 1 else ""
    return kind(first.error + more, field=first.field, items=tuple(rejected))
