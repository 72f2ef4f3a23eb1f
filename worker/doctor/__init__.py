"""Checks of what can be wrong on a machine, for `reverie doctor`: each finding says what to do."""
