"""Kyverno's policies, as far as they are CEL, for the engine that evaluates all policies.

Imports the engine and `cel`. Start with `load`; `suites` runs Kyverno's tests.
"""
