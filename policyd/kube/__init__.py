"""The API server: client, credentials, informers, leader election.

Imports `api`, `errors` and libraries. Start with `client` (the interface for others), then
`http_client` and `informer`.
"""
