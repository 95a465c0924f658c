"""One module per job kind: its pod sets, how it is held, started and finished. Pure.

Imports `api`, `patch`, and values of `alloc`. Start with `base` (the interface of a kind of job),
then `lifecycle` (which step is next) and `workload` (the Workload of a job).
"""
