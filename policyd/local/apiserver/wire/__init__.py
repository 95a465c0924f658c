"""Bytes of requests and answers: protobuf, JSON, discovery documents.

Imports `api` and the server's registry. Start with `responses`.
"""
