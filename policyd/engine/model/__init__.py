"""Define the values that the engine shares: compiled policies, facts, decisions.

Imports `api`, `cel`, `patch`, and `documents`, `inject` and `objects` of the engine. Start with
`compiled` (a policy), `facts` (a request) and `decision`.
"""
