"""The demonstration: a conversation goes through the real queue and comes back by questions (`make demo`)."""
