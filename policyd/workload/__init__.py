"""The life of a Workload: conditions, transitions, time limits, and its values for the core.

Pure. Imports `api`, `jobs`, `status`, `devices`, `snapshot`, `usage`, and the values of `alloc` and
`optimize`. Start with `transitions` (how a status changes) and `lifecycle` (which change is next);
`conversion` makes the core's values of API objects.
"""
