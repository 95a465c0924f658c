"""Why workloads are pending: reasons in conditions, and events on jobs.

Start with `refreshing`, which decides when reasons are written.
"""
