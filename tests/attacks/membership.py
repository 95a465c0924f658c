"""Out of the queue: every field that decides on membership, on every kind, by every way."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

from policyd.admission.decisions import Decide
from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission, Requesters
from policyd.api.admission import AdmissionRequest, parse_review
from policyd.api.meta import rfc3339
from policyd.api.selectors import LabelSelector, Requirement
from policyd.cel import Budget, Program, admission_environment, compile_expression
from policyd.controller.usage import OUTSIDE
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.kube import resources as r
from policyd.registration.atoms import RuleAtom, atoms_of
from policyd.registration.configurations import exempt_groups
from policyd.registration.webhook_rules import DerivedWebhook, derive_webhook_rules
from tests.attacks.figures import Figures
from tests.attacks.leavings import POD_SET, QUEUE, Attempt, review, tries
from tests.controller.world import World, pod_spec, running

ENVIRONMENT = admission_environment(params=False)

CONFIGURED = {
    "nothing said": EVERYTHING,
    "a selector of namespaces": Integrations(namespaces=LabelSelector(match_labels={"team": "a"})),
    "all that could queue": Integrations(manages_all=True),
    "parts of GPUs": Integrations(gpu_fractions=True),
}
"""What an administrator may have said, by how."""

WITHIN_SECONDS = 10
BATCH = 40
"""Pods that come at once: fewer than there may be events."""
LEAVES: Mapping[str, object] = {"nodeName": "n"}
"""Of a pod that runs, and is being deleted for so long that others run meanwhile."""
SLOWLY = 890


def decider(integrations: Integrations) -> Decide:
    """Return what the webhooks decide by, without policies."""
    return AdmissionHandler(
        phase="validate",
        policies=lambda _request, _out_of_time: ALLOWED,
        jobs=JobAdmission(integrations=integrations, requesters=Requesters("policyd")),
        exempt=exempt_groups("policyd"),
    ).validate


def is_refused(made: Attempt, decide: Decide, **author: object) -> bool:
    """Tell whether the webhooks refuse a change."""
    return not decide(parse_review(review(made, **author)), lambda: False).allowed  # type: ignore[arg-type]


def is_sent(made: Attempt, sent: tuple[DerivedWebhook, ...]) -> bool:
    """Tell whether the API server sends a change to the webhooks at all, given what it sends."""
    request = parse_review(review(made))
    return any(
        any(_covers(atom, request) for rule in call.rules for atom in atoms_of(rule))
        and any(_meets(each, call.objects) for each in (made.old, made.new))
        and (not call.condition or _holds(call.condition, made))
        for call in sent
    )


@cache
def _compiled(condition: str) -> Program:
    return compile_expression(condition, ENVIRONMENT, wants="bool")


def _holds(condition: str, made: Attempt) -> bool:
    known = {"object": made.new, "oldObject": made.old, "request": {}}
    return bool(_compiled(condition).evaluate(known, Budget()))


def _covers(atom: RuleAtom, request: AdmissionRequest) -> bool:
    plural = "/".join(filter(None, (request.resource.resource, request.sub_resource)))
    asked = RuleAtom(request.kind.group, request.kind.version, "Namespaced", plural, "UPDATE")
    return atom.covers(asked)


def _meets(obj: dict, requirements: frozenset[Requirement]) -> bool:  # type: ignore[type-arg]
    labels = obj["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in requirements)


def membership() -> Figures:
    """Try the whole table as a tenant, under everything that an administrator may have said."""
    tried, passed, faults, worst = 0, 0, [], 0.0
    for how, integrations in CONFIGURED.items():
        decide, sent = decider(integrations), derive_webhook_rules((), queue=integrations).validate
        for made in tries():
            if made.only_required and not integrations.requires_queue:
                continue
            if made.only_parts and not integrations.gpu_fractions:
                continue
            tried += 1
            began = time.process_time()
            stopped = is_refused(made, decide)
            worst = max(worst, time.process_time() - began)
            if not (stopped and is_sent(made, sent)):
                passed += 1
                faults.append(f"{made.name}, with {how}: {'not sent' if stopped else 'let in'}")
    return Figures(tried=tried, bypasses=passed, worst_seconds=worst, faults=tuple(faults))


def past_the_webhooks() -> Figures:
    """Create pods as they come past webhooks that do not answer: each is told of, or stopped."""
    return asyncio.run(_past_the_webhooks())


async def _past_the_webhooks() -> Figures:
    world = World()
    world.furnish(gpus=64)
    async with running(world):
        for name, gpus in (("admitted", 1), ("deleted", 1), ("waits", 64)):
            world.job(name, gpus=gpus)
        await world.pass_time(2)
        owners = _owners(world)
        world.delete(r.JOBS, "deleted")
        tried, unseen = 0, list[str]()
        for batch in _batches(list(_slip_past(owners, world.clock.now()))):
            for body in batch:
                world.create(r.PODS, body)
            await world.pass_time(WITHIN_SECONDS)
            reported = {event["involvedObject"]["name"] for event in world.events(OUTSIDE)}
            left = {pod["metadata"]["name"] for pod in world.all(r.PODS)}
            tried += len(batch)
            unseen += sorted(left - reported)
            for name in left:
                pod = world.get(r.PODS, name)
                world.store.delete(r.PODS, pod, grace=0, dry_run=False)
            await world.pass_time(BATCH)  # until as many events may be written again
    return Figures(tried=tried, bypasses=len(unseen), faults=tuple(unseen))


def _batches(bodies: list[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    for first in range(0, len(bodies), BATCH):
        yield bodies[first : first + BATCH]


def _owners(world: World) -> dict[str, dict[str, object]]:
    """Return whom a pod may name as its controller, by what that is."""
    found: dict[str, dict[str, object]] = {"nobody": {}}
    for name in ("admitted", "deleted", "waits"):
        uid = world.get(r.JOBS, name)["metadata"]["uid"]
        found[name] = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    found["another uid"] = found["admitted"] | {"uid": "x"}
    found["a Deployment's"] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "x",
        "uid": "x",
    }
    found["a set's"] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "x"}
    found["no kind's"] = {"apiVersion": "example.com/v1", "kind": "X", "name": "x", "uid": "x"}
    return found


def _slip_past(owners: dict[str, dict[str, object]], now: float) -> Iterator[dict[str, object]]:
    notes = {
        "nothing": {},
        "a group": {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/role-hash": "main"},
        "a workload": {"kueue.x-k8s.io/prebuilt-workload-name": "job-admitted"},
        "a parent": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
    }
    labels = ({}, {POD_SET: "main"}, {QUEUE: "lq-cq"})
    made = product(owners.items(), notes.items(), labels, ({}, {"nodeName": "n"}, LEAVES))
    for number, ((owned, owner), (description, annotations), own_labels, more) in enumerate(made):
        name = f"{number}-{owned}-{description}".replace(" ", "-").replace("'", "").lower()
        metadata: dict[str, object] = {
            "name": name,
            "labels": own_labels,
            "annotations": annotations,
        }
        if owner:
            metadata["ownerReferences"] = [owner | {"controller": True}]
        if more is LEAVES:
            metadata["deletionTimestamp"] = rfc3339(now + SLOWLY)
            metadata["deletionGracePeriodSeconds"] = SLOWLY
        yield {"metadata": metadata, "spec": pod_spec(64) | more}


ATTACKS = {"fields of membership": membership, "past the webhooks": past_the_webhooks}
