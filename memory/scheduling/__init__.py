"""Schedules, runs, reminders and notifications: finding due work, executing it, and notifying users."""
