"""Queue snapshots: what queues give, hold and keep waiting at one moment. Pure.

The controller builds and serves them; commands and the webhooks read them, and `outlook` plans what
is not in the queues yet. A snapshot is written for one reader, and
names jobs of other teams only as far as that reader may know them.

Imports `alloc`, `optimize`, `status` and `api`, and of `engine` the form of the facts that policies
read. Start with `values`.
"""
