"""Conversion of Kyverno's legacy policies to policies in CEL. Pure.

Imports `cel`, `engine`, `dialects`, `patch`, `api` and its parent. Start with `policies`: a policy
becomes `rules`, a rule is made of `matching`, `patterns` with their `leaves`, `conditions`,
`foreach` and `overlays`.
"""
