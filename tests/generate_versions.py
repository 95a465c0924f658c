"""Generate the page of Kueue's versions: since when each gate and field is there, and what is here.

Facts about Kueue are in `kueue_versions.json`; what policyd has is read from the code.
"""

import json
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from policyd.api.configuration.fixed_gates import LEFT_OUT
from policyd.api.configuration.gates import DEFAULTS
from policyd.api.configuration.kinds import Configuration, Strict
from policyd.api.crd import KINDS, definition
from policyd.controller.queues.queue_settings import HEEDED

FACTS = Path(__file__).with_name("kueue_versions.json")
FIRST, LATEST = "0.14", "0.20"
"""The first version that there are facts about; fields of it may be older. And the latest."""

OWN = frozenset(
    {"apiVersion", "kind", "resources.gpuFractions", "visibility", "visibility.otherTeams"}
)
"""Fields of the Configuration that Kueue's type does not list; the last three are policyd's own."""

_OPAQUE = frozenset({"conditions", "namespaceSelector", "selector", "template"})
"""Fields with a type of Kubernetes, whose fields are not Kueue's."""

_WORDS = {True: "on", False: "off"}


class GateStage(typing.NamedTuple):
    """A gate from a version of Kueue on."""

    version: str
    default: str
    stage: str


@cache
def facts() -> dict[str, Any]:
    """Return what is known about Kueue's versions."""
    return json.loads(FACTS.read_text())


def stages() -> dict[str, list[GateStage]]:
    """Return the history of each gate, oldest first."""
    found = facts()["gates"]
    return {name: [GateStage(*text.split()) for text in lines] for name, lines in found.items()}


def since(kind: str) -> dict[str, str]:
    """Return the version of Kueue since which a kind has a field, by the field's path."""
    return {path: version for version, paths in facts()["fields"][kind].items() for path in paths}


def ours(kind: str) -> dict[str, Any]:
    """Return the fields that a kind has here, by path, with their defaults; None for none."""
    if kind == "Configuration":
        return dict.fromkeys(_typed(Configuration))
    (found,) = (each for each in KINDS if each.type.__name__ == kind)
    version = definition(found, full=True)["spec"]["versions"][0]
    return dict(_described(version["schema"]["openAPIV3Schema"]))


