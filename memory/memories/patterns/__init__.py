"""Extraction without a language model: a small set of English patterns for what users say about themselves.

Precision comes first: whatever is not said plainly is left out, and nothing is guessed.
"""

from __future__ import annotations

from memory.memories.patterns.instructions import find_instructions, find_revocations
from memory.memories.patterns.matching import Statement
from memory.memories.patterns.statements import find_statements

__all__ = ["Statement", "find_instructions", "find_revocations", "find_statements"]
