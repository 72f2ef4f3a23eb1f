"""What the command line hands on to the processes it starts, and what it refuses before it starts any."""

from __future__ import annotations

import pytest

from cli.stack import process_specs
from reverie.errors import Rejected
from worker.settings import load_settings


def test_a_flag_that_equals_the_default_still_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given another port in the environment, when the default one is asked for by flag, then children see that."""
    monkeypatch.setenv("REVERIE_PORT", "8000")
    monkeypatch.setenv("REVERIE_WORKSPACE", "other")
    flags = load_settings(port=7437, workspace="default", broker="redis://127.0.0.1:1/0")
    for name, value in process_specs(flags)[0].env.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.port, settings.workspace) == (7437, "default")


def test_an_endpoint_without_its_address_is_refused_at_once() -> None:
    """Given the openai embedder without a base URL, then the setting that is missing is named, before any start."""
    with pytest.raises(Rejected, match="embedding_base_url"):
        load_settings(embedding_provider="openai")
