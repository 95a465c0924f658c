"""The admission server: HTTP in, a decision out. Nothing is decided here.

Imports `admission`, `engine`, `jobs`, `registration`, `snapshot`, `certificates`, `kube` and the
modules that programs share. Start with `server`, which puts all together, and `app`.
"""
