"""The API server: client, credentials, informers, leader election."""
