"""The calls for recall, context, session search and recall events."""
