"""`policyd takeover`: the queues of a cluster that runs Kueue, taken over and given back.

`installation` reads what there is of Kueue and of policyd. `steps` has what is done, in order: each
step reports what is missing, so that one that was stopped midway goes on, or back.

Imports `kube`, `registration` and `admission`, and what is next to the folder. Start with
`command`.
"""
