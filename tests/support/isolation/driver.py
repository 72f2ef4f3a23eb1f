"""Makes random calls of all actors over HTTP, and looks in every answer for what its viewer may not see."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import msgspec

from reverie.trust.calls import CreateToken
from server.caller import AGENT_HEADER, WORKSPACE_HEADER
from support.isolation.actors import GROUP, Actor, Cast, Found
from support.isolation.made_up_calls import Request, Requests, names_user

_TIMEOUT_SECONDS: Final = 60.0
# Requests that name what belongs to somebody else, and requests whose headers name somebody else.
_ATTACKS: Final = 0.15
_MASKS: Final = 0.05
_KEPT_LEAKS: Final = 20
_EXCERPT: Final = 300


@dataclass(frozen=True)
class Leak:
    """A canary that reached somebody who may not see it: where, whose, and the text around it."""

    place: str
    viewer: str
    owner: str
    kind: str
    excerpt: str


@dataclass
class Tally:
    """What a run did and found."""

    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    attacks: int = 0
    leaks: int = 0
    # Whose ids were named by callers in which workspaces: from then on they may be in its files.
    named: set[tuple[str, Actor]] = field(default_factory=set)
    examples: list[Leak] = field(default_factory=list)

    def add(self, place: str, viewer: str, text: str, found: list[Found]) -> None:
        """Count canaries that were found where they must not be."""
        for leak in found:
            self.leaks += 1
            if len(self.examples) < _KEPT_LEAKS:
                canary = leak.owner.canary(leak.kind)
                at = text.lower().find(canary)
                around = text[max(0, at - _EXCERPT) : at + _EXCERPT]
                self.examples.append(Leak(place, viewer, str(leak.owner), leak.kind, around))


def tokens_of(cast: Cast, operator: httpx2.Client) -> dict[Actor, str]:
    """Create a token for each actor, for its agent in its workspace, and for its user alone if it has its own."""
    tokens = {}
    for actor in cast.actors:
        call = CreateToken(
            workspace=actor.workspace,
            agents=[actor.agent],
            user=actor.user if actor.has_own_token else None,
            scopes=["read", "write", "forget", "schedule"],
            name=f"token-{actor.number}",
        )
        response = operator.post("/v1/tokens", json=msgspec.to_builtins(call))
        response.raise_for_status()
        tokens[actor] = response.json()["token"]
    return tokens


class Driver:
    """Plays the actors one random call at a time."""

    def __init__(
        self, cast: Cast, requests: Requests, chance: random.Random, *, url: str, tokens: Mapping[Actor, str]
    ) -> None:
        self.tally = Tally()
        self._cast = cast
        self._requests = requests
        self._chance = chance
        self._tokens = tokens
        # Agents whose group may be one user's session now, because a user or the group was erased or forgotten.
        self._without_group: set[tuple[str, str]] = set()
        self._client = httpx2.Client(base_url=url, timeout=_TIMEOUT_SECONDS)

    def step(self) -> None:
        """Make one random call, and check its answer."""
        actor = self._chance.choice(self._cast.actors)
        kind = self._requests.kind()
        # An agent's token without a user in the call: what it writes is the agent's own, for all of its users.
        if not actor.has_own_token and not names_user(kind):
            actor = self._cast.agent_of(actor)
        victim = self._chance.choice(self._cast.actors) if self._chance.random() < _ATTACKS else None
        mask = self._chance.choice(self._cast.actors) if self._chance.random() < _MASKS else actor
        self.send(self._requests.of(kind, actor, victim=victim), actor, mask=mask)
        self.tally.attacks += victim not in (None, actor) or mask is not actor

    def send(self, request: Request, actor: Actor, *, mask: Actor | None = None) -> Any:
        """Send a request of an actor with the headers of `mask`; check and return its answer."""
        named = mask or actor
        headers = {AGENT_HEADER: named.agent, WORKSPACE_HEADER: named.workspace}
        headers["Authorization"] = f"Bearer {self._tokens[actor]}"
        response = self._client.request(
            request.method,
            request.path,
            params=dict(request.query),
            content=None if request.body is None else msgspec.json.encode(request.body),
            headers={**headers, "Content-Type": "application/json"},
        )
        self.tally.calls[request.call] += 1
        self.tally.statuses[response.status_code] += 1
        self.tally.succeeded[request.call] += response.is_success
        text = f"{dict(response.headers)} {response.text}"
        if request.scope == "forget" and (actor.in_group or GROUP in request.text):
            self._without_group.add((named.workspace, named.agent))
        found = self._leaks(request, actor, text)
        self.tally.named |= {(named.workspace, one.owner) for one in self._cast.canaries_in(request.text)}
        self.tally.add(f"{request.method} {request.path}", str(actor), text, found)
        answer = msgspec.json.decode(response.content) if response.content else None
        if response.is_success and named is actor:
            self._requests.learn(actor, request, answer)
        return answer

    def _leaks(self, request: Request, actor: Actor, text: str) -> list[Found]:
        """Return the canaries in an answer that nobody as whom the actor asks may see."""
        found = [self._cast.leaks(text, viewer, asked=request.text) for viewer in self._viewers(request, actor)]
        leaks = [leak for leak in found[0] if all(leak in others for others in found)]
        if request.family == "erasures":  # which show, to all of an agent's users, the name that was asked for
            leaks = [
                leak for leak in leaks if leak.kind != "name" or (actor.workspace, leak.owner) not in self.tally.named
            ]
        return leaks

    def _viewers(self, request: Request, actor: Actor) -> list[Actor]:
        """Return as whom an actor asks: without a user, one who names a session asks as the users of that session."""
        owner = request.session_of
        agent = (actor.workspace, actor.agent)
        if owner is None or actor.user is not None or (owner.workspace, owner.agent) != agent:
            return [actor]
        if owner.in_group and GROUP in request.text and agent in self._without_group:
            return [owner, *self._cast.others_in_group_of(owner)]
        return [owner]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
