"""What the full schemas of Kueue's kinds say by CEL, of one object or of its change.

The webhooks check the same in `queue_validation.py`, `validation.py` and `workload_validation.py`,
where the slim schemas are installed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from policyd.api.kueue import flavors, queues, workload
from policyd.api.meta import Json
from policyd.api.pods import Toleration

_HOSTNAME: Final = "kubernetes.io/hostname"


class Rule(NamedTuple):
    """What must be true of an object, by CEL.

    Attributes:
        holds: True of what may be stored; `self` is the object, `oldSelf` what it was.
        message: What is wrong otherwise.
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

RULES: Final[Mapping[type, tuple[Rule, ...]]] = {
    queues.FlavorFungibility: (
        Rule(
            "!has(self.preference)"
            " || [self.whenCanBorrow, self.whenCanPreempt].all(w, w == 'TryNextFlavor')",
            "a preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    ),
    queues.ClusterQueuePreemption: (
        Rule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort)"
            " || self.borrowWithinCohort.policy == 'Never'",
            "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never",
        ),
    ),
    queues.ResourceGroup: (
        Rule(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "each flavor needs one quota for each of the coveredResources",
        ),
    ),
    queues.ClusterQueueSpec: (
        Rule(
            "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g,"
            " g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            "a borrowingLimit needs a cohortName",
        ),
    ),
    queues.LocalQueueSpec: (
        Rule(_same("clusterQueue"), "clusterQueue cannot change: make another LocalQueue"),
    ),
    flavors.ResourceFlavorSpec: (
        Rule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            "a topologyName needs nodeLabels",
        ),
        Rule(
            "!has(oldSelf.topologyName)"
            " || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName cannot change once it is set",
        ),
    ),
    Toleration: (
        Rule(
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "without a key, the operator must be Exists",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds need the effect NoExecute",
        ),
        Rule(
            "!has(self.operator) || self.operator in ['Equal', 'Exists']",
            "the operator must be Equal or Exists",
        ),
        Rule(
            "!has(self.value) || !has(self.operator) || self.operator != 'Exists'",
            "the operator Exists takes no value",
        ),
        Rule(
            "!has(self.effect) || self.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute']",
            "the effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    ),
    flavors.TopologySpec: (
        Rule(
            "self.levels.all(l, self.levels.exists_one(m, m.nodeLabel == l.nodeLabel))",
            "each nodeLabel can be one level only",
        ),
        Rule(
            f"self.levels.all(l, l.nodeLabel != '{_HOSTNAME}')"
            f" || self.levels[size(self.levels) - 1].nodeLabel == '{_HOSTNAME}'",
            f"{_HOSTNAME} can only be the last level",
        ),
        Rule(
            "self.levels == oldSelf.levels || [self.levels, oldSelf.levels].all(l,"
            f" l[size(l) - 1].nodeLabel == '{_HOSTNAME}')",
            f"levels can change only while {_HOSTNAME} is the last one, before and after",
        ),
    ),
    flavors.AdmissionCheckSpec: (Rule(_same("controllerName"), "controllerName cannot change"),),
    workload.PodSet: (
        Rule("!has(self.minCount) || self.minCount <= self.count", "minCount exceeds count"),
    ),
    workload.PriorityClassReference: (
        Rule(
            "(self.group == 'scheduling.k8s.io') == (self.kind == 'PriorityClass')",
            "group and kind do not belong together",
        ),
    ),
    workload.WorkloadSpec: (
        Rule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "a priorityClassRef needs a priority",
        ),
    ),
    workload.LevelValues: (
        Rule(
            "has(self.universal) != has(self.individual)",
            "either universal or individual is needed, and not both",
        ),
    ),
    workload.PodCounts: (
        Rule(
            "has(self.universal) != has(self.individual)",
            "either universal or individual is needed, and not both",
        ),
    ),
    workload.TopologySlice: (
        Rule(
            "!has(self.podCounts.individual)"
            " || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual needs one count for each domain",
        ),
        Rule(
            "self.valuesPerLevel.all(v,"
            " !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "valuesPerLevel needs one root for each domain",
        ),
    ),
    workload.TopologyAssignment: (
        Rule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel needs one value for each of the levels",
        ),
    ),
    workload.WorkloadStatus: (
        Rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName)"
            " || self.clusterName == oldSelf.clusterName",
            "clusterName cannot change once it is set",
        ),
        Rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames)"
            " || size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    ),
    workload.Workload: (
        Rule(
            f"!{_RESERVED} || !has(self.status.admission)"
            " || size(self.status.admission.podSetAssignments) == size(self.spec.podSets)",
            "podSetAssignments needs one entry for each of the podSets",
        ),
        Rule(
            f"!{_WAS_RESERVED} || has(self.{_CLASS}) == has(oldSelf.{_CLASS})",
            f"priorityClassRef {_KEPT}",
        ),
        Rule(
            f"!({_STAYS_CLASSED}) || (self.{_CLASS}.group == oldSelf.{_CLASS}.group"
            f" && self.{_CLASS}.kind == oldSelf.{_CLASS}.kind)",
            f"the group and kind of priorityClassRef {_KEPT}",
        ),
        Rule(
            f"!({_STAYS_CLASSED}) || self.{_CLASS}.kind != 'PriorityClass'"
            f" || self.{_CLASS}.name == oldSelf.{_CLASS}.name",
            f"the name of a PriorityClass {_KEPT}",
        ),
        Rule(
            f"!({_WAS_RESERVED} && {_RESERVED}) || ({_same('spec.queueName')})",
            f"queueName {_KEPT}",
        ),
        Rule(
            f"!({_STAYS_ADMITTED}) || ({_same('spec.maximumExecutionTimeSeconds')})",
            "maximumExecutionTimeSeconds cannot change while the workload is admitted",
        ),
    ),
}
"""By the wire type of the object."""
