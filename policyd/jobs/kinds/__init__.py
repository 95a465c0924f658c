"""One module per kind of job.

Start with `registry`: a new kind is one module and one line there. Imports `api`, `patch`,
`devices`, `engine`, and from `jobs` the base, gangs and rules.
"""
