"""The values that the engine's parts share: compiled policies, facts of a request, decisions.

Imports `api`, `cel`, and `documents`, `inject` and `objects` of the engine. Start with `compiled`
(a policy), `facts` (a request) and `decision`.
"""
