"""Policies beside admission: their statuses, the background scan and its reports.

Imports `engine`, `kube` and `jobs`. Start with `scanning`.
"""
