"""`docs/configuration.md` says what the settings are, because it is written from them."""

from __future__ import annotations

from pathlib import Path

from generators.settings import page
from worker.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    """Given the settings, then the page in the repository is what they give."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_setting_has_a_row_with_a_description() -> None:
    """Given a setting, then its row says what it is for."""
    for key, field in Settings.model_fields.items():
        row = next(line for line in page().splitlines() if line.startswith(f"- `{key}`"))

        assert field.description
        assert field.description in row
