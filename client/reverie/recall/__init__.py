"""The calls that read: recall, context, and what recalls have found."""
