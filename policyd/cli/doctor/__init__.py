"""`policyd doctor`: what is wrong with an installation, and the command that fixes it.

A check is in the `CHECKS` of the file that has its subject: `installation`, `kueue`, `webhooks`,
`queues` (policies and flavors, too), and `held` (pods, jobs and deletions that wait for something
missing).

Imports `kube`, `certificates`, `jobs`, `registration`, `snapshot`, `questions` and
`controller/policies`, and what is next to the folder. Start with `command`.
"""
