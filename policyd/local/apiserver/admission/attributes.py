"""What admission is told of a write."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import User
from policyd.local.apiserver.status import Object

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One write on its way in. `object` changes while mutations run; None when deleting.

    `options` is the CreateOptions, UpdateOptions … as it is shown to webhooks.
    """

    served: Served
    operation: Operation
    namespace: str
    name: str
    user: User
    subresource: str = ""
    object: Object | None = None
    old_object: Object | None = None
    dry_run: bool = False
    options: Object
    warn: Callable[[str], None]
