"""Queues on the API server: statuses, deletion while in use, admission checks and visibility.

Start with `queue_statuses`; `visibility` serves Kueue's visibility API.
"""
