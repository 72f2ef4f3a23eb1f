"""The calls for memories, facts and notes."""
