"""Whether the owner that an object names is there, for where everybody's word for it is taken.

Kueue does not take an owner for one whose UID is another: that one is gone, and what has its name
now did not make the object. Where makers are asked, nobody else's word counts, and no owner is
looked up.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from policyd.api.makers import group_kind_of
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import Resource
from webhooks.external_data.inquiries import ExternalAnswer, Inquiries, UnansweredError

log = structlog.get_logger(__name__)

THERE_SECONDS: Final = 60.0
"""How long it counts that an owner is there: the pods of one job ask once."""
GONE_SECONDS: Final = 1.0


class Owners:
    """Looks owners up.

    Args of the constructor:
        reader: The API server.
        inquiries: What reviews ask.
    """

    def __init__(self, reader: Reader, inquiries: Inquiries) -> None:
        self._reader = reader
        self._inquiries = inquiries

    def is_there(self, namespace: str, owner: Mapping[str, Any]) -> bool:
        """Tell whether an owner has the UID that is said; one that nobody can look up is believed.

        Raises:
            PendingError: If it is to be asked first.
        """
        kind = find_kind(*group_kind_of(owner)) or find_parent(*group_kind_of(owner))
        if kind is None:
            return True
        resource = Resource(kind.group, kind.version, kind.plural, kind.kind)
        named = (namespace, str(owner.get("name", "")), str(owner.get("uid", "")))
        key = b"owner " + msgspec.json.encode((resource.plural, resource.group, *named))
        try:
            return bool(self._inquiries.answer(key, partial(self._ask, resource, *named)))
        except UnansweredError as error:
            log.warning("owner_unknown", kind=kind.kind, name=named[1], reason=str(error))
            return True

    async def _ask(self, resource: Resource, namespace: str, name: str, uid: str) -> ExternalAnswer:
        try:
            found = await self._reader.get(resource, name, namespace=namespace, into=PartialObject)
        except NotFoundError:
            return ExternalAnswer(value=False, seconds=GONE_SECONDS)
        except ForbiddenError as error:
            log.warning("owner_unknown", kind=resource.kind, name=name, reason=str(error))
            return ExternalAnswer(value=True, seconds=THERE_SECONDS)
        same = found.metadata.uid == uid
        return ExternalAnswer(value=same, seconds=THERE_SECONDS if same else GONE_SECONDS)
