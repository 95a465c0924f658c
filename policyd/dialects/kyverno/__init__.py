"""Kyverno's policies, as far as they are CEL, for the engine that evaluates all policies."""
