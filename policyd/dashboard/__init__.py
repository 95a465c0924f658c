"""The page: what queues, nodes and jobs do, in a browser, read-only.

Pages are rendered by the server and work without script; with it, what changes is sent as it
changes. Who looks is known by the API server, by a proxy, or by a one-time link on loopback.

Imports `questions`, `snapshot`, `status` and `kube`. Start with `app`.
"""
