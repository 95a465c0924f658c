"""What each view shows, made of values alone: values in, view models out. Pure.

Imports `snapshot`, `simulate`, `status`, `alloc`, `engine`, `patch`, `workload`, and the pure parts
of `questions`. Start with `overview`.
"""
