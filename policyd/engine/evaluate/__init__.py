"""Decide on a request.

Imports `model`, `inject`, `objects` and `documents` of the engine, `cel` and `patch`. Start with
`policy_set`: all policies together; then `validation` and `mutation`.
"""
