"""The overview: what is first seen."""

from typing import Final

from policyd.dashboard.view import PageRequest, View
from policyd.dashboard.views.overview import overview
from policyd.snapshot.values import QueueSnapshot


async def _read(request: PageRequest) -> QueueSnapshot:
    return await request.snapshot()


VIEW: Final = View(
    path="/",
    title="Overview",
    template="overview.html",
    read=_read,
    build=overview,
    live=("tree",),
)
