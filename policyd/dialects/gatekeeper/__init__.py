"""Gatekeeper's templates and suites of tests, as far as they are CEL."""
