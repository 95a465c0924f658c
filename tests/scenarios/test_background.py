"""`policyd background` generates, mutates and deletes what Kyverno's policies say."""

import json
import subprocess
import time

import pytest

from policyd.engine.objects.workloads import value_at
from tests.scenarios.api import Refused
from tests.scenarios.clusters import COMMANDS

GROUP = "policies.kyverno.io"
MAPS = "api/v1/namespaces/team-a/configmaps"
EVENTS = "api/v1/namespaces/team-a/events"
DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"content_type": "application/merge-patch+json"}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
COPY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: copy-of-(( object.metadata.name )), namespace: (( object.metadata.namespace ))}
data: (( object.data ))
"""
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(kind, plural):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": OPEN, "status": OPEN},
                        }
                    },
                }
            ],
        },
    }


def policy(kind, name, label, **spec):
    constraints = {
        "resourceRules": [{**RULE, "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {label: "yes"}},
    }
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "annotations": {"policyd.io/rollout": "100"}},
        "spec": {"matchConstraints": constraints, **spec},
    }


def generating(**evaluation):
    template = {"interpolate": "cel", "value": COPY}
    switches = {name: {"enabled": on} for name, on in {"synchronize": True, **evaluation}.items()}
    spec = {"evaluation": switches, "generate": [{"template": template}]}
    return policy("GeneratingPolicy", "copies", "copied", **spec)


def config_map(name, label="copied", **data):
    metadata = {"name": name, "labels": {label: "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def policies(api):
    """The paths of Kyverno's policies, which the cluster serves for the time of a test."""
    plurals = {
        "GeneratingPolicy": "generatingpolicies",
        "MutatingPolicy": "mutatingpolicies",
        "DeletingPolicy": "deletingpolicies",
    }
    for kind, plural in plurals.items():
        api.call("POST", DEFINITIONS, definition(kind, plural))
    paths = {kind: f"apis/{GROUP}/v1/{plural}" for kind, plural in plurals.items()}
    for path in paths.values():
        until(lambda path=path: served(api, path))
    yield paths
    for plural in plurals.values():
        api.call("DELETE", f"{DEFINITIONS}/{plural}.{GROUP}")
    for each in maps(api):
        api.call("DELETE", f"{MAPS}/{each}")
    for plural in plurals.values():
        # The server ends the objects of a definition before the definition.
        until(lambda plural=plural: not served(api, f"{DEFINITIONS}/{plural}.{GROUP}"))


def until(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.2)


def served(api, path):
    try:
        api.call("GET", path)
    except Refused:
        return False
    return True


def maps(api):
    found = {e["metadata"]["name"]: e.get("data") for e in api.call("GET", MAPS)["items"]}
    found.pop("kube-root-ca.crt", None)
    return found


def labels(api, name):
    return api.call("GET", f"{MAPS}/{name}")["metadata"]["labels"]


