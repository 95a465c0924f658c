"""The life of a Workload: conditions, transitions, time limits, and its values for the core.

Pure. Imports `api`, `jobs`, `status`, and the values of `alloc`. Start with `transitions` (how a
status changes) and `lifecycle` (which change is next); `conversion` makes the core's values of API
objects.
"""
