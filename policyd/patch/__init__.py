"""Change objects: drafts, JSON patch, merge patch, strategic merge patch, apply. Pure.

Imports `api` and `errors`. Start with `draft` and `json_patch`; `structured` is server-side apply.
"""
