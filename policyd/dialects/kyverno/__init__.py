"""Read Kyverno's policies, as far as they are CEL.

Imports the engine and `cel`. Start with `load`; `suites` runs Kyverno's tests.
"""
