"""The API server: client, credentials, informers, leader election.

Imports `api`, `errors`, libraries, and of `engine` the reports that it writes. Start with `client`
(the interface for others), then `http_client` and `informer`.
"""
