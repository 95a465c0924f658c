"""Commands that read a cluster's queues, jobs and nodes: `why`, `queue`, `job` and others.

A command is in the file of its name; `question` has the options and the output of all of them.

Imports the pure folders, above all `snapshot`, `kube`, `questions` and `dashboard`, and what is
next to the folder. Start with `why`.
"""
