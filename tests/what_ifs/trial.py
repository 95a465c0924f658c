"""A question about a random cluster, the change, and what then happens."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from policyd.alloc.settings import DEFAULTS
from policyd.api.configuration import decode_configuration
from policyd.cli.formats.changes import changed
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.questions.what_if import Horizon, what_if
from policyd.controller.queues.queue_settings import queue_settings
from policyd.kube.errors import NotFoundError
from policyd.questions.queue_objects import queue_objects
from policyd.status.naming import Names
from tests.what_ifs.plan import LATEST, SPACE, bodies, queue_of
from tests.what_ifs.virtual import RESOURCES, virtual_cluster

APART = 1.0
"""Events that are closer, in seconds, happen in an order that nobody can know."""
STILL = LATEST + 100_000
"""Seconds without a start, a stop or an end after which nothing happens any more: no job runs for
so long, nor waits for so long until its queue reserves quota."""
LONG = 5_000_000
"""Seconds after which everything has happened."""


@dataclass
class Outcome:
    """What was said, and what happened, by job: starts and stops in seconds after the question.

    Attributes:
        predicted: As the answer has it; None for a job of which it is unknown.
        observed: As the cluster did it.
        deterministic: Whether all run times are declared, and no two events happen at once.
        unknown: For how many jobs something was unknown.
    """

    predicted: dict
    observed: dict
    deterministic: bool
    unknown: int

    @property
    def differences(self):
        """Jobs for which what was said is not what happened."""
        return {
            name: (predicted, self.observed.get(name))
            for name, predicted in self.predicted.items()
            if predicted is not None and not alike(predicted, self.observed.get(name, ([], [])))
        }


def alike(predicted, observed):
    """Tell whether starts and stops are the same, to a second."""
    return all(
        len(a) == len(b) and all(abs(x - y) <= 1.0 for x, y in zip(a, b, strict=True))
        for a, b in zip(predicted, observed, strict=True)
    )


async def run(trial):
    """Ask, make the change, let time pass, and return what was said and what happened."""
    settings = DEFAULTS
    for each in trial.configuration:
        settings = queue_settings(decode_configuration(each))
    async with virtual_cluster(trial.objects, settings) as cluster:
        for at, body in trial.jobs:
            await cluster.until(at)
            for each in bodies(body):
                await cluster.create(each)
        await cluster.until(trial.asked)
        now = cluster.clock.now()
        nodes = any(word.startswith("node/") for word in trial.change.get("deleted", ()))
        objects = await queue_objects(cluster.client, print, nodes=nodes)
        objects += trial.configuration
        after = changed(objects, namespace=SPACE, **trial.change)
        answer = what_if(objects, after, Horizon(now), SkippedJobs(Names()))
        await make(cluster, trial.change)
        await cluster.until_still(STILL, at_most=trial.asked + LONG)
    predicted = {
        name_of(each): times_of(each.after) for each in answer.differences if each.change != "Gone"
    }
    observed = {
        name: tuple(
            [at - trial.asked for at in times.get(name, ()) if at >= trial.asked]
            for times in (cluster.starts, cluster.stops)
        )
        for name in {*cluster.starts, *cluster.stops}
    }
    unknown = sum(each is None for each in predicted.values())
    events = sorted(at for at in (*cluster.ends.values(), *set(dues(trial))) if at > trial.asked)
    crowded = any(b - a < APART for a, b in pairwise([trial.asked, *events]))
    return Outcome(predicted, observed, trial.declared and not crowded, unknown)


def dues(trial):
    """Yield when jobs have waited for so long that their queue reserves quota for them."""
    for each in (*trial.objects, *trial.change.get("applied", ())):
        annotation = each["metadata"].get("annotations", {}).get("policyd.io/reserve-after")
        for at, body in trial.jobs if annotation else ():
            if queue_of(body) == each["metadata"]["name"]:
                yield at + 60 * int(annotation[:-1])


def times_of(stay):
    """Return the starts and the stops of an answer; None if something is unknown."""
    if stay is None or stay.known_seconds is not None:
        return None
    starts = [] if stay.seconds is None else [stay.seconds]
    return [*starts, *stay.restarts], [each.seconds for each in stay.stops]


def name_of(answer):
    """Return the name of the job of a workload; that of a group of pods is its own."""
    return answer.job.rpartition("/")[2] or answer.workload


async def make(cluster, change):
    """Make a change in the cluster."""
    for word in change.get("deleted", ()):
        kind, _, name = word.partition("/")
        resource = {each.kind.lower(): each for each in RESOURCES.values()}[kind]
        with suppress(NotFoundError):
            await cluster.client.delete(
                resource,
                name,
                namespace=SPACE if resource.namespaced else "",
                propagation="Background",
            )
    for each in change.get("applied", ()):
        name, resource = each["metadata"]["name"], RESOURCES[each["kind"]]
        namespace = SPACE if resource.namespaced else ""
        patch = {field: part for field, part in each.items() if field not in {"kind", "apiVersion"}}
        try:
            await cluster.client.patch(resource, name, patch, into=dict, namespace=namespace)
        except NotFoundError:
            await cluster.create(each)
    for each in change.get("submitted", ()):
        await cluster.create(each)
