"""The views, in the order of the navigation."""

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
