"""Commands about the use of GPUs: `policyd usage idle`, `rightsize`, `fragmentation`, `hours`.

Imports `usage`, `snapshot`, `status`, `alloc`, `optimize`, `jobs`, `kube`, `questions` and
`cli/questions`. Start with `command`.
"""
