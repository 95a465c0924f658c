"""Commands that bring policies over from other tools: `policyd migrate kyverno`.

Imports `migrate` and `cli/formats`. Start with `command`.
"""
