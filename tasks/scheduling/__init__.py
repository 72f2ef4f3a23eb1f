"""Tasks that fire schedules, execute runs, and deliver reminders and notifications."""
