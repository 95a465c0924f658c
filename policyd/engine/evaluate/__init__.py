"""Deciding on a request.

Start with `policy_set`: all policies together; then `validation` and `mutation`.
"""