@pytest.fixture
def run(cluster):
    """Run a pass; return what it prints."""

    def run(*words, code=0):
        command = [
            COMMANDS / "policyd", "background", "--kubeconfig", cluster.kubeconfig,
            "--generates", "v1/configmaps", "--mutates", "v1/configmaps",
            "--deletes", "v1/configmaps", *words,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_generated_objects_follow_their_trigger_and_end_with_it(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("a", size="1"))

    assert run() == (
        "ConfigMap team-a/copy-of-a: would create: for ConfigMap team-a/a"
        " (GeneratingPolicy/copies)\n"
    )
    assert set(maps(api)) == {"a"}

    assert "copy-of-a: created" in run("--act")
    assert maps(api)["copy-of-a"] == {"size": "1"}
    assert "policyd.io/generating-trigger" in labels(api, "copy-of-a")
    assert run("--act") == ""

    api.call("PATCH", f"{MAPS}/a", {"data": {"size": "2", "more": "x"}}, **MERGE)
    assert "copy-of-a: updated" in run("--act")
    assert maps(api)["copy-of-a"] == {"size": "2", "more": "x"}

    api.call("PATCH", f"{MAPS}/copy-of-a", {"data": {"size": "99"}}, **MERGE)
    assert "copy-of-a: updated" in run("--act")
    assert maps(api)["copy-of-a"]["size"] == "2"

    api.call("DELETE", f"{MAPS}/copy-of-a")
    assert "copy-of-a: created" in run("--act")

    api.call("DELETE", f"{MAPS}/a")
    assert "copy-of-a: deleted: its trigger is gone" in run("--act")
    assert maps(api) == {}
    reasons = [e["message"] for e in api.call("GET", EVENTS)["items"]]
    assert any("deleted by GeneratingPolicy/copies: its trigger is gone" in m for m in reasons)


def mutating(value="request.object.data.address", **spec):
    targets = {
        "resourceRules": [{**RULE, "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"asks": "yes"}},
    }
    expression = f"Object{{data: {{'address': string({value})}}}}"
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec = {
        "evaluation": {"mutateExisting": {"enabled": True}},
        "targetMatchConstraints": targets,
        "mutations": [change],
        **spec,
    }
    return policy("MutatingPolicy", "addresses", "central", **spec)


def test_targets_follow_their_trigger(api, policies, run):
    api.call("POST", policies["MutatingPolicy"], mutating())
    api.call("POST", MAPS, config_map("target", "asks", kept="x"))
    assert run("--act") == ""

    api.call("POST", MAPS, config_map("a", "central", address="1"))
    assert (
        run() == "ConfigMap team-a/target: would mutate /data/address (MutatingPolicy/addresses)\n"
    )
    assert maps(api)["target"] == {"kept": "x"}

    assert "team-a/target: mutated /data/address" in run("--act")
    assert maps(api)["target"] == {"kept": "x", "address": "1"}
    version = api.call("GET", f"{MAPS}/target")["metadata"]["resourceVersion"]
    assert run("--act") == ""
    assert api.call("GET", f"{MAPS}/target")["metadata"]["resourceVersion"] == version

    api.call("PATCH", f"{MAPS}/a", {"data": {"address": "2"}}, **MERGE)
    run("--act")
    assert maps(api)["target"]["address"] == "2"
    reasons = [e["reason"] for e in api.call("GET", EVENTS)["items"]]
    assert "PolicyApplied" in reasons
    status = api.call("GET", f"{policies['MutatingPolicy']}/addresses")["status"]
    assert status["conditionStatus"]["ready"]


def test_two_triggers_that_undo_each_other_are_reported(api, policies, run):
    api.call("POST", policies["MutatingPolicy"], mutating())
    api.call("POST", MAPS, config_map("target", "asks"))
    for number in ("1", "2"):
        api.call("POST", MAPS, config_map(f"a{number}", "central", address=number))

    assert "not mutated: its triggers undo each other" in run("--act", code=1)
    assert "address" not in (maps(api)["target"] or {})


def test_what_others_add_to_a_generated_object_is_removed(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("a", size="1"))
    run("--act")
    api.call("PATCH", f"{MAPS}/copy-of-a", {"data": {"more": "x"}}, **MERGE)
    # Its labels and field managers are the tenant's to change, and say nothing.
    own = {"metadata": {"labels": None, "annotations": None, "managedFields": [{}]}}
    api.call("PATCH", f"{MAPS}/copy-of-a", own, **MERGE)

    assert "copy-of-a: updated: it differs" in run("--act")
    assert maps(api)["copy-of-a"] == {"size": "1"}
    assert "policyd.io/generating-trigger" in labels(api, "copy-of-a")


def test_forged_labels_have_nothing_changed_or_deleted(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("a", size="1"))
    run("--act")
    forged = labels(api, "copy-of-a")
    notes = api.call("GET", f"{MAPS}/copy-of-a")["metadata"]["annotations"]
    for name in ("copy-of-b", "other"):
        made = config_map(name, "own", size="7")
        made["metadata"] |= {"labels": forged, "annotations": notes}
        api.call("POST", MAPS, made, fieldManager="policyd-background")
    api.call("POST", MAPS, config_map("b", size="2"))

    assert "copy-of-b: not generated: it exists" in run("--act", code=1)
    for name in ("a", "b"):
        api.call("DELETE", f"{MAPS}/{name}")
    run("--act")
    assert maps(api) == {"copy-of-b": {"size": "7"}, "other": {"size": "7"}}


def test_a_policy_acts_only_when_it_is_rolled_out(api, policies, run):
    made = generating()
    made["metadata"]["annotations"]["policyd.io/rollout"] = "0"
    api.call("POST", policies["GeneratingPolicy"], made)
    api.call("POST", MAPS, config_map("a", size="1"))

    assert "copy-of-a: would create" in run("--act")
    assert set(maps(api)) == {"a"}
    path = f"{policies['GeneratingPolicy']}/copies"
    status = api.call("GET", path)["status"]["conditionStatus"]
    assert status["ready"]
    assert status["message"].startswith("Dry run")
    wrong = {"metadata": {"annotations": {"policyd.io/rollout": "all"}}}
    api.call("PATCH", path, wrong, **MERGE)
    assert "is not a number from 0 to 100" in run("--act", code=1)
    assert not api.call("GET", path)["status"]["conditionStatus"]["ready"]


def test_without_synchronize_an_object_is_generated_once(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating(synchronize=False))
    api.call("POST", MAPS, config_map("a", size="1"))

    assert "copy-of-a: created" in run("--act")
    api.call("DELETE", f"{MAPS}/copy-of-a")
    assert run("--act") == ""
    assert set(maps(api)) == {"a"}


def test_changes_are_acted_on_within_seconds(api, cluster, policies):
    command = [
        COMMANDS / "policyd", "background", "--kubeconfig", cluster.kubeconfig,
        "--generates", "v1/configmaps", "--reads", "v1/configmaps", "--act", "--watch",
    ]  # fmt: skip
    api.call("POST", policies["GeneratingPolicy"], generating())
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            api.call("POST", MAPS, config_map("a", size="1"))
            until(lambda: "copy-of-a" in maps(api))
            api.call("DELETE", f"{MAPS}/copy-of-a")
            until(lambda: "copy-of-a" in maps(api))
            api.call("PATCH", f"{MAPS}/copy-of-a", {"data": {"more": "x"}}, **MERGE)
            until(lambda: maps(api)["copy-of-a"] == {"size": "1"})
            api.call("DELETE", f"{MAPS}/a")
            until(lambda: maps(api) == {})
        finally:
            process.terminate()
            text = process.communicate(timeout=20)[1]
    assert process.returncode == 0, text
    events = [json.loads(line) for line in text.splitlines()]
    done = [e["done"] for e in events if e.get("object") == "ConfigMap team-a/copy-of-a"]
    assert "deleted: its trigger is gone, or generates it no more" in done


def of_deletions():
    made = generating()
    rule = made["spec"]["matchConstraints"]["resourceRules"][0]
    made["spec"]["matchConstraints"]["resourceRules"][0] = {**rule, "operations": ["DELETE"]}
    template = made["spec"]["generate"][0]["template"]
    template["value"] = COPY.replace("object.", "oldObject.")
    return made


def test_a_deletion_generates_and_what_it_generated_ends_with_the_policy(api, cluster, policies):
    command = [
        COMMANDS / "policyd", "background", "--kubeconfig", cluster.kubeconfig,
        "--generates", "v1/configmaps", "--act", "--watch",
    ]  # fmt: skip
    path = policies["GeneratingPolicy"]
    api.call("POST", path, of_deletions())
    api.call("POST", MAPS, config_map("a", size="1"))
    ready = ("status", "conditionStatus", "ready")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: value_at(api.call("GET", f"{path}/copies"), ready))
            time.sleep(1)  # the watch begins after the first pass
            api.call("PATCH", f"{MAPS}/a", {"data": {"size": "2"}}, **MERGE)
            api.call("DELETE", f"{MAPS}/a")
            until(lambda: maps(api) == {"copy-of-a": {"size": "2"}})
            api.call("POST", MAPS, config_map("b", size="3"))
            time.sleep(3)  # passes, in which the trigger is gone
            assert maps(api) == {"b": {"size": "3"}, "copy-of-a": {"size": "2"}}
            api.call("DELETE", f"{path}/copies")
            until(lambda: maps(api) == {"b": {"size": "3"}})
        finally:
            process.terminate()
            text = process.communicate(timeout=20)[1]
    assert process.returncode == 0, text


def test_deletions_while_no_process_runs_are_acted_on_by_the_next(api, cluster, policies):
    record = f"{MAPS}/deletions-of-copies"
    command = [
        COMMANDS / "policyd", "background", "--kubeconfig", cluster.kubeconfig,
        "--generates", "v1/configmaps", "--act", "--watch", "--no-leader-election",
        "--namespace", "team-a", "--record", "deletions-of-copies", "--every", "5",
    ]  # fmt: skip
    api.call("POST", policies["GeneratingPolicy"], of_deletions())
    api.call("POST", MAPS, config_map("a", size="1"))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until(lambda: served(api, record))
        process.kill()
    api.call("PATCH", f"{MAPS}/a", {"data": {"size": "2"}}, **MERGE)
    api.call("DELETE", f"{MAPS}/a")

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: maps(api).get("copy-of-a") == {"size": "2"})
        finally:
            process.terminate()
            text = process.communicate(timeout=20)[1]
    assert "nothing is generated" not in text


def test_objects_of_others_are_left_alone(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("copy-of-a", "own", size="7"))
    api.call("POST", MAPS, config_map("a", size="1"))

    shown = run("--act", code=1)

    assert "copy-of-a: not generated: it exists, and was not generated by this policy" in shown
    assert maps(api)["copy-of-a"] == {"size": "7"}


@pytest.mark.parametrize("orphan", [False, True], ids=["deleted", "orphaned"])
def test_objects_end_with_their_policy_unless_it_orphans_them(api, policies, run, orphan):
    made = generating(orphanDownstreamOnPolicyDelete=orphan)
    api.call("POST", policies["GeneratingPolicy"], made)
    api.call("POST", MAPS, config_map("a", size="1"))
    run("--act")
    api.call("DELETE", f"{policies['GeneratingPolicy']}/copies")

    shown = run("--act")

    assert ("copy-of-a" in maps(api)) == orphan
    assert ("its policy is gone" in shown) != orphan


def test_nothing_is_deleted_while_a_policy_cannot_be_used(api, policies, run):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("a", size="1"))
    run("--act")
    broken = {"spec": {"generate": [{"expression": "nothing("}]}}
    api.call("PATCH", f"{policies['GeneratingPolicy']}/copies", broken, **MERGE)
    api.call("DELETE", f"{MAPS}/a")

    assert "policy: cannot be used" in run("--act", code=1)
    assert set(maps(api)) == {"copy-of-a"}


