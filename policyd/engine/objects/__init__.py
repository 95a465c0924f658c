"""Kubernetes objects as policies see them: where pods are in them, and which rules match them.

Imports `api`, `cel` and `patch`. Start with `match` and `workloads`.
"""
