"""The webhook: what a user sees of the policies when creating pods and jobs."""

import pytest

from tests.scenarios.api import PATCH_TYPES, PATHS, Refused, eventually
from tests.scenarios.objects import job, pod

QUEUE = "kueue.x-k8s.io/queue-name"


def test_a_pod_gets_what_the_policies_inject(api):
    created = api.create(pod("train"))

    assert created["metadata"]["labels"][QUEUE] == "team-a"
    tolerations = created["spec"]["tolerations"]
    assert [t["key"] for t in tolerations].count("nvidia.com/gpu") == 1
    assert created["spec"]["priorityClassName"]


def test_a_job_and_its_pods_agree_on_the_queue(api):
    created = api.create(job("train", gpus=2, pods=2))

    assert created["metadata"]["labels"][QUEUE] == "team-a"
    assert created["spec"]["suspend"] is True
    tolerations = created["spec"]["template"]["spec"]["tolerations"]
    assert "nvidia.com/gpu" in [t["key"] for t in tolerations]


def test_a_forbidden_pod_is_denied_with_a_remedy(api):
    greedy = pod("greedy", gpus=64)

    with pytest.raises(Refused) as refusal:
        api.create(greedy)

    assert refusal.value.code in {403, 422}
    assert "denied the request" in refusal.value.message
    assert "GPU" in refusal.value.message
    assert not api.exists("Pod", "greedy", "team-a")


def test_gpus_without_a_queue_are_denied(api):
    with pytest.raises(Refused, match="queue"):
        api.create(pod("stray", "default"))


@pytest.mark.parametrize(
    ("kind", "spec", "path", "words"),
    [
        pytest.param(
            "ClusterQueue",
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [
                            {"name": "a", "resources": [{"name": "cpu", "nominalQuota": "-1"}]}
                        ],
                    }
                ]
            },
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
            'Invalid value: "-1": must be greater than or equal to 0',
            id="queue-with-less-than-nothing",
        ),
        pytest.param(
            "ResourceFlavor",
            {"topologyName": "racks"},
            "spec.nodeLabels",
            "Required value: at least one nodeLabel is required when topology is set",
            id="flavor-of-no-nodes",
        ),
    ],
)
def test_a_queue_that_cannot_be_is_refused(api, kind, spec, path, words):
    wrong = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "wrong"},
        "spec": spec,
    }

    with pytest.raises(Refused) as refusal:
        api.create(wrong)

    assert f"queue: {path}: {words}" in refusal.value.message
    assert not api.exists(kind, "wrong")


def test_a_dry_run_shows_the_result_and_stores_nothing(api):
    shown = api.create(pod("ghost"), dry_run=True)

    assert shown["metadata"]["labels"][QUEUE] == "team-a"
    assert not api.exists("Pod", "ghost", "team-a")


def test_values_of_the_author_are_kept(api):
    mine = pod("mine")
    mine["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]

    created = api.create(mine)

    assert [t["key"] for t in created["spec"]["tolerations"]].count("nvidia.com/gpu") == 1


def test_an_update_is_reviewed_as_well(api):
    api.create(pod("labelled", gpus=0))

    changed = api.patch("Pod", "labelled", {"metadata": {"labels": {"a": "b"}}}, namespace="team-a")

    assert changed["metadata"]["labels"]["a"] == "b"


def test_a_policy_in_the_cluster_says_whether_it_is_ready(api):
    good = policy("no-latest", "!pod.spec.containers.exists(c, c.image.endsWith(':latest'))")
    api.create(good)
    try:
        ready = eventually(lambda: ready_condition(api, "no-latest"), what="it has a status")
        assert ready["status"] == "True"
    finally:
        api.delete("Policy", "no-latest")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_policy_that_could_not_be_used_is_refused_with_its_place(api, dry_run):
    bad = policy("broken", "pod.spec.containers.exist(c, true)")

    with pytest.raises(Refused) as refusal:
        api.create(bad, dry_run=dry_run)

    assert refusal.value.code == 422
    assert "spec.validations[0].expression" in refusal.value.message
    assert not api.exists("Policy", "broken")


MISTAKES = {
    "an-exception-that-ends-on-no-day": (
        {"exceptions": [{"reason": "INC-1", "until": "2027-13-45"}]},
        "spec.exceptions[0].until",
    ),
    "a-match-condition-that-is-no-expression": (
        {"matchConditions": [{"name": "x", "expression": "object.foo("}]},
        "spec.matchConditions[0].expression",
    ),
    "a-selector-that-is-none": (
        {"matchConstraints": {"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}},
        "spec.matchConstraints",
    ),
    "an-injection-that-is-no-expression": (
        {"inject": {"labels": {"a": {"value": "object.foo("}}}},
        "spec.inject",
    ),
}


@pytest.mark.parametrize(("mistake", "place"), MISTAKES.values(), ids=MISTAKES)
def test_a_policy_that_is_in_force_is_not_replaced_by_a_broken_one(api, mistake, place):
    good = policy("no-latest", "!pod.spec.containers.exists(c, c.image.endsWith(':latest'))")
    api.create(good)
    try:
        for dry_run in (True, False):
            with pytest.raises(Refused) as refusal:
                patched(api, "Policy", "no-latest", {"spec": mistake}, dry_run=dry_run)

            assert refusal.value.code == 422
            assert place in refusal.value.message
        assert ready_condition(api, "no-latest") is None or ready(api, "no-latest")
    finally:
        api.delete("Policy", "no-latest")


def test_a_binding_that_binds_nothing_is_refused(api):
    wrong = {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "PolicyBinding",
        "metadata": {"name": "wrong"},
        "spec": {
            "policyName": "no-latest",
            "matchResources": {"namespaceSelector": {"matchExpressions": [{"key": "a"}]}},
        },
    }

    for dry_run in (True, False):
        with pytest.raises(Refused, match=r"spec\.matchResources"):
            api.create(wrong, dry_run=dry_run)


def patched(api, kind, name, patch, *, dry_run):
    options = {"content_type": PATCH_TYPES["merge"], "dryRun": "All" if dry_run else None}
    return api.call("PATCH", f"{PATHS[kind]}/{name}", patch, **options)


def ready(api, name):
    return ready_condition(api, name)["status"] == "True"


def ready_condition(api, name):
    conditions = api.get("Policy", name).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "Ready"), None)


def policy(name, expression):
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"no-such-label": "here"}},
            },
            "validations": [{"expression": expression, "message": "use a version"}],
        },
    }
