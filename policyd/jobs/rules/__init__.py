"""What the webhooks change in jobs and pods that queue, and what they refuse, in Kueue's words.

Imports `api`, `patch` and `jobs`. Start with `defaults` (what is changed) and `validation` (what is
refused).
"""