def _described(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in schema.get("properties", {}).items():
        if not prefix and name in {"apiVersion", "kind", "metadata"}:
            continue
        yield f"{prefix}{name}", inner.get("default")
        if name in _OPAQUE:
            continue
        yield from _described(inner, f"{prefix}{name}.")
        yield from _described(inner.get("items", {}), f"{prefix}{name}[].")
        if isinstance(values := inner.get("additionalProperties"), dict):
            yield from _described(values, f"{prefix}{name}{{}}.")


def _typed(struct: type, prefix: str = "") -> Iterator[str]:
    annotated = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        yield prefix + field.encode_name
        for inner, listed in _structs(annotated[field.name]):
            yield from _typed(inner, f"{prefix}{field.encode_name}{'[]' if listed else ''}.")


def _structs(hint: Any, *, listed: bool = False) -> Iterator[tuple[type, bool]]:
    if isinstance(hint, type) and issubclass(hint, Strict):
        yield hint, listed
    for inner in typing.get_args(hint):
        yield from _structs(inner, listed=listed or typing.get_origin(hint) is tuple)


def versions_page(table: Callable[[str, Iterator[tuple[str, ...]]], str]) -> str:
    """Return the text of the page."""
    fields = "\n\n".join(
        f"### {kind}\n\n{table('Field | Since | Default | Here', iter(rows))}"
        for kind in facts()["fields"]
        if (rows := [*_field_rows(kind)])
    )
    return f"""\
# Versions of Kueue

Since which version Kueue has a feature gate or a field, and what policyd has.
The facts are those of the API types and gates of Kueue 0.14.0, 0.15.0, 0.16.2, 0.17.0, 0.18.3 and
0.19.2. For 0.20 they are from its sources of September 2026, before the release, and its release
notes: what changed between these and the release is [not known](#what-is-not-known).
[Feature gates](feature-gates.md) says which test flips a gate, or why it has no effect.

## Feature gates

*Here* is policyd's default: in bold where the latest Kueue has another.
A gate without effect is in parentheses.

{table("Gate | History in Kueue | Here", _gate_rows())}

## Fields

Fields that came after Kueue {FIRST}. `v1beta2` came with 0.15, so fields that it renamed are of
0.15. `—`: policyd does not have the field.

{fields}

## Kueue 0.20

{table("Change in Kueue | Here", _latest_rows())}

## What is not known

- Defaults and stages of gates that changed between September 2026 and Kueue 0.20.6.
- Fields of the kinds, and of the Configuration, that came with 0.20, except those named above.
- Whether Kueue 0.20.6 has quota that follows CapacityProviders as its design of September 2026
  ([KEP 12382](https://github.com/kubernetes-sigs/kueue/pull/14104)) has it. There, controllers write
  capacity by flavor and resource to `status.capacity` of CapacityProviders; a
  DynamicQuotaOrchestrator adds up those that it names, each times its `effectiveCapacityMultiplier`,
  and gives the sum to the ClusterQueues and Cohorts below one of them, in proportion to the
  `nominalQuota` of their specs, rests by the largest remainder. With the gate,
  `status.effectiveQuotas.resourceGroups` counts wherever `spec.resourceGroups` did, even if it is
  empty, and stays when its writer is gone; workloads beyond it are not evicted. `borrowingLimit` is
  kept; `lendingLimit` of a ClusterQueue is at most the new quota. Its kinds are `v1alpha1`, and Kueue
  does not install their definitions by default. policyd does not have this.
- How many workloads a cycle of 0.20.6 refills at most: 8 in the sources of September 2026.
- In which patch release of 0.15 to 0.19 a gate or field came that was ported back.
"""


_LATEST = {
    "AdmissionFairSharingAnchorAtQuotaReservation": "admission fair sharing counts quota as usage "
    "from its reservation on",
    "FairSharingRefill": "after an admission, the next workload of the ClusterQueue takes part in "
    "the same cycle",
    "DynamicQuotaOrchestration": "quota follows CapacityProviders: DynamicQuotaOrchestrators write "
    "`status.effectiveQuotas` of ClusterQueues and Cohorts, which replace the quota of their specs",
    "KueueDRADeviceFeasibility": "devices of a node are checked before admission",
    "FairSharingReevaluatePreemptionCandidates": "under fair sharing, a preemptor that took "
    "victims of its own queue without fitting goes through the passed-over candidates by the first "
    "strategy again ([14128](https://github.com/kubernetes-sigs/kueue/pull/14128), also in later "
    "patch releases of 0.18 and 0.19)",
}
"""What changed in the latest version of Kueue, by gate."""


def _latest_rows() -> Iterator[tuple[str, str]]:
    served = "[on request](../guides/configure-the-queue.md#convert-manifests-of-an-older-version)"
    yield "v1beta1 of the kinds is not served", f"served only {served}"
    for gate, change in _LATEST.items():
        here = f"with the gate `{gate}`, {_WORDS[DEFAULTS[gate]]} by default"
        yield change, "not here" if gate in LEFT_OUT else here


def _gate_rows() -> Iterator[tuple[str, ...]]:
    for name, history in stages().items():
        shown = ", ".join(f"{each.version} {each.stage} {each.default}" for each in history)
        yield f"`{name}`", shown, _gate_here(name, history[-1].default)


def _gate_here(name: str, theirs: str) -> str:
    if name in LEFT_OUT:
        return f"({_WORDS[LEFT_OUT[name].on]})"
    word = _WORDS[DEFAULTS[name]]
    return word if word == theirs else f"**{word}**"


def _field_rows(kind: str) -> Iterator[tuple[str, ...]]:
    here = ours(kind)
    for path, version in sorted(since(kind).items()):
        if version != FIRST:
            default = here.get(path)
            shown = "none" if default is None else f"`{default}`"
            yield f"`{path}`", version, shown, _field_here(kind, path, here)


def _field_here(kind: str, path: str, here: dict[str, Any]) -> str:
    if path not in here:
        return "—"
    heeded = {field.encode_name for field in msgspec.structs.fields(Configuration)
              if field.name in {*HEEDED, "metrics"}}  # fmt: skip
    ignored = path.partition(".")[0] not in heeded or path == "tls.curvePreferences"
    return "no effect" if kind == "Configuration" and ignored else "yes"
