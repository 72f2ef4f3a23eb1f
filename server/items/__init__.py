"""Routes for items."""
