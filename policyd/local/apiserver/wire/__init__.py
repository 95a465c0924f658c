"""Bytes of requests and answers: protobuf, JSON, discovery documents."""
