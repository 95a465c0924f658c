"""What a pod is charged for the devices that it gets by claims, and by extended resources.

A claim that is made from a template exists once for each pod. A claim that is named exists once,
however many pods share it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from policyd.api.kueue.validation import FieldError
from policyd.api.pod_requests import effective
from policyd.api.pods import PodResourceClaim, PodSpec
from policyd.devices.amounts import (
    Amounts,
    CountedLaterError,
    DeviceCountError,
    add,
    unit_of,
)
from policyd.devices.charges import saturated
from policyd.devices.claims import ChargeRules, ClaimCount
from policyd.devices.extended import (
    BY_CLASS,
    extended_requests,
    fractions,
    resource_of,
    selected_class,
)
from policyd.devices.inventory import Inventory
from policyd.devices.objects import ClaimSpec, DeviceClass, ResourceClaim, ResourceClaimTemplate
from policyd.devices.rations import Rations

MOST_REMEMBERED: Final = 10_000
"""Claims whose charges are remembered at a time."""


class ExtendedCharge(NamedTuple):
    """The charge of one pod for extended resources that device classes back.

    Attributes:
        amounts: By the resource that has the quota.
        replaced: The extended resources, which are not charged themselves.
        devices: By the resource that nodes have them as.
    """

    amounts: Amounts
    replaced: frozenset[str]
    devices: Amounts


class ClaimCharge(NamedTuple):
    """The charge of a claim, and its devices by the resource that nodes have them as."""

    amounts: Amounts
    devices: Amounts


Charged = ClaimCharge | list[FieldError]
"""The charge of a claim, or what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCounter:
    """Counts devices, by the mappings of the Configuration and the objects of the cluster.

    Attributes:
        rules: Mappings of classes to resources.
        classes: Returns a DeviceClass by name.
        templates: Returns a ResourceClaimTemplate by `namespace/name`.
        claims: Returns a ResourceClaim by `namespace/name`.
        backing: Returns the device classes that have an extended resource of this name.
        inventory: All devices.
        rations: The work that each namespace may cause; None for any.
    """

    rules: ChargeRules = field(default_factory=ChargeRules)
    classes: Callable[[str], DeviceClass | None] = lambda _name: None
    templates: Callable[[str], ResourceClaimTemplate | None] = lambda _key: None
    claims: Callable[[str], ResourceClaim | None] = lambda _key: None
    backing: Callable[[str], Sequence[DeviceClass]] = lambda _name: ()
    inventory: Inventory = field(default_factory=Inventory)
    rations: Rations | None = None
    _known: dict[tuple[str, str] | bytes, Charged] = field(default_factory=dict)

    def of_templates(self, spec: PodSpec, namespace: str, path: str, pod_set: str) -> Amounts:
        """Return the charge of one pod for the claims that are made for it.

        Args:
            spec: The pod's specification.
            namespace: The pod's namespace.
            path: Where the specification is, for errors.
            pod_set: The name of its pod set, for errors.

        Raises:
            DeviceCountError: If devices cannot be counted.
        """
        return self._of_claims(spec, namespace, path, pod_set, shared=False).amounts

    def of_node(self, spec: PodSpec, namespace: str) -> Amounts:
        """Return the devices that one pod takes of its node, by the resource that it has them as.

        Claims that pods share are left out: which pod takes their devices is not known.

        Raises:
            DeviceCountError: If devices cannot be counted.
        """
        devices = dict(self.of_extended_resources(spec, "").devices)
        add(devices, self._of_claims(spec, namespace, "", "", shared=False).devices)
        return devices

    def of_shared_claims(self, spec: PodSpec, namespace: str, path: str, pod_set: str) -> Amounts:
        """Return the charge for the claims that all pods share.

        Raises:
            DeviceCountError: If devices cannot be counted.
        """
        return self._of_claims(spec, namespace, path, pod_set, shared=True).amounts

    def of_claim(self, claim: ResourceClaim) -> Amounts:
        """Return the charge of a claim that exists.

        Raises:
            DeviceCountError: If devices cannot be counted.
        """
        metadata = claim.metadata
        known_by = metadata.uid or metadata.key, metadata.resource_version
        named = PodResourceClaim(resource_claim_name=metadata.name)
        charge = self._remembered(known_by, claim.spec, metadata.namespace)
        return _valid(charge, named, "", "").amounts

    def of_extended_resources(self, spec: PodSpec, path: str) -> ExtendedCharge:
        """Return the charge of one pod for extended resources that device classes back.

        Args:
            spec: The pod's specification, with requests for what it states limits of.
            path: Where the specification is, for errors.

        Raises:
            DeviceCountError: If an amount is not whole, or a class is charged by its devices.
        """
        if not self.rules.gates.extended_resources:
            return ExtendedCharge({}, frozenset(), {})
        amounts: Amounts = {}
        devices: Amounts = {}
        replaced, errors = set[str](), list[FieldError]()
        for name, containers in extended_requests(spec, path).items():
            backing = self._backing(name)
            if not backing:
                continue
            resource, problem = self._charged_resource(name, backing, containers[0].path)
            errors += problem or fractions(name, containers)
            if problem or fractions(name, containers):
                continue
            total = effective(
                (each.amount.value() for each in containers if not each.starting),
                ((each.amount.value(), each.stays) for each in containers if each.starting),
            )
            if total <= 0:
                continue
            if total != saturated(total):
                where = f"{containers[0].path}.resources.requests.{name}"
                message = "total extended resource quantity must be an integer"
                errors.append(FieldError(where, str(total), message))
                continue
            replaced.add(name)
            add(amounts, {resource: total * unit_of(resource)})
            add(devices, {resource_of(selected_class(backing), self.rules.mappings): total})
        if errors:
            raise DeviceCountError(errors)
        return ExtendedCharge(amounts, frozenset(replaced), devices)

    # Extended resources.

    def _backing(self, name: str) -> Sequence[DeviceClass]:
        found = self.backing(name)
        if not found and name.startswith(BY_CLASS):
            named = self.classes(name.removeprefix(BY_CLASS))
            return () if named is None else (named,)
        return found

    def _charged_resource(
        self, name: str, backing: Sequence[DeviceClass], path: str
    ) -> tuple[str, list[FieldError]]:
        """Return the resource that an extended resource is charged to, and why it cannot be."""
        selected = selected_class(backing).metadata.name
        resource = self.rules.mappings.resources.get(selected, name)
        kinds = (
            (self.rules.counters(selected), "counters", "CEL selectors for counter-based quota"),
            (
                self.rules.capacities(selected),
                "capacity sources",
                "capacity.requests for capacity-based quota",
            ),
        )
        for sources, what, how in kinds:
            if sources:
                message = (
                    f"extended resource {name} resolves to DeviceClass {selected} with {what}"
                    f" configured; use ResourceClaimTemplates with {how}"
                )
                return resource, [FieldError(path, name, message)]
        return resource, []

    # Claims.

    def _of_claims(
        self, spec: PodSpec, namespace: str, path: str, pod_set: str, *, shared: bool
    ) -> ClaimCharge:
        total = ClaimCharge({}, {})
        for index, claim in enumerate(spec.resource_claims):
            if bool(claim.resource_claim_template_name) is shared:
                continue
            if shared and not claim.resource_claim_name:
                continue
            where = f"{path}.resourceClaims[{index}]"
            key, asked = self._claim(claim, namespace, where, pod_set)
            charge = _valid(self._remembered(key, asked, namespace), claim, where, pod_set)
            add(total.amounts, charge.amounts)
            add(total.devices, charge.devices)
        return total

    def _claim(
        self, claim: PodResourceClaim, namespace: str, where: str, pod_set: str
    ) -> tuple[tuple[str, str], ClaimSpec]:
        """Return the specification of a claim, and what its charge is remembered by."""
        name = claim.resource_claim_template_name or claim.resource_claim_name
        key = f"{namespace}/{name}"
        kind, plural = "ResourceClaim", "resourceclaims"
        if claim.resource_claim_template_name:
            kind, plural = "ResourceClaimTemplate", "resourceclaimtemplates"
            template = self.templates(key)
            if template is not None:
                metadata = template.metadata
                return (metadata.uid or key, metadata.resource_version), template.spec.spec
        else:
            named = self.claims(key)
            if named is not None:
                return (named.metadata.uid or key, named.metadata.resource_version), named.spec
        message = (
            f"failed to get claim spec for {kind} {name} in podset {pod_set}:"
            f' {plural}.resource.k8s.io "{name}" not found'
        )
        raise DeviceCountError([FieldError(where, None, message, "Internal")])

    def _remembered(self, key: tuple[str, str], spec: ClaimSpec, namespace: str) -> Charged:
        """Return the charge of a claim, or what is wrong; those that are alike are counted once."""
        charge = self._known.get(key)
        if charge is None:
            alike = msgspec.json.encode(spec)
            charge = self._known.get(alike)
            if charge is None:
                charge = self._counted(spec, namespace)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._known[alike] = charge
        return charge

    def _counted(self, spec: ClaimSpec, namespace: str) -> Charged:
        counting, rations = ClaimCount(self.rules, self.classes, self.inventory), self.rations
        if not (rations is None or counting.is_free(spec) or rations.allows(namespace)):
            raise CountedLaterError(namespace)
        try:
            return ClaimCharge(counting.total(spec), counting.of_node(spec))
        except DeviceCountError as error:
            return [*error.errors]
        finally:
            if rations is not None:
                rations.spend(namespace, counting.work)


def _valid(charge: Charged, claim: PodResourceClaim, where: str, pod_set: str) -> ClaimCharge:
    if isinstance(charge, list):
        raise DeviceCountError(_placed(each, claim, where, pod_set) for each in charge)
    return charge


def _placed(error: FieldError, claim: PodResourceClaim, where: str, pod_set: str) -> FieldError:
    """Return an error of a claim with its place in a workload."""
    template = claim.resource_claim_template_name
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    if error.problem == "NotFound":
        field_name = "resourceClaimTemplateName" if template else "resourceClaimName"
        value = f"DeviceClass {error.value} is not mapped in DRA configuration for podset {pod_set}"
        return error._replace(path=f"{where}.{field_name}", value=value)
    name = template or claim.resource_claim_name
    return error._replace(path=f"{where}.{error.path}", message=f"{kind} {name}: {error.message}")
