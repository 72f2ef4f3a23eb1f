"""Memories, facts and notes: stored by explicit calls or extracted from conversations, without secrets."""
