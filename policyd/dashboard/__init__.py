"""The page: what queues, nodes and jobs do, in a browser, read-only.

Pages are rendered by the server and work without script; with it, what changes is sent as it
changes. Viewers sign in by a token, by a proxy, or by a one-time link on loopback.

Imports `questions`, `snapshot`, `status` and `kube`. Start with `app`.
"""
