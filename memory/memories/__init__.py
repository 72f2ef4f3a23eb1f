"""Memories, facts and notes: kept by hand or extracted from conversations, without secrets."""
