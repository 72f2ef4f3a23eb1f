"""Schedules, runs, reminders and notifications: what is due, what is executed, and who is notified."""
