"""What an installation is run with, as one text: what was found under other settings may not hold."""

from __future__ import annotations

from hashlib import blake2b

from reverie import __version__
from storage.migrate import newest_version
from worker.settings import Settings


def fingerprint(settings: Settings) -> str:
    """Return what changes with the version, the schema and the settings."""
    parts = f"{__version__} {newest_version('workspace')} {settings.model_dump_json()}"
    return blake2b(parts.encode(), digest_size=16).hexdigest()
