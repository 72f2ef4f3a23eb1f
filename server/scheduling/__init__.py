"""Routes for schedules, runs, reminders and notifications."""
