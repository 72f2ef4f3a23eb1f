"""The demonstration: stores a conversation through the real queue and answers questions about it (`make demo`)."""
