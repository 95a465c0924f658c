"""One module per job kind: its pod sets, how it is held, started and finished. Pure.

Imports `api`, `patch`, values of `alloc`, `devices`, and what counts pods in `engine`. Start with
`base` (the interface of a kind of job), then `lifecycle` (which step is next) and `workload` (the
Workload of a job).
"""
