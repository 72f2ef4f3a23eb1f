"""Random calls of several tenants, agents and users, each with words of its own."""
