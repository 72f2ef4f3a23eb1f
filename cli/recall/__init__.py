"""Commands for recall, context, and recall events."""