def test_a_policy_generates_only_what_is_listed(api, cluster, policies):
    api.call("POST", policies["GeneratingPolicy"], generating())
    api.call("POST", MAPS, config_map("a", size="1"))
    command = [COMMANDS / "policyd", "background", "--kubeconfig", cluster.kubeconfig, "--act"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "generates ConfigMap of v1, which --generates does not list" in done.stderr
    assert set(maps(api)) == {"a"}


def test_nothing_is_done_where_kyvernos_kinds_are_not_served(api, run):
    shown = run("--act", code=2)

    assert "the cluster serves no DeletingPolicy, GeneratingPolicy" in shown
    assert "install Kyverno's CustomResourceDefinitions" in shown


def test_a_policy_deletes_what_it_matches_when_it_is_due(api, policies, run):
    conditions = [{"name": "old", "expression": "object.data.age == 'old'"}]
    deleting = policy(
        "DeletingPolicy", "old-ones", "swept", schedule="* * * * *", conditions=conditions
    )
    api.call("POST", policies["DeletingPolicy"], deleting)
    for name, age in (("first", "old"), ("second", "new")):
        api.call("POST", MAPS, config_map(name, "swept", age=age))
    api.call("POST", MAPS, config_map("third", "other", age="old"))
    path = f"{policies['DeletingPolicy']}/old-ones"
    due = {"status": {"lastExecutionTime": "2026-01-01T00:00:00Z"}}
    api.call("PATCH", f"{path}/status", due, **MERGE)

    assert run() == (
        "ConfigMap team-a/first: would delete: due by `* * * * *` (DeletingPolicy/old-ones)\n"
    )
    assert len(maps(api)) == 3
    assert "first: deleted" in run("--act")
    assert set(maps(api)) == {"second", "third"}
    assert api.call("GET", path)["status"] != due["status"]
    assert run("--act") == ""  # it is due again in the next minute
    messages = [e["message"] for e in api.call("GET", EVENTS)["items"]]
    assert any("deleted by DeletingPolicy/old-ones: due by `* * * * *`" in m for m in messages)
