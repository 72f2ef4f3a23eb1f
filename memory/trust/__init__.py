"""The room of trust: principals, tokens and their scopes, and the audit log."""
