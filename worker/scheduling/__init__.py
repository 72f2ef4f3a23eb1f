"""What a process needs to execute schedules: executors, destinations, the notifier."""
