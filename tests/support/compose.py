"""Reads `docker-compose.yml` as Compose does: variables are substituted; short forms are not expanded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")


class NotSet(Exception):
    """A required variable is not set."""


def load_compose(variables: dict[str, str], *profiles: str) -> dict[str, Any]:
    """Return the file with variables substituted and the services that start with these profiles.

    Raises NotSet if a required variable is missing.
    """
    filled: dict[str, Any] = _filled(yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8")), variables)
    services = filled["services"].items()
    started = {name: one for name, one in services if {*one.get("profiles", profiles)} <= {*profiles}}
    return filled | {"services": started}


def seconds(duration: str) -> float:
    """Return a duration such as `15s` or `2m` in seconds."""
    number, unit = re.fullmatch(r"(\d+)(s|m)", duration).groups()  # type: ignore[union-attr]
    return float(number) * (60 if unit == "m" else 1)


def _filled(value: Any, variables: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return _VARIABLE.sub(lambda found: _value_of(found, variables), value) if isinstance(value, str) else value


def _value_of(found: re.Match[str], variables: dict[str, str]) -> str:
    name, operator, argument = found.groups()
    given = variables.get(name, "")
    if given or operator is None:
        return given
    if operator == ":?":
        raise NotSet(f"{name}: {argument}")
    return str(argument)
