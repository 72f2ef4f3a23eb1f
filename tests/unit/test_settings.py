"""What is set is checked once, before anything starts: each mistake is named, with what to write instead."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from reverie.errors import Rejected
from worker.settings import _CONSTANT_IN, _DECIDED_BY, Settings, load_settings


def mistake(**flags: object) -> str:
    with pytest.raises(Rejected) as caught:
        load_settings(**flags)
    return str(caught.value)


def test_a_misspelt_variable_is_answered_with_the_variable_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a variable one letter off, then the error names the right one as it has to be written."""
    monkeypatch.setenv("REVERIE_EMBEDING_MODEL", "x")
    assert mistake() == "unknown environment variable REVERIE_EMBEDING_MODEL: did you mean REVERIE_EMBEDDING_MODEL?"


def test_a_misspelt_key_is_answered_with_the_key_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Given a key one letter off in the file, then the error names file, key and the right key."""
    file = tmp_path / "reverie.toml"
    file.write_text('embeding_model = "x"\n')
    monkeypatch.setenv("REVERIE_CONFIG", str(file))
    assert mistake() == f"unknown setting in {file}: embeding_model: did you mean embedding_model?"


def test_a_settings_file_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Given REVERIE_CONFIG with a slip in its path, then nothing runs on defaults in silence."""
    monkeypatch.setenv("REVERIE_CONFIG", str(tmp_path / "reverei.toml"))
    assert "there is no settings file" in mistake()
    monkeypatch.setenv("REVERIE_CONFIG", str(tmp_path))
    assert "cannot be read: Is a directory" in mistake()


@pytest.mark.parametrize(
    ("content", "error"), [(b"\xff\xfe", "is not UTF-8"), (b"port = \n", "is not TOML"), (b"[port]\n", "setting port")]
)
def test_a_settings_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, error: str
) -> None:
    """Given a file that is no text, no TOML or of another shape, then the error says which."""
    file = tmp_path / "reverie.toml"
    file.write_bytes(content)
    monkeypatch.setenv("REVERIE_CONFIG", str(file))
    assert error in mistake()


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Given REVERIE_CONFIG and REVERIE_BROKER set to nothing, as Compose does, then defaults hold."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_CONFIG", "")
    monkeypatch.setenv("REVERIE_BROKER", "")
    assert load_settings().broker is None


@pytest.mark.parametrize("url", ["notaurl", "http://broker:6379", "redis://broker:port/0", "redis://broker:99999/0"])
def test_a_broker_whose_url_cannot_be_one_is_refused_without_showing_it(url: str) -> None:
    """Given something else than a broker's URL, then one line says how one looks, and no password is shown."""
    assert "must begin with redis://" in mistake(broker=url)
    assert url not in mistake(broker=url)


def test_prices_are_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given two prices, then both are numbers; given one, three, a negative one or words, then it is refused."""
    assert load_settings().token_prices == (0.0, 0.0)
    monkeypatch.setenv("REVERIE_LANGUAGE_MODEL_PRICES", "0.15,2.5")
    assert load_settings().token_prices == (0.15, 2.5)
    for wrong in ("1", "1, -2", "1, 2, 3", "one, two"):
        assert "language_model_prices" in mistake(language_model_prices=wrong)


@pytest.mark.parametrize("url", [None, "localhost:11434/v1", "ftp://host/v1"])
def test_an_endpoint_without_an_address_is_refused_before_anything_starts(url: str | None) -> None:
    """Given the provider openai without a usable URL, then it is said at once and not by each worker's log."""
    assert "embedding_base_url" in mistake(embedding_provider="openai", embedding_base_url=url)
    well = load_settings(embedding_provider="openai", embedding_base_url="http://localhost:11434/v1")
    assert well.embedding_base_url == "http://localhost:11434/v1"


@pytest.mark.parametrize("setting", ["language_model", "extraction_model"])
def test_a_language_model_without_an_endpoint_is_refused(setting: str) -> None:
    """Given the name of a model alone, then it is said that its endpoint is missing, and not passed over in silence."""
    assert "language_model_base_url" in mistake(**{setting: "large"})


@pytest.mark.parametrize("setting", ["reranker_model", "reranker_api_key"])
def test_a_reranker_without_an_endpoint_is_refused(setting: str) -> None:
    """Given a reranker's model or key alone, then one line names the missing setting, without the key."""
    assert "set reranker_base_url as well" in mistake(**{setting: "large"})
    assert "large" not in mistake(**{setting: "large"})


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://host/v1", "http://", "http://[::1", "http://u:pw@host/v1"]
)
def test_a_reranker_without_a_usable_address_is_refused(url: str) -> None:
    """Given something else than a URL, or one with a password in it, then one line says so and does not show it."""
    error = mistake(reranker_base_url=url)
    assert "reranker_base_url" in error
    assert "\n" not in error
    assert "u:pw" not in error


def test_a_reranker_key_with_a_line_break_is_refused() -> None:
    """Given a key read from a file with its line break, then one line says so and does not show it."""
    error = mistake(reranker_base_url="http://localhost:8000/v1", reranker_api_key="sk-1\n")
    assert "reranker_api_key" in error
    assert "sk-1" not in error


@pytest.mark.parametrize("setting", ["embedding_api_key", "language_model_api_key", "reranker_api_key"])
def test_a_key_that_is_no_text_is_refused_without_showing_it(setting: str) -> None:
    """Given a key written as a number in the settings file, then the error names the setting and not the key."""
    error = mistake(**{setting: 20261122})
    assert setting in error
    assert "20261122" not in error


@pytest.mark.parametrize("name", [*_DECIDED_BY, *_CONSTANT_IN])
def test_an_old_name_is_answered_with_what_became_of_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Given a name that is no setting any more, then the error says what decides it, or where the constant is."""
    for old in {**_DECIDED_BY, **_CONSTANT_IN}[name].split():
        assert old not in Settings.model_fields
        monkeypatch.setenv(f"REVERIE_{old.upper()}", "1")
        error = mistake()
        assert error.startswith(f"environment variable REVERIE_{old.upper()} does not exist any more: ")
        assert name in error
        monkeypatch.delenv(f"REVERIE_{old.upper()}")
    assert name in Settings.model_fields or find_spec(name) is not None


def test_an_old_key_in_the_file_is_answered_with_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Given an old name in the file, then the error names file, key and the constant's module."""
    file = tmp_path / "reverie.toml"
    file.write_text("dream_min_hits = 2\n")
    monkeypatch.setenv("REVERIE_CONFIG", str(file))
    assert mistake() == (
        f"setting in {file}: dream_min_hits does not exist any more: remove it. Its value is a constant in"
        " memory.upkeep.dreaming"
    )


def test_reading_the_settings_loads_no_heavy_library() -> None:
    """Given a fresh interpreter, when it reads the settings, then no database, broker or array library is imported:
    every process and every command reads the settings first."""
    heavy = {"sqlalchemy", "numpy", "redis", "structlog", "psutil", "celery", "torch", "dulwich", "Stemmer"}
    code = "import sys; from worker.settings import load_settings; load_settings(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert heavy.isdisjoint(done.stdout.split())
