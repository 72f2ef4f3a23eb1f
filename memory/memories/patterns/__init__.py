"""Extraction without a language model: a small set of patterns on what users say of themselves, in English.

Precision counts above all: what is not said plainly is left out. Nothing is guessed.
"""

from __future__ import annotations

from memory.memories.patterns.finding import find_statements
from memory.memories.patterns.statement import Statement

__all__ = ["Statement", "find_statements"]
