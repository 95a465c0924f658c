"""The views, in the order of the navigation."""

from typing import Final

from policyd.dashboard.pages import job, overview
from policyd.dashboard.view import AnyView

VIEWS: Final[tuple[AnyView, ...]] = (overview.VIEW, job.VIEW)
