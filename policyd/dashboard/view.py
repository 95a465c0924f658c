"""What a view is, and what it is given to read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from policyd.dashboard.access import ResourceAttributes, Session
from policyd.dashboard.feeds import Feeds
from policyd.dashboard.views.review_counts import Reviewed
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.snapshot.values import QueueSnapshot

T = TypeVar("T")

CountReviews = Callable[[], Awaitable[Reviewed]]

MOST_PARAMETERS: Final = 32
"""Parameters of a query, all views together."""
MOST_CHARACTERS: Final = 256
"""Of the value of a parameter: no name of Kubernetes is longer than 253."""


class QueryError(PolicydError):
    """A query asks for something that there is not."""


@dataclass(slots=True)
class PageRequest:
    """What a view reads from.

    Attributes:
        path: The parameters of the path, by name.
        query: The parameters of the query, by name; bounded in number and length.
        scope: The namespace whose queues are shown; "" for all of the cluster.
        now: Seconds since the epoch.
        session: The viewer's.
        client: The API server, with the viewer's rights.
        feeds: Values that all viewers of a scope share.
        reviews: Reads what the webhooks count; None where they cannot be asked.
        allowed: Which of the rights that the view knows of this person has.
        live: Whether only the blocks are rendered that change.
        notices: Sentences to show above the view, for those who should not trust its age.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    scope: str
    now: float
    session: Session
    client: Client
    feeds: Feeds
    reviews: CountReviews | None = None
    allowed: frozenset[str] = frozenset()
    live: bool = False
    notices: list[str] = field(default_factory=list)

    async def snapshot(self) -> QueueSnapshot:
        """Return the queues of the scope, as of at most two seconds ago.

        If they cannot be read now, those that were read last are returned, with a notice.

        Raises:
            NoSnapshotsError: If the cluster serves none.
            ApiError: If the API server refuses, or does not answer.
            SnapshotError: If the answer is of another version of policyd.
        """
        found = await self.feeds.snapshot(self.scope)
        self.notices += found.notices(self.now)
        return found.snapshot


Build = Callable[[T, Mapping[str, str], float], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView(Generic[T]):
    """A view.

    Attributes:
        path: Where it is, as Starlette's routes have it: `/jobs/{namespace}/{kind}/{name}`.
        title: In the navigation, and of the page.
        template: The file in `templates`; it extends `layout.html`.
        read: Reads what is shown.
        build: Makes the model of the template from that, the query and the time. Pure.
        live: Blocks of the template that are sent again when they change; the element around the
            block `name` has the id `live-name`.
        rights: Rights that decide what is shown, by a word for each, given the scope.
        shared: Whether all who may see the scope see the same, given `rights`: then it is
            rendered once for all of them. What is read with `client` must depend on these alone.
        in_menu: Whether it is in the navigation.
        submit: Answers its form, given the fields; None if it has none. Its result goes to `build`.
    """

    path: str
    title: str
    template: str
    read: Callable[[PageRequest], Awaitable[T]]
    build: Build[T]
    live: tuple[str, ...] = ()
    rights: Mapping[str, Callable[[str], ResourceAttributes]] = field(default_factory=dict)
    shared: bool = True
    in_menu: bool = True
    submit: Callable[[PageRequest, Mapping[str, str]], Awaitable[T]] | None = None


AnyView = PageView[Any]
