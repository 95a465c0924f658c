"""The settings of Kueue's Configuration for the kinds of jobs that queue."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from policyd.api.configuration import Configuration, decode_configuration
from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.configuration.frameworks import kind_of
from policyd.api.configuration.gates import all_gates, validate_gates
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.jobs.base import JobKind
from policyd.jobs.integrations import DEVICES_GATE, GATED, POD, Integrations
from policyd.jobs.kinds.registry import KINDS, PARENTS, REGISTERED
from policyd.jobs.parents import ParentKind


def integrations_of(configuration: Configuration, *, gates: str = "") -> Integrations:
    """Return which kinds a Configuration has on, and where.

    Kinds that other packages have registered are on always: to install them is to choose them.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.
    """
    given = configuration.integrations
    names = frozenset(given.frameworks or ()) if given is not None else frozenset()
    kinds = {(FRAMEWORKS[name][0], FRAMEWORKS[name][2]) for name in names & FRAMEWORKS.keys()}
    if any((parent.group, parent.kind) in kinds for parent in PARENTS):
        kinds.add(POD)
    kinds |= {(kind.group, kind.kind) for kind in REGISTERED}
    external = filter(None, map(kind_of, given.external_frameworks if given is not None else ()))
    chosen, _ = validate_gates(gates, configuration.feature_gates)
    return Integrations(
        kinds=frozenset(kinds),
        external=frozenset((group, kind) for group, _, kind in external),
        manages_all=configuration.manage_jobs_without_queue_name,
        namespaces=configuration.managed_jobs_namespace_selector,
        off=frozenset(name for name, on in chosen.items() if not on),
        on=frozenset(name for name, on in chosen.items() if on),
        plain_pods="pod" in names,
        counts_devices=configuration.resources is not None
        and bool(configuration.resources.device_class_mappings)
        and chosen.get(DEVICES_GATE, True),
        gpu_fractions=configuration.resources is not None and configuration.resources.gpu_fractions,
    )


def reported_integrations(document: dict[str, Json]) -> Integrations | None:
    """Return which kinds a Configuration has on that a controller reports in its snapshots.

    Args:
        document: The Configuration. It has no defaults to fill in: what it leaves out is not set.

    Returns:
        Which kinds queue, and where; None if the controller does not report that.

    Raises:
        ConfigurationError: If it is not a Configuration, or a field is unknown.
    """
    if "integrations" not in document:
        return None
    found = integrations_of(decode_configuration(document))
    selects = "managedJobsNamespaceSelector" in document
    return found if selects else replace(found, namespaces=None)


def makers_of(integrations: Integrations) -> Makers:
    """Return the makers of objects that need no queue: none for kinds that do not queue."""
    kinds: Iterable[JobKind[Any] | ParentKind[Any]] = (*KINDS, *PARENTS)
    off = ((each.group, each.kind) for each in kinds)
    unused = frozenset(name for name in off if not integrations.has(*name))
    return replace(integrations.makers, off=unused)


def gated_frameworks(configuration: Configuration, *, gates: str = "") -> Iterator[tuple[str, str]]:
    """Yield the frameworks that are asked for though their feature gate is off, and that gate.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.
    """
    chosen = all_gates(validate_gates(gates, configuration.feature_gates)[0])
    given = configuration.integrations
    for name in (given.frameworks or ()) if given is not None else ():
        group, _, kind = FRAMEWORKS.get(name, ("", "", ""))
        gate = GATED.get((group, kind))
        if gate is not None and not chosen[gate]:
            yield name, gate
