"""Work on all tables of a store: erasure, export, import, verification, copies and undo."""
