"""Commands that bring policies and queues over from other tools, such as `policyd migrate kyverno`.

Imports `migrate`, `dialects`, `engine`, `jobs`, `patch`, `kube`, `controller` for its settings, and
`cli/formats`. Start with `command`.
"""
