"""What lies outside: embedders, and the broker's small side services. Each behind a Protocol, each with a fake."""
