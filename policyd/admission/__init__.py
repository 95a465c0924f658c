"""The answer to an admission request, in numbered steps.

Pure: functions that wait are passed in. Imports `engine`, `jobs`, `registration`, `snapshot`,
`api`, `alloc`, `devices`, `forecast`, `patch`, `status`, `usage` and `workload`. Start with
`handler` (the steps, from the bytes of a review to those of its answer); `jobs` and `queues` decide
for the queue, `verdicts` says what new jobs can expect, and `unevaluated` answers reviews that
cannot be evaluated. `in_turn` decides for commands, without a server.
"""
