"""Read Kubernetes objects as policies see them: where pods are, and which rules match.

Imports `api`, `cel` and `patch`. Start with `match` and `workloads`.
"""
