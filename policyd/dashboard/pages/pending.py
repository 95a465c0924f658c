"""Pending workloads: a list with filters, whose address can be shared."""

from typing import Final

from policyd.dashboard.view import PageRequest, View
from policyd.dashboard.views.pending import pending
from policyd.snapshot.values import QueueSnapshot


async def _read(request: PageRequest) -> QueueSnapshot:
    return await request.snapshot()


VIEW: Final = View(
    path="/pending",
    title="Pending",
    template="pending.html",
    read=_read,
    build=pending,
    live=("results",),
)
