"""Commands for items."""
