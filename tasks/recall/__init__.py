"""The task that records what recalls found."""
