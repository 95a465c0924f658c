"""The rules that objects keep, in the API server's words."""
