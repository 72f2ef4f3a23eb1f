"""The processes: settings, the Celery app, what each process opens, the broker, the supervisor, the command line."""
