"""Commands for memories, facts and notes."""
