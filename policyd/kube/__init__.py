"""The API server: client, credentials, informers, leader election.

Imports `api`, `errors` and libraries. Start with `client` (what others ask of it), then
`http_client` and `informer`.
"""
