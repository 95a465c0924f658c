"""The full schemas say what Kueue's do, and everything that is written fits them."""

import msgspec
import pytest
from msgspec import inspect

from policyd.api.crd import KINDS, schema
from policyd.api.kueue.names import GROUP
from tests.full_schemas import WHY_NOT, errors_of, kueue_schemas, our_schemas, refusals

OURS = [kind for kind in KINDS if kind.group == GROUP]
HIDDEN = {"description", "properties", "items", "additionalProperties", "x-kubernetes-validations"}
ALIKE = {"enum", "required", "pattern", "default"}
"""What is said in other words or in another order: compared apart."""

DIFFERENT = {
    # The totals over all groups, which Kueue's statuses do not hold.
    ("flavorsReservation", "maxItems"),
    ("flavorsUsage", "maxItems"),
    # The enum bounds them.
    ("mode", "maxLength"),
    ("delayedTopologyRequest", "maxLength"),
    # `atomic` is what a list is of which nothing is said.
    ("matchExpressions", "x-kubernetes-list-type"),
    ("values", "x-kubernetes-list-type"),
}
"""Where Kueue's schemas say something else, on purpose."""


def parts(part, path=()):
    """Yield what a schema says of each field, without descriptions."""
    yield path, {name: value for name, value in part.items() if name not in HIDDEN}
    for name, field in part.get("properties", {}).items():
        if name != "template":  # stored unread
            yield from parts(field, (*path, name))
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            yield from parts(part[name], (*path, name))


@pytest.mark.skipif(not kueue_schemas(), reason=WHY_NOT)
@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.plural)
def test_bounds_of_fields_of_kueue_are_in_the_full_schema(kind):
    ours = dict(parts(our_schemas()[kind.plural]))

    missing = [
        (path, name, limit)
        for path, bounds in parts(kueue_schemas()[kind.plural])
        for name, limit in bounds.items()
        if path in ours and name not in ALIKE and ours[path].get(name) != limit
        if (path[-1] if path else "", name) not in DIFFERENT
    ]

    assert missing == []


@pytest.mark.skipif(not kueue_schemas(), reason=WHY_NOT)
@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.plural)
def test_kueues_required_fields_limits_and_defaults_are_in_the_full_schema(kind):
    ours = dict(parts(our_schemas()[kind.plural]))
    for path, bounds in parts(kueue_schemas()[kind.plural]):
        if path not in ours:
            continue
        here = ours[path]
        assert set(bounds.get("required", ())) <= set(here.get("required", ())), path
        assert ("pattern" in bounds) == ("pattern" in here), path
        assert ("default" in bounds) <= ("default" in here), path
        if "enum" in bounds:
            assert set(bounds["enum"]) <= set(here["enum"]), path


def structs(info):
    match info:
        case inspect.StructType():
            yield info.cls
            for field in info.fields:
                yield from structs(field.type)
        case inspect.Metadata(type=inner):
            yield from structs(inner)
        case inspect.UnionType(types=options):
            for option in options:
                yield from structs(option)
        case inspect.VarTupleType(item_type=inner) | inspect.DictType(value_type=inner):
            yield from structs(inner)


STATUSES = {
    struct
    for kind in OURS
    for field in msgspec.structs.fields(kind.type)
    if field.name == "status"
    for struct in structs(inspect.type_info(field.type))
}
FROM_THE_CLOCK = {"lastTransitionTime", "lastUpdate", "reason"}
"""What a writer has to say: there is no value for it to have by itself."""


def smallest(part):
    if "enum" in part:
        return part["enum"][0]
    return {"integer": 1, "array": [], "string": ""}[part["type"]]


@pytest.mark.parametrize("struct", sorted(STATUSES, key=lambda s: s.__name__))
def test_required_status_fields_of_the_full_schema_are_written_even_if_empty(struct):
    bare = schema(struct, full=True)
    given = {
        field.encode_name: smallest(bare["properties"][field.encode_name])
        for field in msgspec.structs.fields(struct)
        if field.required
    }

    written = msgspec.to_builtins(msgspec.convert(given, struct))

    assert set(bare.get("required", ())) - FROM_THE_CLOCK <= set(written)


