"""Runs cases from outside: `python -m tests.conformance [--suite NAME] [--json FILE]`."""
