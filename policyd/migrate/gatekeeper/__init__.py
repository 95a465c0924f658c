"""Conversion of Gatekeeper's templates and constraints to policies in CEL. Pure.

Imports `dialects.gatekeeper`, `engine`, `cel`, `patch` and its parent. Start with `constraints`: a
constraint becomes a policy with the CEL of its template, or of `library.yaml` where the template is
in Rego alone.
"""
