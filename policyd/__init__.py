"""policyd: policy engine and job queue for multi-tenant GPU clusters on stock Kubernetes.

Each folder is one subject; CONTRIBUTING.md has the map. All programs share the modules here:
settings, logs, sockets, processes. Imports `api`, `certificates`, `jobs`, `cli` to run a command,
and libraries. Start with `config` and `program`.
"""

__version__ = "0.1.0"
