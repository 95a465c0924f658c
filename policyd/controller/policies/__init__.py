"""Policies beside admission: their statuses, the background scan and its reports.

Imports `engine` and `kube`. Start with `scanning`.
"""
