"""Gangs that another scheduler starts whole: what it must be told of one, in its own words."""
