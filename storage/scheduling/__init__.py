"""Rows of schedules, runs, reminders and notifications."""
