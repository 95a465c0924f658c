"""Commands about policies: check, apply, explain, test, replay, report, export, CEL, the library.

Imports the pure folders, `kube`, `questions` and `controller/policies`, and what is next to the
folder. Start with `apply`, a typical command.
"""
