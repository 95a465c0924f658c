"""Queue snapshots: quotas, usage and pending workloads of all queues at one moment. Pure.

The controller builds and serves them; commands and the webhooks read them. A snapshot is written
for one reader, and names jobs of other teams only as far as that reader may know them.

- *Format*: `values`; `taking` takes it from the state, `writing` encodes it, `reading` decodes it.
- *Answers of commands*: `answers`, `priorities`, `loads`, `starting`.
- *For policies*: `facts`. *For new jobs*: `rules`, and `dry_run`, which plans them.

Imports `alloc`, `optimize`, `status`, `devices`, `usage`, `cel` and `api`, and of `engine` the form
of the facts that policies read. Start with `values`.
"""
