"""Custom kinds: their definition, their schema, their subresources and columns."""

from tests.e2e.likeness.asking import (
    JSON_PATCH,
    STRATEGIC,
    Ask,
    apply,
    create,
    find,
    patch,
    read,
    remove,
    replace,
)
from tests.e2e.likeness.objects import make
from tests.e2e.likeness.stories.reading import PARTIAL, TABLE

GROUP = "likeness.example.com"
NAME = f"crontabs.{GROUP}"

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["schedule"],
            "properties": {
                "schedule": {"type": "string", "maxLength": 10, "pattern": "^[0-9 *]+$"},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
                "mode": {"type": "string", "enum": ["A", "B"]},
                "either": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "tags": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "parts": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "size": {"type": "integer", "format": "int32", "default": 2},
                        },
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "limits": {"type": "object", "additionalProperties": {"type": "string"}},
                "empty": {"type": "string", "nullable": True},
                "when": {"type": "string", "format": "date-time"},
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.mode) || self.mode != 'B' || self.replicas > 1"},
                {
                    "rule": "self.replicas >= oldSelf.replicas",
                    "message": "may not shrink",
                    "reason": "FieldValueForbidden",
                    "fieldPath": ".replicas",
                },
            ],
        },
        "status": {
            "type": "object",
            "properties": {
                "ready": {"type": "boolean"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}


def definition(name=NAME, **more):
    plural = name.partition(".")[0]
    names = {"plural": plural, "kind": "CronTab", "shortNames": ["lct"], "categories": ["all"]}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"},
            {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
            {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.schedule"}],
    }
    version.update(more.pop("version", {}))
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return make("CustomResourceDefinition", name, spec=spec | more)


def cron_tab(name="daily", /, metadata=None, **spec):
    spec = {"schedule": "0 0 * * *", **spec}
    return make("CronTab", name, metadata=metadata or {}, spec=spec)


def bad(**spec):
    return create(cron_tab("bad", **spec), dryRun="All")


def established(body):
    conditions = body.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def answered(body):
    return isinstance(body, dict) and body.get("kind") != "Status"


DEFINE = [
    create(definition()),
    read("CustomResourceDefinition", NAME, until=established),
    find("CronTab", until=answered),
]
"""How each of these stories begins; the second finds the kind defined."""


def change(content="application/merge-patch+json", part="", **spec):
    return patch("CronTab", "daily", {"spec": spec}, content, part=part)


STORIES = {
    "definition": [
        *DEFINE,
        create(definition()),
        Ask(method="GET", path=f"/apis/{GROUP}"),
        Ask(method="GET", path=f"/apis/{GROUP}/v1"),
    ],
    "objects": [
        *DEFINE,
        create(cron_tab()),
        create(cron_tab()),
        read("CronTab", "daily"),
        read("CronTab", "nobody"),
        find("CronTab"),
        find("CronTab", accept=TABLE),
        read("CronTab", "daily", accept=TABLE),
        read("CronTab", "daily", accept=PARTIAL),
        find("CronTab", fieldSelector="spec.schedule=x"),
        find("CronTab", fieldSelector="spec.mode=x"),
        change(replicas=3),
        change(replicas=2),
        change(content=STRATEGIC, replicas=4),
        patch(
            "CronTab",
            "daily",
            [{"op": "add", "path": "/spec/tags", "value": ["a"]}],
            JSON_PATCH,
        ),
        replace("CronTab", "daily", cron_tab()),
        replace("CronTab", "daily", lambda _: cron_tab(metadata={"resourceVersion": "1"})),
        replace("CronTab", "nobody", cron_tab("nobody")),
        remove("CronTab", "daily"),
        remove("CronTab", "daily"),
    ],
    "parts": [
        *DEFINE,
        create(cron_tab() | {"status": {"ready": True}}),
        patch("CronTab", "daily", {"status": {"ready": True}, "spec": {"replicas": 2}}),
        patch("CronTab", "daily", {"status": {"ready": True}}, part="status"),
        patch("CronTab", "daily", {"spec": {"replicas": 3}}, part="status"),
        patch("CronTab", "daily", {"metadata": {"labels": {"a": "b"}}}, part="status"),
        patch("CronTab", "daily", {"status": {"ready": "yes"}}, part="status"),
        patch("CronTab", "daily", {"status": {"replicas": 2, "selector": "a=b"}}, part="status"),
        read("CronTab", "daily", "scale"),
        patch("CronTab", "daily", {"spec": {"replicas": 4}}, part="scale"),
        patch("CronTab", "daily", {"spec": {"replicas": 9}}, part="scale"),
        read("CronTab", "daily"),
        replace(
            "CronTab", "daily", lambda found: found | {"status": {"ready": False}}, part="status"
        ),
        read("CronTab", "daily", "nothing"),
    ],
    "mistakes": [
        *DEFINE,
        bad(schedule="0 0 * * * * *"),
        bad(schedule="daily"),
        bad(schedule=5),
        bad(schedule=None),
        bad(replicas=0),
        bad(replicas=6),
        bad(replicas=1.5),
        bad(replicas="x"),
        bad(mode="C"),
        bad(mode="B"),
        bad(mode="B", replicas=2),
        bad(either="5"),
        bad(either=5),
        bad(either=True),
        bad(free={"a": {"b": 1}}),
        bad(tags=["a", "a"]),
        bad(tags=["a", "b", "c"]),
        bad(tags=[1]),
        bad(parts=[{}]),
        bad(parts=[{"name": "a"}, {"name": "a"}]),
        bad(parts=[{"name": "a", "size": 2**31}]),
        bad(limits={"a": 1}),
        bad(limits=[]),
        bad(empty=None),
        bad(when="yesterday"),
        bad(colour="red"),
        create(cron_tab("bad", colour="red"), dryRun="All", fieldValidation="Strict"),
        create(cron_tab("bad", colour="red"), dryRun="All", fieldValidation="Ignore"),
        create(make("CronTab", "bad"), dryRun="All"),
        create(make("CronTab", "bad", spec={}), dryRun="All"),
        create(make("CronTab", "bad", spec=[]), dryRun="All"),
        create(cron_tab("Bad_"), dryRun="All"),
        create(cron_tab("a" * 254), dryRun="All"),
        create(cron_tab("bad", metadata={"labels": {"a": 1}}), dryRun="All"),
        create(cron_tab("bad", metadata={"labels": {"a b": ""}}), dryRun="All"),
        create(cron_tab("bad", metadata={"colour": "red"}), dryRun="All"),
        create(cron_tab("gen", metadata={"name": "", "generateName": "gen-"}), dryRun="All"),
    ],
    "applied": [
        *DEFINE,
        apply(cron_tab("applied", tags=["a"], parts=[{"name": "x"}])),
        apply(cron_tab("applied", tags=["b"], parts=[{"name": "y", "size": 3}]), "other"),
        apply(cron_tab("applied", schedule="1 1 * * *"), "other"),
        apply(cron_tab("applied", schedule="1 1 * * *"), "other", force="true"),
        apply(cron_tab("applied", colour="red"), "third", force="true"),
        apply(cron_tab("applied", replicas=0), "third", force="true"),
        read("CronTab", "applied"),
    ],
    "bad-definitions": [
        create(definition("Bad_"), dryRun="All"),
        create(definition("other.example.com"), dryRun="All"),
        create(definition(f"bads.{GROUP}", scope="Everywhere"), dryRun="All"),
        create(definition(f"bads.{GROUP}", version={"schema": None}), dryRun="All"),
        create(definition(f"bads.{GROUP}", version={"storage": False}), dryRun="All"),
        create(definition(f"bads.{GROUP}", versions=[]), dryRun="All"),
        create(
            definition(
                f"bads.{GROUP}",
                version={
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
                },
            ),
            dryRun="All",
        ),
        *DEFINE,
        patch("CustomResourceDefinition", NAME, {"spec": {"scope": "Cluster"}}),
        patch("CustomResourceDefinition", NAME, {"spec": {"names": {"kind": "Other"}}}),
    ],
    "removed-definition": [
        *DEFINE,
        create(cron_tab("last")),
        remove("CustomResourceDefinition", NAME),
        read("CustomResourceDefinition", NAME, until=lambda body: body.get("code") == 404),
        find("CronTab", until=lambda body: not answered(body)),
    ],
}
