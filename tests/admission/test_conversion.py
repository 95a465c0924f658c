"""Kueue's objects in another version: the answers of `/convert`."""

import asyncio
import json

import pytest

from policyd.admission.conversion import convert

NEW, OLD = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"


async def rest():
    await asyncio.sleep(0)


def queue(version, **spec):
    return {
        "apiVersion": version,
        "kind": "ClusterQueue",
        "metadata": {"name": "gpus", "uid": "1"},
        "spec": spec,
    }


def review(*objects, to):
    request = {"uid": "u", "desiredAPIVersion": to, "objects": objects}
    envelope = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**envelope, "request": request}).encode()


def answer(*objects, to, late=False):
    answered = json.loads(asyncio.run(convert(review(*objects, to=to), lambda: late, rest=rest)))
    assert answered["kind"] == "ConversionReview"
    assert answered["response"]["uid"] == "u"
    return answered["response"]


@pytest.mark.parametrize(
    ("here", "there", "spec", "expected"),
    [
        (OLD, NEW, {"cohort": "research"}, {"cohortName": "research"}),
        (NEW, OLD, {"cohortName": "research"}, {"cohort": "research"}),
        (NEW, NEW, {"cohortName": "research"}, {"cohortName": "research"}),
    ],
)
def test_objects_are_had_in_the_version_that_is_asked_for(here, there, spec, expected):
    response = answer(queue(here, **spec), queue(here), to=there)

    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [queue(there, **expected), queue(there)]


@pytest.mark.parametrize(
    ("given", "to", "message"),
    [
        (queue(OLD), "kueue.x-k8s.io/v1", "cannot convert to `kueue.x-k8s.io/v1`, only to "),
        (
            {**queue(OLD), "spec": "large"},
            NEW,
            f"ClusterQueue `gpus` cannot be had as `{NEW}`: `spec`: expected `object",
        ),
        (
            queue("kueue.x-k8s.io/v1alpha1"),
            NEW,
            "ClusterQueue `gpus` is of `kueue.x-k8s.io/v1alpha1`, not convertible to",
        ),
        (["no", "object"], NEW, "the item to convert is not an object"),
    ],
)
def test_unconvertible_parts_are_named(given, to, message):
    response = answer(queue(OLD), given, to=to)

    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith(message)
    assert response["convertedObjects"] == []


def test_others_have_their_turn_between_the_objects_of_a_long_list():
    async def turns():
        taken = 0

        async def others():
            nonlocal taken
            while True:
                taken += 1
                await asyncio.sleep(0)

        waiting = asyncio.create_task(others())
        await convert(review(*[queue(OLD)] * 200, to=NEW), lambda: False, rest=rest)
        waiting.cancel()
        return taken

    assert asyncio.run(turns()) >= 10


EACH_ONE = {"universal": 1}


def test_a_few_words_are_not_written_out_as_a_million():
    assignment = {"levels": ["host"], "slices": [{"domainCount": 10**9, "podCounts": EACH_ONE}]}
    admission = {"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}
    workload = {"apiVersion": NEW, "kind": "Workload", "status": {"admission": admission}}

    message = answer(workload, to=OLD)["result"]["message"]

    assert message.startswith("a topology assignment of 1000000000 domains cannot be had as")


def test_a_list_too_long_for_the_callers_patience_fails_with_what_to_do():
    response = answer(queue(OLD), to=NEW, late=True)

    assert "read the list in smaller pages" in response["result"]["message"]
