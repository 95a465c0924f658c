"""Pending workloads: a list with filters, whose address can be shared."""

from typing import Final

from policyd.dashboard.view import PageRequest, PageView
from policyd.dashboard.views.pending import pending
from policyd.snapshot.values import QueueSnapshot


async def _read(request: PageRequest) -> QueueSnapshot:
    return await request.snapshot()


VIEW: Final = PageView(
    path="/pending",
    title="Pending",
    template="pending.html",
    read=_read,
    build=pending,
    live=("results",),
)
