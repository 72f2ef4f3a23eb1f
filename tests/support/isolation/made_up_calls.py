"""Random calls of an actor: every declared call of the API, with the actor's canaries in every text.

The arguments follow from the declaration of a call, so a new call takes part without being named here. Texts share a
few ordinary words, so that everybody's content matches everybody's queries.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import inspect

from reverie.calls import Call, route_of, scope_of
from reverie.memories.calls import UpdateMemory
from reverie.scheduling.calls import ConfirmReminder, PreviewRuns
from server.app import endpoints
from support.isolation.actors import GROUP, Actor, Cast, Kind

# How often a call is made, of ten; others once. Content has to come in before it can leak.
_WEIGHTS: Final = {"IngestMessages": 60, "Recall": 40, "GetContext": 30, "Remember": 30, "SearchMemories": 15,
                   "IngestFile": 8, "StartSession": 5, "AddSchedule": 15, "Remind": 10,
                   "RunScheduleNow": 20, "CompleteRun": 15, "GetRun": 8, "ListScheduleRuns": 5, "ListSchedules": 5,
                   "ListNotifications": 8, "AcknowledgeNotifications": 3, "ClaimReminders": 5, "ConfirmReminder": 5,
                   "ListReminders": 5, "CancelRun": 5, "SetFact": 8, "AddNote": 8,
                   "ListMemories": 8, "RestoreSession": 5, "ListMessages": 5, "SearchSessions": 8}  # fmt: skip
# Rare: it empties what the others need.
_RARE: Final = {"DeleteWorkspace": 0.05, "ForgetSession": 0.5, "DeleteSchedule": 0.5, "PauseSchedule": 0.5}
# Calls about rows that have an id, which one may take from others, whatever the method.
_WITH_IDS: Final = frozenset({"schedules", "runs", "reminders", "notifications"})
_EXECUTORS: Final = ("webhook", "task", "model")
_DELIVERING: Final = frozenset({"ClaimReminders", "ListNotifications", "AcknowledgeNotifications"})
_OPTIONAL_SHARE: Final = 0.3
_SHARED_SHARE: Final = 0.05
_GROUP_SHARE: Final = 0.08
_ACCOUNT_SHARE: Final = 0.1
_OWN_NAMES: Final = 12
_FACT_NAMES: Final = 2
_RECORDS: Final = 20

_WORDS: Final = ("garden", "piano", "dentist", "train to Lisbon", "walnut cake", "greyhound", "invoice", "blue door")
_SENTENCES: Final = (
    "I keep thinking about the {word}, {canary}.",
    "My favourite {word} is {canary}.",
    "I prefer {canary} when it comes to the {word}.",
    "From now on, always mention {canary} with the {word}.",
    "Remember that the {word} belongs to {canary}.",
    "My name is {canary} and I live next to the {word}.",
    "The {word} will be moved to {canary} on 3 May 2027.",
    "To repair the {word}, first call {canary}, then wait a day.",
)
_ACCOUNT_SENTENCE: Final = "From now on, in all projects, always greet me as {canary} and mention the {word}."
_ACCOUNT_KINDS: Final = ("preference", "procedure", "instruction")
# Fields whose values are names chosen by the caller; all others of type text are content.
_NAMES: Final = frozenset({"session", "channel", "key", "category", "provider", "chat_id", "source_uri", "name",
                           "source", "subject", "id", "note_id", "reminder_id", "tag", "source_message", "task",
                           "queue"})  # fmt: skip
_USERS: Final = frozenset({"user", "owner_user_id", "recipient"})
_ALWAYS: Final = _USERS | {"in_", "content"}
# Left to their defaults: they say how to answer, or go together with others.
_LEFT_OUT: Final = frozenset({"query_embedding", "timeout_seconds", "wait", "lifetime", "due_at", "chat_id", "every",
                              "schema_version", "scope", "vector_weight", "fts_weight", "kinds", "expires_at",
                              "min_score"})  # fmt: skip
# Of these, the server makes the values, which answers then contain.
_FROM_ANSWERS: Final = frozenset({"ref_code", "entry", "run_id", "letter_id", "a", "b", "ids", "memory", "token"})


@dataclass(frozen=True)
class Request:
    """One HTTP request of an actor. `family` is what it is about: the first part of its path."""

    call: str
    method: str
    path: str
    family: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    session_of: Actor | None = None
    scope: str = "read"

    @property
    def text(self) -> str:
        """The request as text, to tell what its answer may repeat."""
        return f"{self.path} {dict(self.query)} {msgspec.json.encode(self.body).decode()}"


class Requests:
    """Makes random requests, and learns the ids that answers contain."""

    def __init__(self, chance: random.Random, *, cast: Cast, webhook: str) -> None:
        self._chance = chance
        self._cast = cast
        self._webhook = webhook
        self._kinds = [endpoint.kind for endpoint in endpoints()]
        self._weights = [float(_WEIGHTS.get(kind.__name__, _RARE.get(kind.__name__, 1.0))) for kind in self._kinds]
        self._ids: defaultdict[tuple[Actor, str], list[str]] = defaultdict(list)
        self._shared: set[str] = set()
        self._claims: defaultdict[Actor, list[tuple[str, str]]] = defaultdict(list)
        self._records: defaultdict[Actor, list[Mapping[str, Any]]] = defaultdict(list)

    def learn(self, actor: Actor, request: Request, answer: Any) -> None:
        """Remember the ids in an answer, for later requests of this actor and of those who try its ids."""
        if request.call == "ReadExport":
            self._records[actor] = [*answer["records"][:_RECORDS], *self._records[actor]][:_RECORDS]
        known = self._ids[actor, request.family]
        shared = (request.body or {}).get("visibility") == "shared"
        for item in _items(answer):
            if isinstance(reminder := item.get("reminder"), Mapping):
                self._claims[actor].append((str(reminder["id"]), str(item["token"])))
            if shared or item.get("visibility") in ("shared", "requested"):
                self._shared.add(str(item.get("id")))
            for name in ("id", "ref_code", "run", "entry", "note_id"):
                if isinstance(value := item.get(name), (str, int)) and len(known) < 400:
                    known.append(str(value))

    def kind(self) -> type[Call[Any]]:
        """Return a random call."""
        return self._chance.choices(self._kinds, self._weights)[0]

    def in_group(self, actor: Actor) -> Request:
        """Return a message of an actor in the group of its agent."""
        body = {"session": GROUP, "messages": [self._message(actor, "group")], "user": actor.user}
        return Request("IngestMessages", "POST", "/v1/messages", "messages", body=body)

    def of(self, kind: type[Call[Any]], actor: Actor, *, victim: Actor | None = None) -> Request:
        """Return a request of an actor for one call; with a victim, one that names ids of the victim."""
        route = route_of(kind)
        family = route.path.split("/")[2]
        where = self._where(kind, actor)
        # What is created under somebody else's name would be there rightly afterwards.
        of_rows = family in _WITH_IDS and (bool(route.path_fields) or "ids" in kind.__struct_fields__)
        creates = scope_of(kind) not in ("read", "forget") and route.method != "PATCH" and not of_rows
        named = actor if victim is None or creates else victim
        values = self._values(kind, actor, where, named, family)
        if kind is UpdateMemory and values["id"] in self._shared:  # it stays shared
            values = self._values(kind, actor, "shared", named, family) | {"id": values["id"]}
        if "session" in values and victim is not None and not creates and self._chance.random() < _GROUP_SHARE:
            values["session"] = GROUP  # which those who are not in it try to read
        session_of = named if "session" in values else None
        if where == "group" or values.get("session") == GROUP:
            session_of = self._cast.in_group_of(actor)  # of its own agent: all agents have one of that name
        path = route.path
        for name in route.path_fields:
            path = path.replace(f"{{{name}}}", str(values.pop(name, "missing")).replace("/", "%2F"))
        if route.path.endswith(("/runs", "/run")):
            family = "runs"
        if route.has_body:
            return Request(
                kind.__name__, route.method, path, family, body=values, session_of=session_of, scope=scope_of(kind)
            )
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
        return Request(
            kind.__name__, route.method, path, family, query=query, session_of=session_of, scope=scope_of(kind)
        )

    def _where(self, kind: type[Call[Any]], actor: Actor) -> Kind:
        """Return what kind of place this call's content goes to."""
        fields = kind.__struct_fields__
        # Whoever says something in a group is in it from then on: only those who may be in it do.
        if "session" in fields and actor.in_group and self._chance.random() < _GROUP_SHARE:
            return "group"
        if "visibility" in fields and kind.route.startswith("POST") and self._chance.random() < _SHARED_SHARE:
            return "shared"
        if kind.__name__ == "Remember" and self._chance.random() < _ACCOUNT_SHARE:
            return "account"
        return "text"

    def _values(self, kind: type[Call[Any]], actor: Actor, where: Kind, named: Actor, family: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        for member in info.fields:
            wanted = member.required or member.name in _ALWAYS or self._chance.random() < _OPTIONAL_SHARE
            if (
                not wanted
                or member.name in _LEFT_OUT
                or (where == "account" and member.name in ("session", "channel", "kind", "tier"))
            ):
                continue
            value = self._value(member, actor, where, named, family)
            if value is not None:
                values[member.encode_name] = value
        if where == "account":
            values.update(tier="account", kind=self._chance.choice(_ACCOUNT_KINDS))
        elif values.get("tier") in ("account", "channel", "conversation"):
            values.pop("tier")
        if "provider" in values:
            values["chat_id"] = self._own(named, where)
        if where == "group":
            values["session"] = GROUP
            for name in ("channel", "provider", "chat_id", "parent"):
                values.pop(name, None)
        if where == "shared":
            values["visibility"] = "shared"
        else:
            values.pop("visibility", None)
        if kind.__name__ in ("AddSchedule", "UpdateSchedule", "PreviewRuns"):
            self._schedule(kind, values)
        # What delivers to all users may ask for all of them. A token of one user may not.
        if kind.__name__ in _DELIVERING and not actor.has_own_token:
            values.pop("all_users", None)
        if kind is ConfirmReminder and named is actor and (claims := self._claims[actor]):
            values["id"], values["token"] = self._chance.choice(claims)
        return values

    def _value(self, member: inspect.Field, actor: Actor, where: Kind, named: Actor, family: str) -> Any:
        name = member.name
        if name in _USERS:
            return actor.user or (actor.agent if name == "recipient" else None)
        if name == "as_of":
            return self._chance.choice(("2023-05-03", "2027-01-01"))
        if name == "in_":
            return 1
        if name == "source" and family == "facts":
            return self._chance.choice(("user", "agent"))
        if name == "value" and family == "scratchpads":
            return {"note": self._sentence(actor, where)}
        if name == "messages":
            return [self._message(actor, where) for _ in range(self._chance.randint(1, 3))]
        if name == "memories":
            return []
        if name == "records":  # of its own export, or of another's as far as it was shown one
            return self._records[named] or self._records[actor]
        if name in ("query", "text"):
            return f"what about the {self._chance.choice(_WORDS)}?"
        if name in _FROM_ANSWERS or (name in ("id", "note_id", "reminder_id") and family != "files"):
            known = self._ids[named, "runs" if name == "run_id" else family]
            picked = self._chance.choice(known) if known and self._chance.random() < 0.9 else None
            if picked is None and member.required:
                picked = "1" if name in ("entry", "letter_id") else self._own(actor, where)
            return [picked] if name == "ids" and picked else picked
        if name == "channel":  # the agent's, for all of its users
            return f"channel-{self._chance.randint(1, _OWN_NAMES)}"
        if name in ("category", "key"):  # few, so that facts are found again
            return f"{named.canary('name' if where == 'text' else where)}-{self._chance.randint(1, _FACT_NAMES)}"
        if name in _NAMES:
            return self._own(named, where)
        return self._by_type(member, actor, where)

    def _by_type(self, member: inspect.Field, actor: Actor, where: Kind) -> Any:
        match _bare(member.type):
            case inspect.LiteralType(values=values):
                return self._chance.choice(values)
            case inspect.BoolType():
                return self._chance.random() < 0.5
            case inspect.IntType(ge=low) | inspect.FloatType(ge=low):
                return (low or 0) + self._chance.randint(0, 1)
            case inspect.StrType():
                return self._sentence(actor, where)
            case inspect.ListType() | inspect.CollectionType():
                return [self._own(actor, where)] if member.name in ("tags", "tag") else [self._sentence(actor, where)]
            case inspect.DictType():
                return {"note": self._sentence(actor, where)}
            case _:
                return None

    def _schedule(self, kind: type[Call[Any]], values: dict[str, Any]) -> None:
        for name in ("cron", "at", "every", "tz", "cadence", "executor", "task", "queue", "llm", "webhook"):
            values.pop(name, None)
        values["every"] = self._chance.choice((60, 3_600, 86_400))
        if kind is PreviewRuns:
            return
        match self._chance.choice(_EXECUTORS):
            case "webhook":
                values["webhook"] = self._webhook
            case "task":  # which nobody serves: the actors report its runs themselves
                values.update(task="agent.work", queue="nobody")

    def _message(self, actor: Actor, where: Kind) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": self._chance.choice(("user", "user", "assistant")),
            "content": " ".join(self._sentence(actor, where) for _ in range(self._chance.randint(1, 3))),
        }
        if self._chance.random() < _OPTIONAL_SHARE:
            message["metadata"] = {"note": self._sentence(actor, where)}
        if self._chance.random() < _OPTIONAL_SHARE:
            message["tags"] = [self._own(actor, where)]
        return message

    def _sentence(self, actor: Actor, where: Kind) -> str:
        if where == "text" and self._chance.random() < 0.02:
            return _ACCOUNT_SENTENCE.format(word=self._chance.choice(_WORDS), canary=actor.canary("account"))
        sentence = _ACCOUNT_SENTENCE if where == "account" else self._chance.choice(_SENTENCES)
        return sentence.format(word=self._chance.choice(_WORDS), canary=actor.canary(where))

    def _own(self, actor: Actor, where: Kind) -> str:
        """Return a name that only this actor chooses."""
        return f"{actor.canary('name' if where == 'text' else where)}-{self._chance.randint(1, _OWN_NAMES)}"


def names_user(kind: type[Call[Any]]) -> bool:
    """Return whether a call says which end user it is about."""
    return "user" in kind.__struct_fields__


def _bare(kind: inspect.Type) -> inspect.Type:
    """Return the type of a value without its annotations and without None."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _bare(kind.types[0])
    return kind


def _items(answer: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of an answer: itself, or those of its lists."""
    if not isinstance(answer, Mapping):
        return ()
    nested = [item for value in answer.values() if isinstance(value, list) for item in value]
    return [answer, *(item for item in nested if isinstance(item, Mapping))]
