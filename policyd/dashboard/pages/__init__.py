"""The views of the page: where each is, what it reads of the cluster, and its template.

Imports the pure folders, `questions` and `kube`, and what is next to the folder. Start with
`overview`.
"""

from typing import Final

from policyd.dashboard.pages import cluster, job, overview, pending, policies, what_if
from policyd.dashboard.view import AnyView

VIEWS: Final[tuple[AnyView, ...]] = (
    overview.VIEW,
    cluster.VIEW,
    pending.VIEW,
    job.VIEW,
    policies.VIEW,
    policies.ONE,
    what_if.VIEW,
)
"""In the order of the navigation."""
