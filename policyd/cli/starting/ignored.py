"""The fields that policyd and its users write in a cluster, and that Git therefore must not own.

The chart and the manifests of queues leave them out, so that a server-side apply finds no
difference. The rules are for manifests that name them nevertheless, and for tools that compare
otherwise.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from policyd.api.kueue.names import GROUP
from policyd.api.meta import Json
from policyd.jobs.kinds.registry import KINDS

_REGISTRATION: Final = "admissionregistration.k8s.io"
_CONFIGURATION: Final = "admission.policyd.io"


class IgnoredFields(NamedTuple):
    """Fields of some objects, as JSON pointers.

    Attributes:
        group: API group.
        kind: Kind.
        fields: The fields.
        why: Who writes them.
        name: The object, if it is one of the chart; "" for all of the kind.
    """

    group: str
    kind: str
    fields: tuple[str, ...]
    why: str
    name: str = ""


def ignored_fields() -> Iterator[IgnoredFields]:
    """Yield the fields that are not to be compared with Git."""
    for when in ("Mutating", "Validating"):
        kind = f"{when}WebhookConfiguration"
        why = "the webhooks write them for the policies in force, with their caBundle"
        yield IgnoredFields(_REGISTRATION, kind, ("/webhooks",), why, name=_CONFIGURATION)
    for kind, name, why in (
        ("Secret", "policyd-webhooks", "the webhooks write their certificate"),
        ("ConfigMap", "policyd-controller-memory", "the controller writes what forecasts learnt"),
        ("ConfigMap", "policyd-controller-hours", "the controller writes the GPU-hours"),
    ):
        yield IgnoredFields("", kind, ("/data",), why, name=name)
    why = "the leading replica renews it"
    yield IgnoredFields("coordination.k8s.io", "Lease", ("/spec",), why, name="policyd-controller")
    for kind in ("ClusterQueue", "LocalQueue"):
        why = "`policyd stop` and `policyd resume` write it"
        yield IgnoredFields(GROUP, kind, ("/spec/stopPolicy",), why)
    for job in KINDS:
        field = "/" + "/".join(map(str, job.suspend_path))
        why = "the queue suspends jobs, and starts them"
        yield IgnoredFields(job.group, job.kind, (field,), why)


def for_argo_cd(*, of_chart: bool) -> list[Json]:
    """Return the rules as `ignoreDifferences` of an Application of Argo CD has them."""
    found: list[Json] = []
    for each in ignored_fields():
        if bool(each.name) is of_chart:
            named = {"name": each.name} if each.name else {}
            found.append(
                {"group": each.group, "kind": each.kind, **named, "jsonPointers": [*each.fields]}
            )
    return found


def for_flux() -> list[Json]:
    """Return the rules for the chart as `driftDetection.ignore` of a HelmRelease has them."""
    return [
        {"paths": [*each.fields], "target": {"kind": each.kind, "name": each.name}}
        for each in ignored_fields()
        if each.name
    ]
