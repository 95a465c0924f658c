"""The views of the page: where each is, what it reads of the cluster, and its template.

Imports `questions`, and what is next to the folder. Start with `overview`.
"""
