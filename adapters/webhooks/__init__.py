"""Webhooks: signed JSON, posted to receivers run by others, and only to allowed addresses."""
