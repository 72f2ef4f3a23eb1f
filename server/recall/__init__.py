"""Routes for recall, context, and recall events."""
