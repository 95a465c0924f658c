"""Mirrors: what was written is seen at once, and what is old is not seen again."""

import pytest

from policyd.api.meta import ObjectMeta
from policyd.controller.watch.mirror import Mirror
from policyd.kube.changes import Added, Deleted, Modified
from policyd.kube.client import PartialObject
from policyd.kube.resources import WORKLOADS
from policyd.testing import FakeClient, FakeClock


def obj(version, uid="u1"):
    metadata = ObjectMeta(name="w", namespace="ns", uid=uid, resource_version=str(version))
    return PartialObject(metadata=metadata)


@pytest.fixture
def changes():
    return []


@pytest.fixture
def mirror(changes):
    made = Mirror(FakeClient(), WORKLOADS, into=PartialObject, pace=FakeClock().pace())
    made.listen(lambda change: changes.append(versions(change)))
    return made


def versions(change):
    match change:
        case Added(new):
            return None, version(new)
        case Modified(old, new):
            return version(old), version(new)
        case Deleted(old):
            return version(old), None


def version(each):
    return each.metadata.resource_version


def test_written_objects_are_not_reported_again_by_the_watch(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror.wrote(obj(3))
    mirror._seen(Modified(obj(1), obj(2)))
    mirror._seen(Modified(obj(2), obj(3)))

    assert changes == [(None, "1"), ("1", "3")]


def test_an_object_that_left_the_selection_comes_back(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror._seen(Deleted(obj(2)))
    mirror._seen(Added(obj(3)))

    assert changes == [(None, "1"), ("1", None), (None, "3")]


def test_a_later_change_is_reported(mirror, changes):
    mirror.wrote(obj(3))
    mirror._seen(Added(obj(3)))
    mirror._seen(Modified(obj(3), obj(4)))

    assert changes == [(None, "3"), ("3", "4")]


def test_the_answer_to_a_write_does_not_bring_back_what_is_deleted(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror._seen(Deleted(obj(1)))
    mirror.wrote(obj(2))

    assert changes == [(None, "1"), ("1", None)]
    assert mirror.get("ns/w") is None


def test_an_object_made_again_is_reported_as_a_deletion_and_a_creation(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror.wrote(obj(5, uid="u2"))
    mirror._seen(Deleted(obj(1)))

    assert changes == [(None, "1"), ("1", None), (None, "5")]
    assert version(mirror.get("ns/w")) == "5"


def test_known_deletions_are_handled_once(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror.forget("ns/w")
    mirror._seen(Deleted(obj(1)))

    assert changes == [(None, "1"), ("1", None)]


def test_an_object_that_came_before_the_answer_about_its_predecessor_stays(mirror, changes):
    mirror._seen(Added(obj(1)))
    mirror._seen(Deleted(obj(1)))
    mirror._seen(Added(obj(3, uid="u2")))
    mirror.lost(obj(1))

    assert changes == [(None, "1"), ("1", None), (None, "3")]
