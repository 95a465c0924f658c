import pytest

from policyd.api.meta import rfc3339
from policyd.local.apiserver.builtin import EVENTS
from policyd.local.apiserver.garbage import GarbageCollector
from policyd.local.apiserver.housekeeping import EVENT_SECONDS, Housekeeping
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.store import ChangedError, Store, TooOldError

NOW = 1_000_000_000.0


class FrozenClock:
    """A moment that lasts."""

    def now(self):
        return NOW

    def monotonic(self):
        return 0.0


def stored(name, *, uid="", seconds_ago=0.0, **metadata):
    created = rfc3339(NOW - seconds_ago)
    about = {"name": name, "uid": uid or name, "creationTimestamp": created, **metadata}
    return {"kind": "ConfigMap", "metadata": about}


def owner(uid):
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid}


def names(store, resource):
    return [key[1] for key, _ in store.items(resource)]


@pytest.mark.anyio
async def test_events_are_kept_for_an_hour():
    store = Store()
    for name, age in (("old", EVENT_SECONDS + 1), ("young", EVENT_SECONDS - 1)):
        store.put(EVENTS, stored(name, seconds_ago=age), replacing=None)
    state = ServerState(
        store=store, registry=None, documents=None, clock=FrozenClock(), admission=None
    )

    Housekeeping(state).drop_old_events()

    assert names(store, EVENTS) == ["young"]


def test_an_object_is_replaced_only_by_a_client_that_has_seen_it():
    store = Store()
    first = store.put("things", stored("a"), replacing=None)
    store.put("things", stored("a", labels={"x": "y"}), replacing=first)

    for action in (
        lambda: store.put("things", stored("a"), replacing=first),
        lambda: store.put("things", stored("a"), replacing=None),
        lambda: store.remove("things", first),
    ):
        with pytest.raises(ChangedError):
            action()


def test_changes_are_remembered_by_resource():
    store = Store(history=2)
    store.put("rare", stored("r"), replacing=None)
    for name in "abc":
        store.put("busy", stored(name), replacing=None)

    assert [event.object["metadata"]["name"] for event in store.since("rare", 1)] == ["r"]
    assert len(store.since("busy", 3)) == 2
    with pytest.raises(TooOldError):
        store.since("busy", 2)


def test_a_chain_of_owners_goes_at_once_after_a_restart():
    store = Store()
    for name, above in (("a", None), ("b", "a"), ("c", "b")):
        references = {"ownerReferences": [owner(above)]} if above else {}
        store.put("things", stored(name, **references), replacing=None)
    first = store.get("things", "", "a")
    store.remove("things", first)

    collector = GarbageCollector(store, FrozenClock())
    store.listen(collector.notice)
    collector.work()

    assert names(store, "things") == []
