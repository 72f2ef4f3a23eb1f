"""Commands for schedules, runs, reminders and notifications."""
