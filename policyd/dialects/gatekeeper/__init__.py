"""Gatekeeper's templates and suites of tests, as far as they are CEL.

Imports the engine. Start with `templates`; `suites` runs Gatekeeper's tests.
"""
