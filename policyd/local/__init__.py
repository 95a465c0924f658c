"""An embedded cluster in one process, for `policyd up`, demos and tests.

Imports `kube`, `jobs`, `cel` and `apiserver`. Start with `simulation` and `apiserver`.
"""
