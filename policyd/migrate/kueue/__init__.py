"""What policyd does otherwise than the Kueue of a cluster, and the chart values that correspond.

`survey` gathers the facts from objects, one by one; `configuration` reads Kueue's Configuration,
also one of a newer Kueue; `comparison` says what is lost and what is otherwise.

Imports `api`, `engine`, `jobs` and `errors`. Start with `comparison`.
"""
