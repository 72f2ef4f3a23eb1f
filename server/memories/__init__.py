"""Routes for memories, facts and notes."""
