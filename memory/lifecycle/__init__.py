"""Work on all subjects: erasure, export, import, backup, restore and undo."""
