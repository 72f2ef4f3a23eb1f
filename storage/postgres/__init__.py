"""PostgreSQL as the engine of stores: connections, the schema, and the translation of statements."""
