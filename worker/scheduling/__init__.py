"""The jobs of schedules and reminders in a process: composed from its settings and resources."""
