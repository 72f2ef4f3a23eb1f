"""What Reverie does in figures: each module is a command that prints a table and writes one JSON result."""
