"""Kubernetes objects as policies see them: where pods are in them, and which rules match them."""
