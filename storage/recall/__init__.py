"""What recall reads: full text, vectors, the forward index, and recall events."""
