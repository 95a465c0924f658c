"""The loops: watch, cache, cycle, actions."""
