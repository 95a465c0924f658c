"""Each bound of Kueue's schemas, violated alone: the slim schema or the webhooks refuse it."""

import copy
from functools import cache

import pytest

from tests.api.test_full_schemas import cluster_queue, item, workload
from tests.full_schemas import WHY_NOT, errors_of, kueue_schemas, our_schemas, refusals

BASES = {
    "clusterqueues": cluster_queue("a"),
    "cohorts": item("Cohort", {}),
    "localqueues": item("LocalQueue", {"clusterQueue": "q"}),
    "resourceflavors": item("ResourceFlavor", {"nodeLabels": {"a": "b"}}),
    "topologies": item("Topology", {"levels": [{"nodeLabel": "example.com/rack"}]}),
    "workloads": workload(queueName="q", priority=1),
    "admissionchecks": item("AdmissionCheck", {"controllerName": "example.com/check"}),
    "provisioningrequestconfigs": item(
        "ProvisioningRequestConfig", {"provisioningClassName": "class"}
    ),
    "multikueueconfigs": item("MultiKueueConfig", {"clusters": ["one"]}),
    "multikueueclusters": item(
        "MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "s"}}}
    ),
    "workloadpriorityclasses": item("WorkloadPriorityClass", value=1),
}
UNREAD = {"template", "metadata", "status", "apiVersion", "kind"}
"""Pod templates are checked where pods are made; statuses are written by the controller alone."""

HARMLESS = {("spec.podSets.0", "required:template")}
"""A pod set without a template is one of pods that request nothing."""


def places(schema, path=()):
    """Yield the path and the schema of each field that has a bound."""
    if len(path) > 12:
        return
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        if name not in UNREAD:
            yield from places(field, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from places(schema["items"], (*path, 0))


def smallest(schema, number=0):
    """Make a value that a schema allows, of required fields alone; `number` makes it unique."""
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    if "enum" in schema:
        return schema["enum"][number % len(schema["enum"])]
    return MADE.get(schema.get("type"), lambda *_: "1")(schema, number)


def items(schema, count, number=0):
    return [smallest(schema["items"], number + n) for n in range(count)]


MADE = {
    "object": lambda schema, number: {
        name: smallest(schema["properties"][name], number) for name in schema.get("required", ())
    },
    "array": lambda schema, number: items(schema, max(schema.get("minItems", 0), 1), number),
    "integer": lambda schema, _: max(schema.get("minimum", 1), 1),
    "boolean": lambda *_: True,
    "string": lambda _, number: f"a{number or ''}",
}
BROKEN = {
    "maxItems": lambda schema: items(schema, schema["maxItems"] + 1),
    "minItems": lambda _: [],
    "maxLength": lambda schema: "a" * (schema["maxLength"] + 1),
    "minLength": lambda _: "",
    "pattern": lambda _: "@ @",
    "enum": lambda _: "NoneOfThem",
    "minimum": lambda schema: schema["minimum"] - 1,
    "maximum": lambda schema: schema["maximum"] + 1,
}


def violations(schema):
    """Yield the name of each bound of a schema, and a value that violates it."""
    for name, broken in BROKEN.items():
        if schema.get(name) or (name in schema and name in {"minimum", "maximum"}):
            yield name, broken(schema)
    for name in schema.get("required", ()):
        rest = smallest(schema)
        rest.pop(name)
        yield f"required:{name}", rest


def put(obj, root, path, value):
    """Set a value at a path, and make what is above it."""
    here, schema = obj, root
    for step, following in zip(path, (*path[1:], None), strict=True):
        schema = schema["items"] if step == 0 else schema["properties"][step]
        if following is None:
            here[step] = value
        elif step == 0:
            here = here[0]
        else:
            here = here.setdefault(step, smallest(schema))
            if following == 0 and not here:
                here.append(smallest(schema["items"]))


@cache
def bounds():
    """All bounds: plural, path, name, an object that violates it, and one that does not."""
    found = []
    for plural, base in BASES.items():
        root = kueue_schemas().get(plural)
        for path, schema in places(root) if root else ():
            for name, wrong in violations(schema) if path else ():
                made = []
                for value in (wrong, smallest(schema)):
                    obj = copy.deepcopy(base)
                    put(obj, root, path, value)
                    made.append(obj)
                found.append((plural, ".".join(map(str, path)), name, *made))
    return found


@pytest.mark.skipif(not kueue_schemas(), reason=WHY_NOT)
@pytest.mark.parametrize("plural", BASES)
def test_each_bound_of_kueues_schema_is_kept_by_the_webhooks(plural):
    schema, slim = kueue_schemas()[plural], our_schemas(full=False)[plural]
    passed, judged = set(), 0
    for kind, path, name, wrong, right in bounds():
        if kind != plural or refusals(right, None) or not errors_of(wrong, None, schema):
            continue  # of another kind, or refused for another reason
        judged += 1
        if not (refusals(wrong, None) or errors_of(wrong, None, slim)):
            passed.add((path, name))

    assert passed <= HARMLESS
    assert judged