def item(kind, spec=None, **more):
    namespace = {"namespace": "ns"} if kind in {"Workload", "LocalQueue"} else {}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "one", **namespace},
        **({} if spec is None else {"spec": spec}),
        **more,
    }


def cluster_queue(*flavors, resources=("cpu",), **spec):
    quotas = [{"name": name, "nominalQuota": "1"} for name in resources]
    made = [{"name": name, "resources": quotas} for name in flavors]
    groups = [{"coveredResources": list(resources), "flavors": made}]
    return item("ClusterQueue", {"resourceGroups": groups, **spec})


POD_SET = {"name": "main", "count": 2, "template": {"spec": {"containers": []}}}
CONDITION = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}


def workload(**spec):
    return item("Workload", {"podSets": [POD_SET], **spec})


def placed(**topology):
    """A workload that is admitted to a place in a topology."""
    part = {
        "domainCount": 2,
        "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
        "podCounts": {"universal": 1},
    }
    whole = {"levels": ["rack"], "slices": [{**part, **topology.pop("slice", {})}], **topology}
    assignment = {"name": "main", "count": 2, "topologyAssignment": whole}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    return {**workload(), "status": {"conditions": [CONDITION], "admission": admission}}


def reserved(**spec):
    made = placed()
    return {**made, "spec": {**made["spec"], **spec}}


CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
WRONG = {
    "flavor-name": (cluster_queue("a_b"), None),
    "flavor-name-too-long": (cluster_queue("a" * 254), None),
    "no-flavors": (cluster_queue(), None),
    "no-resources": (cluster_queue("a", resources=()), None),
    "cohort-name": (cluster_queue("a", cohortName="@prod"), None),
    "check-without-name": (
        cluster_queue("a", admissionChecksStrategy={"admissionChecks": [{"name": ""}]}),
        None,
    ),
    "no-checks": (cluster_queue("a", admissionChecksStrategy={"admissionChecks": []}), None),
    "preference": (
        cluster_queue("a", flavorFungibility={"preference": "BorrowingOverPreemption"}),
        None,
    ),
    "preemption": (
        cluster_queue("a", preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        None,
    ),
    "weight-that-is-no-quantity": (cluster_queue("a", fairSharing={"weight": "much"}), None),
    "cohort-parent": (item("Cohort", {"parentName": "A"}), None),
    "local-queue": (item("LocalQueue", {"clusterQueue": "a_b"}), None),
    "local-queue-that-moves": (
        item("LocalQueue", {"clusterQueue": "b"}),
        item("LocalQueue", {"clusterQueue": "a"}),
    ),
    "topology-without-levels": (item("Topology", {"levels": []}), None),
    "level": (item("Topology", {"levels": [{"nodeLabel": "@rack"}]}), None),
    "level-twice": (item("Topology", {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}), None),
    "hosts-above-racks": (
        item("Topology", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}]}),
        None,
    ),
    "levels-that-change": (
        item("Topology", {"levels": [{"nodeLabel": "a"}]}),
        item("Topology", {"levels": [{"nodeLabel": "b"}]}),
    ),
    "flavor-with-topology-without-labels": (
        item("ResourceFlavor", {"topologyName": "t"}),
        None,
    ),
    "topology-of-a-flavor-that-changes": (
        item("ResourceFlavor", {"topologyName": "t", "nodeLabels": {"a": "b"}}),
        item("ResourceFlavor", {"topologyName": "u", "nodeLabels": {"a": "b"}}),
    ),
    "toleration-of-everything": (item("ResourceFlavor", {"tolerations": [{"value": "a"}]}), None),
    "toleration-by-number": (
        item("ResourceFlavor", {"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}),
        None,
    ),
    "toleration-with-unknown-effect": (
        item("ResourceFlavor", {"tolerations": [{"key": "a", "effect": "Go"}]}),
        None,
    ),
    "check-without-controller": (item("AdmissionCheck", {"controllerName": ""}), None),
    "check-of-a-wrong-kind": (
        item(
            "AdmissionCheck",
            {
                "controllerName": "a/b",
                "parameters": {"apiGroup": "a.b", "kind": "a/b", "name": "n"},
            },
        ),
        None,
    ),
    "controller-that-changes": (
        item("AdmissionCheck", {"controllerName": "a"}),
        item("AdmissionCheck", {"controllerName": "b"}),
    ),
    "provisioning-class": (
        item("ProvisioningRequestConfig", {"provisioningClassName": "A B"}),
        None,
    ),
    "priority-too-high": (item("WorkloadPriorityClass", value=2**31), None),
    "no-pod-sets": (workload(podSets=[]), None),
    "pod-set-name": (workload(podSets=[{**POD_SET, "name": "@driver"}]), None),
    "least-count": (workload(podSets=[{**POD_SET, "minCount": 3}]), None),
    "queue-name": (workload(queueName="@a"), None),
    "class-name": (workload(priority=1, priorityClassRef={**CLASS, "name": "a_b"}), None),
    "class-without-priority": (workload(priorityClassRef=CLASS), None),
    "class-of-another-group": (
        workload(priority=1, priorityClassRef={**CLASS, "kind": "PriorityClass"}),
        None,
    ),
    "queue-that-changes": (reserved(queueName="b"), reserved(queueName="a")),
    "queue-that-is-taken-away": (reserved(), reserved(queueName="a")),
    "class-that-comes-late": (reserved(priority=1, priorityClassRef=CLASS), reserved()),
    "values-of-a-level": (placed(levels=["block", "rack"]), workload()),
    "no-levels": (placed(levels=[], slice={"valuesPerLevel": []}), workload()),
    "no-values": (placed(slice={"valuesPerLevel": [{}]}), workload()),
    "roots": (
        placed(slice={"valuesPerLevel": [{"individual": {"roots": ["a"]}}]}),
        workload(),
    ),
    "counts": (placed(slice={"podCounts": {"individual": [1]}}), workload()),
    "no-counts": (placed(slice={"podCounts": {}}), workload()),
    "both-counts": (
        placed(slice={"podCounts": {"universal": 1, "individual": [1, 1]}}),
        workload(),
    ),
    "count-of-nothing": (placed(slice={"podCounts": {"universal": 0}}), workload()),
    "cluster-and-candidates": (
        {**workload(), "status": {"clusterName": "a", "nominatedClusterNames": ["a"]}},
        workload(),
    ),
}


@pytest.mark.parametrize(("new", "old"), WRONG.values(), ids=WRONG.keys())
def test_the_webhooks_refuse_the_errors_of_the_full_schema_for_the_slim_one(new, old):
    plural = next(kind.plural for kind in OURS if kind.type.__name__ == new["kind"])

    assert errors_of(new, old, our_schemas()[plural])
    if kueue_schemas():
        assert errors_of(new, old, kueue_schemas()[plural])
    assert [denial.reason for denial in refusals(new, old)][:1] == ["Invalid"]


RIGHT = {
    "cluster-queue": (cluster_queue("a"), None),
    "cohort": (item("Cohort", {}), None),
    "flavor": (item("ResourceFlavor", {"nodeLabels": {"a": "b"}, "topologyName": "t"}), None),
    "topology": (item("Topology", {"levels": [{"nodeLabel": "example.com/rack"}]}), None),
    "workload": (workload(queueName="a.b", priority=1, priorityClassRef=CLASS), None),
    "placed": (placed(), workload()),
    "what-was-wrong-before": (
        {**cluster_queue("a_b"), "metadata": {"name": "one", "finalizers": ["a/b"]}},
        cluster_queue("a_b"),
    ),
}


@pytest.mark.parametrize(("new", "old"), RIGHT.values(), ids=RIGHT.keys())
def test_valid_objects_pass_all_of_them(new, old):
    plural = next(kind.plural for kind in OURS if kind.type.__name__ == new["kind"])

    assert errors_of(new, old, our_schemas()[plural]) == []
    assert refusals(new, old) == ()
    if kueue_schemas():
        assert errors_of(new, old, kueue_schemas()[plural]) == []
