"""The history of the schema: one alembic branch for workspaces, one for the account. Never edit what is released."""
