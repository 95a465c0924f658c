"""Garbage collection: dependents are deleted after their owner, before it, or orphaned."""

from collections.abc import Iterator

from policyd.clock import Clock
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import Store, StoreEvent
from policyd.local.apiserver.writing.deletion import (
    FOREGROUND,
    ORPHAN,
    DeletionRules,
    is_released,
    mark_deleted,
    settle,
)

Place = tuple[str, str, str]
"""Resource, namespace and name."""


class GarbageCollector:
    """Follows the changes of the store, and acts in `work` only.

    It stores ownership by uid, and the owners and dependents to check next.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._dependents: dict[str, set[Place]] = {}
        self._living: set[str] = set()
        self._doubtful: set[Place] = set()
        self._going: set[Place] = set()
        self._foreground: dict[str, Place] = {}
        """The owners that are to go after their dependents, by uid."""
        for resource, value in store:
            self._learn(resource, value)

    def notice(self, event: StoreEvent) -> bool:
        """Take a change; tell whether there is work."""
        place = _place(event.resource, event.object)
        uid = event.object["metadata"]["uid"]
        for owner in _owners(event.previous or {}):
            self._dependents.get(owner["uid"], set()).discard(place)
        if event.type == "DELETED":
            self._living.discard(uid)
            self._doubtful |= self._dependents.pop(uid, set())
            self._foreground.pop(uid, None)
            # An owner in deletion may have waited for this one.
            uids = {owner["uid"] for owner in _owners(event.object)} & self._foreground.keys()
            self._going |= {self._foreground[uid] for uid in uids}
        else:
            self._learn(event.resource, event.object)
        return bool(self._doubtful or self._going)

    def _learn(self, resource: str, value: Object) -> None:
        place, about = _place(resource, value), value["metadata"]
        self._living.add(about["uid"])
        for owner in _owners(value):
            self._dependents.setdefault(owner["uid"], set()).add(place)
            if owner["uid"] not in self._living:
                self._doubtful.add(place)
        finalizers = about.get("finalizers", ())
        self._foreground.pop(about["uid"], None)
        if FOREGROUND in finalizers:
            self._foreground[about["uid"]] = place
        if "deletionTimestamp" in about and (FOREGROUND in finalizers or ORPHAN in finalizers):
            self._going.add(place)

    def work(self) -> None:
        """Delete the dependents that are due."""
        while self._doubtful or self._going:
            doubtful, self._doubtful = self._doubtful, set()
            going, self._going = self._going, set()
            for place in sorted(doubtful):
                self._judge(place)
            for place in sorted(going):
                self._end(place)

    def _judge(self, place: Place) -> None:
        """Delete an object whose owners were all deleted; else drop references to deleted ones."""
        value = self._store.get(*place)
        owners = list(_owners(value or {}))
        if value is None or not owners:
            return
        living = [owner for owner in owners if owner["uid"] in self._living]
        if not living:
            self._delete(place, value)
        elif len(living) < len(owners):
            self._put(place, value, {"ownerReferences": living})

    def _end(self, place: Place) -> None:
        """Work off the finalizer that the propagation policy left on an object in deletion."""
        value = self._store.get(*place)
        if value is None or "deletionTimestamp" not in value["metadata"]:
            return
        finalizers = value["metadata"].get("finalizers", [])
        uid = value["metadata"]["uid"]
        if ORPHAN in finalizers:
            for dependent in sorted(self._dependents.get(uid, ())):
                self._orphan(dependent, uid)
            self._put(place, value, {"finalizers": [f for f in finalizers if f != ORPHAN]})
        elif FOREGROUND in finalizers and not self._blocked(uid):
            self._put(place, value, {"finalizers": [f for f in finalizers if f != FOREGROUND]})

    def _blocked(self, uid: str) -> bool:
        """Delete the dependents of an owner; tell whether the owner must wait for any of them."""
        blocked = False
        for place in sorted(self._dependents.get(uid, ())):
            value = self._store.get(*place)
            if value is not None and not self._delete(place, value, policy="Foreground"):
                owners = (owner for owner in _owners(value) if owner["uid"] == uid)
                blocked = any(owner.get("blockOwnerDeletion") for owner in owners) or blocked
        return blocked

    def _orphan(self, place: Place, uid: str) -> None:
        value = self._store.get(*place)
        if value is not None:
            kept = [owner for owner in _owners(value) if owner["uid"] != uid]
            self._put(place, value, {"ownerReferences": kept})

    def _delete(self, place: Place, value: Object, *, policy: str = "Background") -> bool:
        """Delete an object as a client would; tell whether it is gone."""
        if policy == "Foreground" and not self._dependents.get(value["metadata"]["uid"]):
            policy = "Background"
        options = DeletionRules(policy=policy)
        marked = mark_deleted(value, place[0], options, now=self._clock.now())
        return is_released(settle(self._store, place[0], value, marked))

    def _put(self, place: Place, value: Object, fields: Object) -> None:
        about = {**value["metadata"], **fields}
        new = {**value, "metadata": {name: part for name, part in about.items() if part != []}}
        settle(self._store, place[0], value, new)


def _place(resource: str, value: Object) -> Place:
    about = value["metadata"]
    return resource, about.get("namespace", ""), about["name"]


def _owners(value: Object) -> Iterator[Object]:
    yield from value.get("metadata", {}).get("ownerReferences") or ()
