"""Commands that bring policies and queues over from other tools, such as `policyd migrate kyverno`.

Imports `migrate` and `cli/formats`. Start with `command`.
"""
