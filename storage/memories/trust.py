"""The source of a memory, message or file as one of six classes, and an operator's policy for each class in contexts.

With the policy `review`, contexts have a memory only once it is confirmed, which makes it a person's word, too.
Confirmations are stored (`confirmed_at`), so a new policy also holds at once for memories stored before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from reverie.memories.types import Provenance
from storage.memories.records import MemoryRecord, is_standing

TrustClass = Literal["user", "agent", "tool", "file", "import", "web"]
Policy = Literal["told", "review", "never"]

# The classes of roles and sources. Any other source that a caller names counts as the agent's own word.
_CLASSES: Final[Mapping[str, TrustClass]] = {
    "user": "user", "tool": "tool", "function": "tool", "file": "file", "import": "import", "web": "web",
}  # fmt: skip
# Sources whose instructions do not count as the user's before a person has confirmed them.
_NO_RIGHT: Final = tuple(source for source, one in _CLASSES.items() if one in ("tool", "file", "web"))
_LISTED: Final = ", ".join(f"'{source}'" for source in _NO_RIGHT)
HAS_RIGHT: Final = f"(lower(m.source) NOT IN ({_LISTED}) OR m.confirmed_at IS NOT NULL)"


def trust_class(trust: str) -> TrustClass:
    """Return the class of a role or source, as a provenance names it in `trust`."""
    return _CLASSES.get(trust.lower(), "agent")


def orders_without_right(memory: MemoryRecord) -> bool:
    """Return whether a memory has the form of an instruction but comes from a tool, a file or the web."""
    return (
        is_standing(memory.kind, memory.importance)
        and memory.source.lower() in _NO_RIGHT
        and memory.confirmed_at is None
    )


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The policy for each class; contexts have all memories of classes that are not named."""

    policies: Mapping[TrustClass, Policy] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything is held back."""
        return any(policy != "told" for policy in self.policies.values())

    def tells(self, trust: str, *, confirmed: bool = True) -> bool:
        """Return whether contexts may have something with this `trust`; only memories can be unconfirmed."""
        policy = self.policies.get(trust_class(trust), "told")
        return policy == "told" or (policy == "review" and confirmed)

    def tells_memory(self, provenance: Provenance | None, *, confirmed: bool) -> bool:
        """Return whether contexts may have a memory. Only a memory that was removed meanwhile has no provenance."""
        return provenance is None or self.tells(provenance.trust, confirmed=confirmed)

    @classmethod
    def parse(cls, text: str) -> TrustPolicy:
        """Return the policy that a text such as "web=never, tool=review" names. Raises `ValueError`."""
        policies: dict[TrustClass, Policy] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, policy = (word.strip() for word in part.partition("="))
            known = next((one for one in get_args(TrustClass) if one == name), None)
            chosen = next((one for one in get_args(Policy) if one == policy), None)
            if known is None or chosen is None:
                raise ValueError(part)
            policies[known] = chosen
        return cls(policies)


EVERYTHING_TOLD: Final = TrustPolicy()
