"""The CEL rules of the full schemas of Kueue's kinds, for one object or for its change.

The webhooks check the same in `queue_validation.py`, `validation.py` and `workload_validation.py`,
where the slim schemas are installed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from policyd.api.kueue import flavors, multikueue, queues, workload
from policyd.api.meta import Json
from policyd.api.pods import Toleration

_HOSTNAME: Final = "kubernetes.io/hostname"


class CelRule(NamedTuple):
    """A rule for an object in CEL.

    Attributes:
        holds: True of an object that may be stored; `self` is the object, `oldSelf` the old one.
        message: The error if it is false.
    """

    holds: str
    message: str

    @property
    def in_schema(self) -> dict[str, Json]:
        """The rule as a schema has it."""
        return {"rule": self.holds, "message": self.message}


def _since(condition: str, holder: str) -> str:
    """Return CEL that tells whether a workload has a condition that is true."""
    found = f"c.type == '{condition}' && c.status == 'True'"
    has = f"has({holder}.status) && has({holder}.status.conditions)"
    return f"({has} && {holder}.status.conditions.exists(c, {found}))"


def _same(field: str) -> str:
    """Return CEL that tells whether a field is as it was: given before and now, or never."""
    now, was = f"self.{field}", f"oldSelf.{field}"
    return f"has({now}) == has({was}) && (!has({now}) || {now} == {was})"


_RESERVED: Final = _since("QuotaReserved", "self")
_WAS_RESERVED: Final = _since("QuotaReserved", "oldSelf")
_STAYS_ADMITTED: Final = f"{_since('Admitted', 'oldSelf')} && {_since('Admitted', 'self')}"
_CLASS: Final = "spec.priorityClassRef"
_STAYS_CLASSED: Final = f"{_WAS_RESERVED} && has(oldSelf.{_CLASS}) && has(self.{_CLASS})"
_KEPT: Final = "cannot change while quota is reserved"

RULES: Final[Mapping[type, tuple[CelRule, ...]]] = {
    multikueue.ClusterSource: (
        CelRule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    ),
    multikueue.MultiKueueConfigSpec: (
        CelRule(
            "self.clusters.all(c, self.clusters.filter(o, o == c).size() == 1)",
            "clusters must be unique",
        ),
    ),
    queues.FlavorFungibility: (
        CelRule(
            "!has(self.preference)"
            " || [self.whenCanBorrow, self.whenCanPreempt].all(w, w == 'TryNextFlavor')",
            "a preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    ),
    queues.ClusterQueuePreemption: (
        CelRule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort)"
            " || self.borrowWithinCohort.policy == 'Never'",
            "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never",
        ),
    ),
    queues.ResourceGroup: (
        CelRule(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "each flavor needs one quota for each of the coveredResources",
        ),
    ),
    queues.ClusterQueueSpec: (
        CelRule(
            "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g,"
            " g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            "a borrowingLimit needs a cohortName",
        ),
    ),
    queues.LocalQueueSpec: (
        CelRule(_same("clusterQueue"), "clusterQueue cannot change: make another LocalQueue"),
    ),
    flavors.ResourceFlavorSpec: (
        CelRule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            "a topologyName needs nodeLabels",
        ),
        CelRule(
            "!has(oldSelf.topologyName)"
            " || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName cannot change once it is set",
        ),
    ),
    Toleration: (
        CelRule(
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "without a key, the operator must be Exists",
        ),
        CelRule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds need the effect NoExecute",
        ),
        CelRule(
            "!has(self.operator) || self.operator in ['Equal', 'Exists']",
            "the operator must be Equal or Exists",
        ),
        CelRule(
            "!has(self.value) || !has(self.operator) || self.operator != 'Exists'",
            "the operator Exists takes no value",
        ),
        CelRule(
            "!has(self.effect) || self.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute']",
            "the effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    ),
    flavors.TopologySpec: (
        CelRule(
            "self.levels.all(l, self.levels.exists_one(m, m.nodeLabel == l.nodeLabel))",
            "each nodeLabel can be one level only",
        ),
        CelRule(
            f"self.levels.all(l, l.nodeLabel != '{_HOSTNAME}')"
            f" || self.levels[size(self.levels) - 1].nodeLabel == '{_HOSTNAME}'",
            f"{_HOSTNAME} can only be the last level",
        ),
        CelRule(
            "self.levels == oldSelf.levels || [self.levels, oldSelf.levels].all(l,"
            f" l[size(l) - 1].nodeLabel == '{_HOSTNAME}')",
            f"levels can change only while {_HOSTNAME} is the last one, before and after",
        ),
    ),
    flavors.AdmissionCheckSpec: (CelRule(_same("controllerName"), "controllerName cannot change"),),
    workload.PodSet: (
        CelRule("!has(self.minCount) || self.minCount <= self.count", "minCount exceeds count"),
    ),
    workload.PriorityClassReference: (
        CelRule(
            "(self.group == 'scheduling.k8s.io') == (self.kind == 'PriorityClass')",
            "group and kind do not belong together",
        ),
    ),
    workload.WorkloadSpec: (
        CelRule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "a priorityClassRef needs a priority",
        ),
    ),
    workload.LevelValues: (
        CelRule(
            "has(self.universal) != has(self.individual)",
            "either universal or individual is needed, and not both",
        ),
    ),
    workload.PodCounts: (
        CelRule(
            "has(self.universal) != has(self.individual)",
            "either universal or individual is needed, and not both",
        ),
    ),
    workload.TopologySlice: (
        CelRule(
            "!has(self.podCounts.individual)"
            " || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual needs one count for each domain",
        ),
        CelRule(
            "self.valuesPerLevel.all(v,"
            " !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "valuesPerLevel needs one root for each domain",
        ),
    ),
    workload.TopologyAssignment: (
        CelRule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel needs one value for each of the levels",
        ),
    ),
    workload.WorkloadStatus: (
        CelRule(
            "!has(oldSelf.clusterName) || !has(self.clusterName)"
            " || self.clusterName == oldSelf.clusterName",
            "clusterName cannot change once it is set",
        ),
        CelRule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames)"
            " || size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    ),
    workload.Workload: (
        CelRule(
            f"!{_RESERVED} || !has(self.status.admission)"
            " || size(self.status.admission.podSetAssignments) == size(self.spec.podSets)",
            "podSetAssignments needs one entry for each of the podSets",
        ),
        CelRule(
            f"!{_WAS_RESERVED} || has(self.{_CLASS}) == has(oldSelf.{_CLASS})",
            f"priorityClassRef {_KEPT}",
        ),
        CelRule(
            f"!({_STAYS_CLASSED}) || (self.{_CLASS}.group == oldSelf.{_CLASS}.group"
            f" && self.{_CLASS}.kind == oldSelf.{_CLASS}.kind)",
            f"the group and kind of priorityClassRef {_KEPT}",
        ),
        CelRule(
            f"!({_STAYS_CLASSED}) || self.{_CLASS}.kind != 'PriorityClass'"
            f" || self.{_CLASS}.name == oldSelf.{_CLASS}.name",
            f"the name of a PriorityClass {_KEPT}",
        ),
        CelRule(
            f"!({_WAS_RESERVED} && {_RESERVED}) || ({_same('spec.queueName')})",
            f"queueName {_KEPT}",
        ),
        CelRule(
            f"!({_STAYS_ADMITTED}) || ({_same('spec.maximumExecutionTimeSeconds')})",
            "maximumExecutionTimeSeconds cannot change while the workload is admitted",
        ),
    ),
}
"""By the wire type of the object."""
