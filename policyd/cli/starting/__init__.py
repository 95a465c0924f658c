"""A new repository of policies: `policyd init`.

Imports `policy_files`, `jobs` and `cli/formats`. Start with `command`; `contents` has the files,
and `ignored` the fields that tools of GitOps leave to policyd.
"""
