"""Decisions that are reused: what policies look at in a pod, found in their expressions."""
