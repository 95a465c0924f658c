"""Read Kyverno's policies, as far as they are CEL.

Imports `engine`, `cel` and `patch`. Start with `load`; `suites` runs Kyverno's tests.
"""
