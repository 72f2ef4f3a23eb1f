"""The rules of memories: the stages of the pipeline and the jobs, as plain functions. No Celery, no SQL."""
