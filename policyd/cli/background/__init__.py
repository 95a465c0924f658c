"""The command that acts on Kyverno's policies that generate and delete.

Imports `dialects`, `engine`, `kube` and `questions`; what is generated and deleted is decided in
`policyd/engine/background`. Start with `command`.
"""
