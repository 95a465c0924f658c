"""One module per kind of job.

Start with `registry`: a new kind is one module and one line there.
"""
