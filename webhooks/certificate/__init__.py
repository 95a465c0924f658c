"""The webhooks' certificate: kept in a Secret, rotated, served, published to the API server.

Imports `certificates`, `admission`, `registration` and `kube`. Start with `rotation`.
"""
