"""Commands about the use of GPUs: `policyd usage idle`, `rightsize`, `fragmentation`, `hours`.

Imports `usage`, `kube` and `cli/questions`. Start with `command`.
"""
