"""Commands that read a cluster's queues, jobs and nodes: `why`, `queue`, `job` and others.

A command is in the file of its name; `question` has the options and the output of all of them.

Imports `snapshot`, `kube` and `jobs`, and what is next to the folder. Start with `why`.
"""
