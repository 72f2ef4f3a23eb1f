"""Removes what has ended: dead letters, one-shots, reminders that nobody fetched, expired items, receipts.

Each has its days, and is removed by the daily upkeep. Nothing here touches what agents and users have said.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reverie.contract import EXTRACT_MEMORIES
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.upkeep.expiry import AT_ONCE

_DAY_MICROS: Final = 24 * 3_600 * 1_000_000
# A store with very much to remove is continued by the next run.
_BUDGET_SECONDS: Final = 20.0
# Longer than a dream sweep looks back: what is gone for so long is not recalled any more.
_PROMOTION_DAYS: Final = 400.0


@dataclass(frozen=True, slots=True)
class KeepRules:
    """For how many days what has ended is kept, and how many dead letters of a workspace are."""

    curation_log_days: float = 90.0
    dead_letter_days: float = 365.0
    dead_letters_kept: int = 10_000
    ended_schedule_days: float = 90.0
    unclaimed_reminder_days: float = 365.0
    receipt_days: float = 1_825.0
    usage_days: float = 800.0


DEFAULT_KEEP: Final = KeepRules()


def expire(store: Store, rules: KeepRules, *, now: int) -> dict[str, int]:
    """Remove what has ended from one store, in short transactions; returns how many of each. `now` in microseconds."""

    def days_ago(days: float) -> int:
        return now - int(days * _DAY_MICROS)

    limit = AT_ONCE
    steps: dict[str, Callable[[Transaction], int]] = {
        "obsolete_letters": lambda tx: tx.dead_letters.remove_obsolete(limit=limit),
        "old_letters": lambda tx: tx.dead_letters.remove_old(before=days_ago(rules.dead_letter_days), limit=limit),
        "surplus_letters": lambda tx: tx.dead_letters.remove_beyond(rules.dead_letters_kept, limit=limit),
        "ended_schedules": lambda tx: tx.expiry.ended_schedules(before=days_ago(rules.ended_schedule_days)),
        "unclaimed_reminders": lambda tx: tx.expiry.unclaimed_reminders(before=days_ago(rules.unclaimed_reminder_days)),
        "expired_items": lambda tx: tx.expiry.expired_items(before=now),
        "promotions": lambda tx: tx.expiry.promotions_of_nothing(before=days_ago(_PROMOTION_DAYS)),
        "progress": lambda tx: tx.expiry.progress_of_nothing(EXTRACT_MEMORIES),
    }
    removed: Counter[str] = Counter()
    deadline = time.monotonic() + _BUDGET_SECONDS
    for name, step in steps.items():
        while time.monotonic() < deadline:
            with store.writing() as tx:
                found = step(tx)
            removed[name] += found
            if found < AT_ONCE:
                break
    return {f"{name}_dropped": number for name, number in removed.items() if number}


def expire_account(stores: Stores, rules: KeepRules, *, now: int) -> dict[str, int]:
    """Remove old receipts of erasures, and the usage of a language model long ago; returns how many of each."""
    removed = {
        "receipts_dropped": stores.erasures().remove_before(now - int(rules.receipt_days * _DAY_MICROS)),
        "usage_dropped": stores.usage().remove_before(now - int(rules.usage_days * _DAY_MICROS)),
    }
    return {name: number for name, number in removed.items() if number}
