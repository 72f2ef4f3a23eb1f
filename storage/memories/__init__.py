"""Rows of memories, facts and notes."""
