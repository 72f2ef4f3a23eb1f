"""Commands on what all subjects have: backups, exports, erasure, the databases, and copies to try a change in."""
