"""Which requests the API server sends to the webhooks, derived from the policies and the queue.

Pure. Imports `engine`, `jobs`, `cel` and `api`. Start with `configurations` (the objects that are
registered), then `webhook_rules` (the rules in them) and `interest` (the requests for each policy).
"""
