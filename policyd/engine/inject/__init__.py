"""Compile `inject`, and merge its values into objects.

Imports `documents` and `objects` of the engine, `cel` and `patch`. Start with `operations`.
"""
