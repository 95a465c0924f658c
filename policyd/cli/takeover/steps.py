"""The steps of a takeover and of the way back.

Each step finds in the cluster what is missing, and does that. So any step may be
repeated, and a way that was left midway goes on, or back, from what there is. What cannot be seen
any more once it is changed is in the record: how many pods Kueue had, and where the API server
converted and asked for pending workloads.

The order keeps the queues in one hand. Kueue stops before its Lease is given away, and policyd
leads only with the Lease; on the way back, Kueue's pods run, as followers, before they get it.
Kueue's webhooks are called for nothing while no pod of Kueue answers them.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgspec

from policyd.api.kueue.names import GROUP, VERSION
from policyd.cli.takeover.installation import RECORD, SKIP, Installation, Object, skips
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import AlreadyExistsError, NotFoundError
from policyd.kube.kueue_lease import NAME, TAKEN_OVER
from policyd.kube.pages import pages
from policyd.kube.resources import (
    API_SERVICES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    Resource,
)

OLD: Final = "v1beta1"
AT_ONCE: Final = 16
"""Objects that are stored anew at a time."""
SETTLE_SECONDS: Final = 3.0
"""API servers learn of changed webhooks and definitions by a watch, each for itself."""
_VISIBILITY_FIELDS: Final = ("service", "insecureSkipTLSVerify", "caBundle")


@dataclass(frozen=True, slots=True)
class TakeoverStep:
    """One step.

    Attributes:
        name: For `status`.
        text: What it does.
        missing: Returns what it has yet to do or to wait for; "" if it is done.
        act: Does it, as far as that is not waiting. It is called until nothing is missing.
        settles: How long it takes until all API servers know of it, in seconds.
    """

    name: str
    text: str
    missing: Callable[[Installation], str]
    act: Callable[[Client, Installation], Awaitable[None]]
    settles: float = 0.0


def direction(found: Installation) -> str:
    """Return which way a takeover goes, `start` or `back`; "" if none is recorded."""
    return str(found.record["data"].get("direction", "")) if found.record else ""


def recorded(found: Installation) -> dict[str, Any]:
    """Return what was before the takeover.

    Returns:
        `replicas`, and by name `conversions` and `visibility`; empty if nothing is recorded.
    """
    return dict(json.loads(found.record["data"].get("before", "{}"))) if found.record else {}


def _go(way: str) -> TakeoverStep:
    def missing(found: Installation) -> str:
        return "" if direction(found) == way else f"ConfigMap {RECORD} does not say `{way}`"

    async def act(client: Client, found: Installation) -> None:
        if found.record is not None:
            patch = {**_version(found.record), "data": {"direction": way}}
            await client.patch(CONFIG_MAPS, RECORD, patch, namespace=found.namespace, into=dict)
            return
        before = {
            "replicas": found.replicas if found.deployment else 0,
            "conversions": {
                each["metadata"]["name"]: each["spec"]["conversion"]
                for each in _converted(found.definitions)
            },
            "visibility": {
                each["metadata"]["name"]: _answered_by(each["spec"]) for each in found.visibility
            },
        }
        data = {"direction": way, "before": json.dumps(before)}
        body = {"metadata": {"name": RECORD}, "data": data}
        await client.create(CONFIG_MAPS, body, namespace=found.namespace, into=dict)

    return TakeoverStep("record", f"record what there is, in ConfigMap {RECORD}", missing, act)


def _version(obj: Object) -> Object:
    """Return the part of a patch that binds it to what was read."""
    return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}}


# Storage.


def _stored_old(found: Installation) -> list[Object]:
    return [
        each
        for each in found.definitions
        if OLD in (each.get("status", {}).get("storedVersions") or ())
    ]


def _missing_storage(found: Installation) -> str:
    kinds = ", ".join(each["spec"]["names"]["plural"] for each in _stored_old(found))
    return f"some {kinds} are stored as {OLD}" if kinds else ""


def _stores_old(definition: Object) -> bool:
    versions = definition["spec"]["versions"]
    return any(each["name"] == OLD and each.get("storage") for each in versions)


async def _store(client: Client, found: Installation) -> None:
    """Have the API server write each object again, which it does as the newer version."""
    old = _stored_old(found)
    if older := [each for each in old if _stores_old(each)]:
        await asyncio.gather(*(_store_new(client, each) for each in older))
        await asyncio.sleep(SETTLE_SECONDS)
        return
    for definition in old:
        names, spec = definition["spec"]["names"], definition["spec"]
        resource = Resource(
            GROUP,
            VERSION,
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
        )
        async for page in pages(client, resource, into=PartialObject):
            for start in range(0, len(page.items), AT_ONCE):
                some = page.items[start : start + AT_ONCE]
                await asyncio.gather(*(_touch(client, resource, each) for each in some))
        patch = {**_version(definition), "status": {"storedVersions": [VERSION]}}
        name = definition["metadata"]["name"]
        await client.patch(
            CUSTOM_RESOURCE_DEFINITIONS, name, patch, subresource="status", into=dict
        )


async def _store_new(client: Client, definition: Object) -> None:
    """Have what is written from now on be stored as the newer version."""
    versions = [
        {**each, "storage": each["name"] == VERSION} for each in definition["spec"]["versions"]
    ]
    patch = {**_version(definition), "spec": {"versions": versions}}
    name = definition["metadata"]["name"]
    await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, patch, into=dict)


async def _touch(client: Client, resource: Resource, obj: PartialObject) -> None:
    metadata = obj.metadata
    try:
        await client.patch(
            resource, metadata.name, {}, namespace=metadata.namespace, into=PartialObject
        )
    except NotFoundError:
        return  # deleted meanwhile


# Kueue's webhooks.


def _webhooks(*, skipped: bool) -> TakeoverStep:
    how = "no longer call" if skipped else "call again"

    def missing(found: Installation) -> str:
        wrong = (
            each["metadata"]["name"]
            for _, each in found.configurations
            if any(skips(webhook) is not skipped for webhook in each["webhooks"])
        )
        names = ", ".join(wrong)
        return f"the API server does not yet {how} those of {names}" if names else ""

    async def act(client: Client, found: Installation) -> None:
        for resource, each in found.configurations:
            webhooks = [_with_skip(webhook, skipped=skipped) for webhook in each["webhooks"]]
            if webhooks != each["webhooks"]:
                patch = {**_version(each), "webhooks": webhooks}
                await client.patch(resource, each["metadata"]["name"], patch, into=dict)

    text = f"have the API server {how} Kueue's webhooks"
    return TakeoverStep("webhooks", text, missing, act, settles=SETTLE_SECONDS)


def _with_skip(webhook: Object, *, skipped: bool) -> Object:
    others = [each for each in webhook.get("matchConditions") or () if each != SKIP]
    conditions = [SKIP, *others] if skipped else others
    rest = {name: value for name, value in webhook.items() if name != "matchConditions"}
    return {**rest, **({"matchConditions": conditions} if conditions else {})}


# Kueue's pods.


def _missing_stop(found: Installation) -> str:
    if found.deployment is None and not found.pods:
        return ""
    if found.replicas:
        return f"Kueue's Deployment has {found.replicas} replicas"
    return f"pods of Kueue still run: {', '.join(found.pods[:3])}" if found.pods else ""


async def _stop(client: Client, found: Installation) -> None:
    await _scale(client, found, 0)


def _missing_start(found: Installation) -> str:
    if not found.replicas:
        return "Kueue's Deployment has no replicas"
    return "" if found.ready else "no pod of Kueue is ready"


async def _start(client: Client, found: Installation) -> None:
    if not found.replicas:
        await _scale(client, found, max(1, int(recorded(found).get("replicas", 1))))


async def _scale(client: Client, found: Installation, replicas: int) -> None:
    if found.deployment is None or found.replicas == replicas:
        return
    name = found.deployment["metadata"]["name"]
    patch = {**_version(found.deployment), "spec": {"replicas": replicas}}
    await client.patch(DEPLOYMENTS, name, patch, namespace=found.namespace, into=dict)


# Conversion, and pending workloads.


def _converted(definitions: Sequence[Object]) -> Iterator[Object]:
    for each in definitions:
        if each["spec"].get("conversion", {}).get("strategy") == "Webhook":
            yield each


def _address(conversion: Object) -> tuple[object, ...]:
    """Return where a conversion is asked for; authorities may be renewed."""
    config = conversion.get("webhook", {}).get("clientConfig", {})
    service = config.get("service") or {}
    return config.get("url"), service.get("namespace"), service.get("name"), service.get("path")


def _wanted_conversion(found: Installation, *, back: bool) -> dict[str, Object]:
    """Return the conversions that are to change, by the names of their definitions."""
    before = recorded(found).get("conversions", {})
    ours: Object = {"webhook": {"clientConfig": found.called, "conversionReviewVersions": ["v1"]}}
    wanted = {}
    for each in _converted(found.definitions):
        name, current = each["metadata"]["name"], each["spec"]["conversion"]
        target = before.get(name, current) if back else ours
        if (back or found.called) and _address(target) != _address(current):
            wanted[name] = target
    return wanted


def _conversion(*, back: bool) -> TakeoverStep:
    def spec(target: Object) -> Object:
        config = target["webhook"]["clientConfig"]
        service = _whole(config.get("service"), "namespace", "name", "path", "port")
        config = {"url": None, "caBundle": None, **config, "service": service}
        return {"conversion": {"webhook": {**target["webhook"], "clientConfig": config}}}

    text = f"have the API server ask {_whose(back=back)} to convert {OLD}"
    wanted = partial(_wanted_conversion, back=back)
    return _redirection(
        "conversion", text, wanted, attrgetter("definitions"), CUSTOM_RESOURCE_DEFINITIONS, spec
    )


def _whose(*, back: bool) -> str:
    return "Kueue" if back else "policyd"


def _redirection(  # noqa: PLR0913, PLR0917 - what differs between the two
    name: str,
    text: str,
    wanted: Callable[[Installation], dict[str, Object]],
    there: Callable[[Installation], Sequence[Object]],
    resource: Resource,
    spec: Callable[[Object], Object],
) -> TakeoverStep:
    """Return the step that has the API server call another one.

    Args:
        name: Of the step.
        text: Of the step.
        wanted: Returns what is to be called, by the names of the objects that are to change.
        there: Returns these objects, as they are, among others.
        resource: Their kind.
        spec: Returns the patch of an object's spec, from what is to be called.
    """

    def missing(found: Installation) -> str:
        names = ", ".join(wanted(found))
        return f"it does not yet do so for {names}" if names else ""

    async def act(client: Client, found: Installation) -> None:
        by_name = {each["metadata"]["name"]: each for each in there(found)}
        for each, target in wanted(found).items():
            patch = {**_version(by_name[each]), "spec": spec(target)}
            await client.patch(resource, each, patch, into=dict)

    return TakeoverStep(name, text, missing, act)


def _whole(value: Object | None, *names: str) -> Object | None:
    """Return a value for a merge, which would else leave fields of the former value beside."""
    return None if value is None else {**dict.fromkeys(names), **value}


def _answered_by(spec: Object) -> Object:
    return {name: spec.get(name) for name in _VISIBILITY_FIELDS}


def _wanted_visibility(found: Installation, *, back: bool) -> dict[str, Object]:
    before = recorded(found).get("visibility", {})
    ours = _answered_by(found.own_visibility["spec"]) if found.own_visibility else None
    wanted = {}
    for each in found.visibility:
        name = each["metadata"]["name"]
        target = before.get(name) if back else ours
        if target is not None and target["service"] != each["spec"].get("service"):
            wanted[name] = target
    return wanted


def _visibility(*, back: bool) -> TakeoverStep:
    def spec(target: Object) -> Object:
        return {**target, "service": _whole(target["service"], "namespace", "name", "port")}

    text = f"have the API server ask {_whose(back=back)} for pending workloads"
    wanted = partial(_wanted_visibility, back=back)
    return _redirection("visibility", text, wanted, attrgetter("visibility"), API_SERVICES, spec)


# The Lease.


def _missing_lease(found: Installation) -> str:
    if not found.given:
        return f"Lease {NAME} is not given to policyd"
    if found.policyd_leads:
        return ""
    return f"policyd has not yet taken Lease {NAME}" + (
        f", which {found.holder} holds" if found.holder else ""
    )


async def _give(client: Client, found: Installation) -> None:
    metadata: Object = {"annotations": {TAKEN_OVER: "true"}}
    if found.given:
        return
    if found.lease is not None:
        await client.patch(
            LEASES, NAME, {"metadata": metadata}, namespace=found.namespace, into=dict
        )
        return
    try:
        body = {"metadata": {"name": NAME, **metadata}}
        await client.create(LEASES, body, namespace=found.namespace, into=dict)
    except AlreadyExistsError:
        return  # Kueue has created it meanwhile


def _missing_lease_back(found: Installation) -> str:
    if found.given:
        return f"Lease {NAME} is given to policyd"
    if found.lease is None or (found.holder and not found.policyd_leads):
        return ""
    return f"Kueue has not yet taken Lease {NAME}"


async def _take_back(client: Client, found: Installation) -> None:
    if found.given:
        patch = {"metadata": {"annotations": {TAKEN_OVER: None}}}
        await client.patch(LEASES, NAME, patch, namespace=found.namespace, into=dict)


def _missing_nothing_recorded(found: Installation) -> str:
    return f"ConfigMap {RECORD} is there" if found.record else ""


async def _forget(client: Client, found: Installation) -> None:
    if found.record is not None:
        await client.delete(CONFIG_MAPS, RECORD, namespace=found.namespace)


THERE: Final = (
    _go("start"),
    TakeoverStep("storage", f"store all objects as {VERSION}", _missing_storage, _store),
    _webhooks(skipped=True),
    TakeoverStep("stop", "stop Kueue", _missing_stop, _stop),
    _conversion(back=False),
    _visibility(back=False),
    TakeoverStep("lease", "give Kueue's Lease to policyd, which then leads", _missing_lease, _give),
)
"""The steps of a takeover."""

BACK: Final = (
    _go("back"),
    _conversion(back=True),
    TakeoverStep("start", "start Kueue, which does not lead yet", _missing_start, _start),
    _webhooks(skipped=False),
    TakeoverStep(
        "lease",
        "give Kueue's Lease back to Kueue, which then leads",
        _missing_lease_back,
        _take_back,
    ),
    _visibility(back=True),
    TakeoverStep("forget", f"delete ConfigMap {RECORD}", _missing_nothing_recorded, _forget),
)
"""The steps of the way back."""


class StepStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a step is.

    Attributes:
        name: The step.
        done: Whether nothing is missing.
        missing: What it has yet to do; "" if it is done.
    """

    name: str
    done: bool
    missing: str


class TakeoverStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a takeover is.

    Attributes:
        direction: `start` or `back`; "" if no takeover is recorded.
        leader: The holder of Kueue's Lease; "" for none.
        done: Whether all steps are.
        steps: The steps of the direction.
    """

    direction: str
    leader: str
    done: bool
    steps: tuple[StepStatus, ...]


def status_of(found: Installation) -> TakeoverStatus:
    """Return how far a takeover is."""
    way = direction(found)
    steps = {"start": THERE, "back": BACK}.get(way, ())
    statuses = []
    for step in steps:
        missing = step.missing(found)
        statuses.append(StepStatus(step.name, not missing, missing))
    done = all(each.done for each in statuses)
    return TakeoverStatus(way, found.holder, done, tuple(statuses))
