"""Who takes part: end users of agents of tenants, each with words of their own that nobody else may be shown.

Each actor has one canary, a made-up word, for each kind of place. A canary says whose it is and in which kind of place
it was put, so any answer, log line or file can be checked without knowing where its content came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

# Where a canary was put: in content, in ids and names that the actor chose, in memories of the account tier, in
# memories that were shared with all users of the agent, or in a session of several users.
Kind = Literal["text", "name", "account", "shared", "group"]
KINDS: Final[tuple[Kind, ...]] = ("text", "name", "account", "shared", "group")
# The session that the first two users of an agent have together; the third is not in it.
GROUP: Final = "group-of-two"
_IN_GROUP: Final = ("user-0", "user-1")

_CANARY: Final = re.compile(r"zq(\d\d)([tnasg])xk", re.IGNORECASE)
_KIND_OF: Final[dict[str, Kind]] = {kind[0]: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Actor:
    """One end user of an agent in a workspace; without a user, the agent itself."""

    number: int
    workspace: str
    agent: str
    user: str | None

    @property
    def has_own_token(self) -> bool:
        """Whether its token is for this user alone. Those of other users are for their agent, which names the user."""
        return self.user == "user-0"

    @property
    def in_group(self) -> bool:
        """Whether it is one of the users who have a session together."""
        return self.user in _IN_GROUP

    def canary(self, kind: Kind) -> str:
        """Return this actor's word for a kind of place."""
        return f"zq{self.number:02d}{kind[0]}xk"

    def may_see(self, other: Actor, kind: Kind) -> bool:
        """Return whether this actor may be shown a canary of another.

        Content without an owner is for all users of its agent. The account tier is for all agents of a tenant. What
        is said in a group is for the users in it.
        """
        owned = other.user is None or other.user == self.user
        if kind == "account":
            return self.workspace == other.workspace and owned
        together = kind == "group" and self.in_group
        return (self.workspace, self.agent) == (other.workspace, other.agent) and (
            owned or together or kind == "shared"
        )

    def __str__(self) -> str:
        return f"{self.user or '(no user)'} of {self.agent} in {self.workspace}"


@dataclass(frozen=True, slots=True)
class Found:
    """A canary that was found: whose it is, and in which kind of place it was put."""

    owner: Actor
    kind: Kind


class Cast:
    """All actors of a run: each tenant has the same agents, and each agent the same users and none."""

    def __init__(self, *, tenants: int = 2, agents: int = 2, users: int = 3) -> None:
        # The same names of agents and users in every tenant: only the workspace tells them apart.
        names = product(
            (f"tenant-{number}" for number in range(tenants)),
            (f"agent-{number}" for number in range(agents)),
            (None, *(f"user-{number}" for number in range(users))),
        )
        self.actors: Final = tuple(Actor(number, *name) for number, name in enumerate(names))

    def agent_of(self, actor: Actor) -> Actor:
        """Return the actor that is the agent itself, without a user."""
        return self._of_agent(actor, None)

    def in_group_of(self, actor: Actor) -> Actor:
        """Return the first user of the group that this actor's agent has."""
        return self._of_agent(actor, _IN_GROUP[0])

    def others_in_group_of(self, actor: Actor) -> list[Actor]:
        """Return the other users of the group that this actor's agent has."""
        return [self._of_agent(actor, user) for user in _IN_GROUP if user != actor.user]

    def _of_agent(self, actor: Actor, user: str | None) -> Actor:
        names = (actor.workspace, actor.agent, user)
        return next(one for one in self.actors if (one.workspace, one.agent, one.user) == names)

    def canaries_in(self, text: str) -> Iterator[Found]:
        """Yield each canary in a text once."""
        for number, letter in {found.groups() for found in _CANARY.finditer(text)}:
            yield Found(self.actors[int(number)], _KIND_OF[letter.lower()])

    def leaks(self, text: str, viewer: Actor, *, asked: str = "") -> list[Found]:
        """Return the canaries in an answer that its viewer may not see.

        Names that the viewer's own request contained are no leaks: an error may say what was asked for.
        """
        known = {found for found in self.canaries_in(asked) if found.kind == "name"}
        return [
            found
            for found in self.canaries_in(text)
            if found not in known and not viewer.may_see(found.owner, found.kind)
        ]

    def workspaces(self) -> Iterable[str]:
        """Return the names of all workspaces."""
        return dict.fromkeys(actor.workspace for actor in self.actors)
