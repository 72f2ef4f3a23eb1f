"""Days of schedules in seconds, with real processes that are killed."""
