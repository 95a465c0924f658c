"""What is sent to the door: what policies ask for, and the pods of StatefulSets that queue."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from policyd.api.admission import Rule
from policyd.api.kueue.names import GROUP, MANAGED, QUEUE_NAME
from policyd.api.selectors import Requirement
from policyd.engine.compiled import CompiledPolicy
from policyd.jobs.integrations import Integrations
from webhooks.calls import Call, DoorRules, door_rules
from webhooks.cells import Cell, cells_of, rules_of, uncovered
from webhooks.namespaces import NAME_LABEL
from webhooks.queue_cells import IN_A_QUEUE, checked_jobs, members, namespaces_of_jobs, new_jobs
from webhooks.requirements import Requirements

_OF_A_SET: Final = Requirement(key="statefulset.kubernetes.io/pod-name", operator="Exists")
"""Every pod of a StatefulSet has this label."""
_NOT_HELD: Final = Requirement(key=MANAGED, operator="DoesNotExist")
_IN_NO_QUEUE: Final = Requirement(key=QUEUE_NAME, operator="DoesNotExist")


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
    rules = replace(rules, validate=(*rules.validate, _hidden(queue)))
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
    return replace(rules, mutate=(*rules.mutate, call))


def _hidden(queue: Integrations) -> Call:
    """Return what sends whatever names a queue and is of no kind that is held for one.

    The API server compares labels only, for all but a few objects. Pods that are held are marked,
    so that not even the condition is asked about them.
    """
    kinds = {f"{cell.group}/{cell.resource}" for cell in checked_jobs(queue)}
    named = ", ".join(f"'{name}'" for name in sorted(kinds))
    anything = Rule(
        api_groups=("*",),
        api_versions=("*",),
        operations=("CREATE", "UPDATE"),
        resources=("*",),
        scope="Namespaced",
    )
    return Call(
        failure_policy="Ignore",
        rules=(anything,),
        namespaces=namespaces_of_jobs(queue),
        objects=frozenset({IN_A_QUEUE, _NOT_HELD}),
        condition=f"request.resource.group != '{GROUP}'"
        f" && !((request.resource.group + '/' + request.resource.resource) in [{named}])",
    )


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
