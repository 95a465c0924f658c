"""Read Gatekeeper's templates and test suites, as far as they are CEL.

Imports `engine` and `patch`. Start with `templates`; `suites` runs Gatekeeper's tests.
"""
