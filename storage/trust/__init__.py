"""The room of trust: principals, tokens and their scopes, quotas, and the audit log."""
