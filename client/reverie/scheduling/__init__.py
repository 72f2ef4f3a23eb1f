"""The calls for schedules, runs, reminders and notifications, and the cadences that they fire by."""
