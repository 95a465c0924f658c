"""`inject`: values with expressions in them, and how each joins what an object has.

Imports `documents` and `objects` of the engine, `cel` and `patch`. Start with `operations`.
"""
