"""Extraction without a language model: a small set of English patterns for what users say about themselves.

Precision comes first: whatever is not said plainly is left out, and nothing is guessed.
"""
