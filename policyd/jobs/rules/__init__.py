"""The changes of the webhooks to jobs and pods that queue, and their errors, in Kueue's words.

Imports `api`, `patch` and `jobs`. Start with `defaults` (the changes) and `validation` (the
errors).
"""
