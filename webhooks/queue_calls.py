"""What is sent to the door: what policies ask for, and what else the queue must see of pods.

That is the pods of StatefulSets that queue, pods that could leave their queue, and those that are
resized.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from policyd.api.kueue.names import MANAGED, POD_SET, QUEUE_NAME
from policyd.api.selectors import Requirement
from policyd.engine.compiled import CompiledPolicy
from policyd.jobs.integrations import POD, Integrations
from webhooks.calls import Call, DoorRules, door_rules
from webhooks.cells import Cell, cells_of, rules_of, uncovered
from webhooks.namespaces import NAME_LABEL
from webhooks.queue_cells import members, namespaces_of_jobs, new_jobs
from webhooks.requirements import Requirements

_OF_A_SET: Final = Requirement(key="statefulset.kubernetes.io/pod-name", operator="Exists")
"""Every pod of a StatefulSet has this label."""
_IN_NO_QUEUE: Final = Requirement(key=QUEUE_NAME, operator="DoesNotExist")
_MANAGED: Final = Requirement(key=MANAGED, operator="Exists")
_NOT_MANAGED: Final = Requirement(key=MANAGED, operator="DoesNotExist")
_OF_A_JOB: Final = Requirement(key=POD_SET, operator="Exists")
"""Every pod of a job that was started has this label."""
_GATED: Final = "has(oldObject.spec.schedulingGates) && size(oldObject.spec.schedulingGates) > 0"
_CHANGED: Final = Cell("", "v1", "Namespaced", "pods", "UPDATE")
_RESIZED: Final = Cell("", "v1", "Namespaced", "pods/resize", "UPDATE")


def rules_for(
    policies: Iterable[CompiledPolicy],
    defaulted: frozenset[str] = frozenset(),
    *,
    queue: Integrations | None,
) -> DoorRules:
    """Derive what is sent.

    The pods of StatefulSets name no queue; only their annotations say that they are held. A call of
    their own costs other pods nothing, where one for both would have a condition that the API
    server looks at for all.

    Args:
        policies: Those in force.
        defaulted: Namespaces with a queue for jobs that name none.
        queue: Which jobs are held for their queue; None if nothing is done for the queue.
    """
    rules = door_rules(policies, queue=queue, defaulted=defaulted)
    if queue is None:
        return rules
    rules = replace(rules, validate=(*rules.validate, *guarding_calls(queue)))
    if queue.manages_all:
        return rules
    within = namespaces_of_jobs(queue)
    left = uncovered(members(queue), list(_sent(rules.mutate, queue)))
    if not left:
        return rules
    objects = frozenset({_OF_A_SET, _IN_NO_QUEUE})
    call = Call(
        failure_policy="Ignore",
        rules=rules_of(frozenset(left)),
        namespaces=within | _elsewhere(queue, defaulted),
        objects=objects,
    )
    return DoorRules(mutate=(*rules.mutate, call), validate=rules.validate)


def guarding_calls(queue: Integrations) -> Iterator[Call]:
    """Yield what is checked of pods so that none leaves its queue, or grows, unseen.

    Those that name their queue are sent as it is. A selector is asked of the pod as it was, too:
    who takes away the label is seen. Resizing is rare, and asked of all: by which job a pod was
    made, no selector sees.

    Args:
        queue: Which jobs are held for their queue.
    """
    if not queue.has(*POD):
        return
    within = namespaces_of_jobs(queue)
    call = Call(failure_policy="Ignore", rules=rules_of({_CHANGED}), namespaces=within)
    if not queue.manages_all:
        yield replace(call, objects=frozenset({_MANAGED, _IN_NO_QUEUE}))
        of_jobs = frozenset({_OF_A_JOB, _NOT_MANAGED, _IN_NO_QUEUE})
        yield replace(call, objects=of_jobs, condition=_GATED)
    yield replace(call, rules=rules_of({_RESIZED}))


def _elsewhere(queue: Integrations, defaulted: frozenset[str]) -> Requirements:
    """Return what leaves out the namespaces of which all new pods are sent."""
    if not defaulted or not members(queue) <= new_jobs(queue):
        return frozenset()
    names = tuple(sorted(defaulted))
    return frozenset({Requirement(key=NAME_LABEL, operator="NotIn", values=names)})


def _sent(calls: Iterable[Call], queue: Integrations) -> Iterable[Cell]:
    """Yield what is sent of all namespaces whose jobs queue, whatever its labels."""
    for call in calls:
        if not (call.objects or call.condition) and call.namespaces <= namespaces_of_jobs(queue):
            for rule in call.rules:
                yield from cells_of(rule)
