import pytest

from tests.local.apiserver.client import JOBS, JSON_PATCH, PODS, STRATEGIC, job, pod

pytestmark = pytest.mark.anyio

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GATES = [{"name": "example.com/wait"}]


def container(**more):
    return {"name": "main", "image": "busybox:1", **more}


async def test_a_pod_has_the_defaults_of_the_real_server(api):
    created = await api.create(PODS, pod())

    assert created["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for state in ("not-ready", "unreachable")
        ],
    }
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_gated_pod_says_that_it_waits(api):
    created = await api.create(PODS, pod(schedulingGates=GATES))

    (condition,) = created["status"]["conditions"]
    condition.pop("lastTransitionTime")
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": None,
    }


async def test_requests_follow_limits(api):
    resources = {"limits": {"cpu": "1000m", "nvidia.com/gpu": 2}, "requests": {"memory": "1Gi"}}

    created = await api.create(PODS, pod(containers=[container(resources=resources)]))

    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "nvidia.com/gpu": "2"},
        "requests": {"memory": "1Gi", "cpu": "1", "nvidia.com/gpu": "2"},
    }


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({}, "BestEffort", id="nothing-asked"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="a-request"),
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits-of-both"),
        pytest.param({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort", id="other-resources"),
    ],
)
async def test_quality_of_service_follows_from_resources(api, resources, expected):
    created = await api.create(PODS, pod(containers=[container(resources=resources)]))

    assert created["status"]["qosClass"] == expected


async def test_a_pod_gets_the_priority_of_its_class(api):
    await api.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    low = {"metadata": {"name": "low"}, "value": 10, "globalDefault": True}
    await api.create(CLASSES, low | {"preemptionPolicy": "Never"})

    named = await api.create(PODS, pod("named", priorityClassName="high"))
    default = await api.create(PODS, pod("default"))

    assert named["spec"]["priority"] == 1000
    spec = default["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("low", 10)
    assert spec["preemptionPolicy"] == "Never"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"priorityClassName": "nope"}, "no PriorityClass with name nope was found", id="unknown"
        ),
        pytest.param(
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority admission"
            " controller computed 0 from the given PriorityClass name",
            id="own-number",
        ),
    ],
)
async def test_a_pod_cannot_choose_its_priority_freely(api, spec, why):
    reply = await api.send("POST", PODS, pod(**spec))

    assert (reply.code, reply.message) == (403, f'pods "one" is forbidden: {why}')


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no-containers"),
        pytest.param(
            {"containers": [{"name": "a"}]},
            "spec.containers[0].image: Required value",
            id="no-image",
        ),
        pytest.param(
            {"containers": [container(), container()]},
            'spec.containers[1].name: Duplicate value: "main"',
            id="same-name-twice",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always",'
            ' "OnFailure", "Never"',
            id="restart-policy",
        ),
        pytest.param(
            {
                "containers": [
                    container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
                ]
            },
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal'
            " to cpu limit of 1",
            id="request-above-limit",
        ),
        pytest.param(
            {"containers": [container(resources={"requests": {"nvidia.com/gpu": 1}})]},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non"
            " overcommitable resources",
            id="gpu-without-limit",
        ),
        pytest.param(
            {"containers": [container(resources={"limits": {"nvidia.com/gpu": "500m"}})]},
            '[spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be'
            " an integer, spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value:"
            ' "500m": must be an integer]',
            id="half-a-gpu",
        ),
        pytest.param(
            {"schedulingGates": GATES * 2},
            'spec.schedulingGates[1]: Duplicate value: "example.com/wait"',
            id="same-gate-twice",
        ),
        pytest.param(
            {"schedulingGates": GATES, "nodeName": "n1"},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            id="gated-on-a-node",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            'spec.tolerations[0].operator: Invalid value: "b": value must be empty when `operator`'
            " is 'Exists'",
            id="toleration",
        ),
        pytest.param(
            {"nodeSelector": {"a b": "c"}},
            'spec.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric'
            " characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            " (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
            " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            id="node-selector",
        ),
    ],
)
async def test_a_pod_that_breaks_a_rule_is_invalid(api, spec, message):
    reply = await api.send("POST", PODS, pod(**spec))

    assert reply.code == 422
    assert reply.message == f'Pod "one" is invalid: {message}'


async def test_everything_that_is_wrong_is_reported_at_once(api):
    given = pod("Not_A_Name", restartPolicy="Sometimes", containers=[{"name": "a"}])

    reply = await api.send("POST", PODS, given)

    fields = [cause["field"] for cause in reply.body["details"]["causes"]]
    assert fields == ["metadata.name", "spec.containers[0].image", "spec.restartPolicy"]
    assert reply.message.startswith('Pod "Not_A_Name" is invalid: [metadata.name: Invalid value:')


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        pytest.param({}, {"activeDeadlineSeconds": 60}, id="deadline"),
        pytest.param(
            {}, {"containers": [{"name": "main", "image": "busybox:2"}]}, id="image-of-a-container"
        ),
        pytest.param({"schedulingGates": GATES}, {"nodeSelector": {"a": "b"}}, id="gated-selector"),
        pytest.param(
            {"schedulingGates": GATES},
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                            ]
                        }
                    }
                }
            },
            id="gated-affinity",
        ),
    ],
)
async def test_some_of_a_pod_may_change(api, spec, change):
    await api.create(PODS, pod(**spec))

    reply = await api.patch(f"{PODS}/one", {"spec": change}, STRATEGIC)

    assert reply.code == 200, reply.body


async def test_gates_are_removed_and_tolerations_added(api):
    await api.create(PODS, pod(schedulingGates=GATES))

    reply = await api.patch(
        f"{PODS}/one",
        [
            {"op": "remove", "path": "/spec/schedulingGates"},
            {"op": "add", "path": "/spec/nodeSelector", "value": {"rack": "a"}},
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "gpu"}},
        ],
        JSON_PATCH,
    )

    assert reply.code == 200
    assert "schedulingGates" not in reply.body["spec"]


@pytest.mark.parametrize(
    ("spec", "change", "message"),
    [
        pytest.param(
            {}, {"hostNetwork": True}, "pod updates may not change fields other than", id="rest"
        ),
        pytest.param(
            {},
            {"nodeSelector": {"a": "b"}},
            "pod updates may not change fields other than",
            id="selector-when-not-gated",
        ),
        pytest.param(
            {"schedulingGates": GATES, "nodeSelector": {"a": "b"}},
            {"nodeSelector": {"a": "c"}},
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            id="selector-mutation",
        ),
        pytest.param(
            {},
            {"schedulingGates": GATES},
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new"
            " scheduling gate 'example.com/wait'",
            id="new-gate",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"tolerations": None},
            "spec.tolerations: Forbidden: existing toleration can not be modified except its"
            " tolerationSeconds",
            id="toleration-removed",
        ),
        pytest.param(
            {},
            {"containers": [container(), container(name="side")]},
            "spec.containers: Forbidden: pod updates may not add or remove containers",
            id="new-container",
        ),
    ],
)
async def test_most_of_a_pod_may_not_change(api, spec, change, message):
    await api.create(PODS, pod(**spec))

    reply = await api.patch(f"{PODS}/one", {"spec": change})

    assert reply.code == 422
    assert message in reply.message


async def test_a_job_has_the_defaults_of_the_real_server(api):
    created = await api.create(JOBS, job())

    spec, uid = created["spec"], created["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "one",
        "controller-uid": uid,
        "job-name": "one",
    }
    assert spec.pop("template")["metadata"]["labels"] == labels
    assert created["metadata"]["labels"] == labels
    assert spec == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        "suspend": False,
    }
    assert created["status"] == {}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"parallelism": -1},
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            id="negative",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [container()]}}},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
            id="restarts-always",
        ),
        pytest.param(
            {"completionMode": "Indexed", "parallelism": 2},
            "spec.completions: Required value: when completion mode is Indexed",
            id="indexed-without-completions",
        ),
    ],
)
async def test_a_job_that_breaks_a_rule_is_invalid(api, spec, message):
    reply = await api.send("POST", JOBS, job(**spec))

    assert (reply.code, reply.message) == (422, f'Job.batch "one" is invalid: {message}')


@pytest.mark.parametrize(
    ("suspended", "change", "code"),
    [
        pytest.param(True, {"nodeSelector": {"a": "b"}}, 200, id="selector-while-suspended"),
        pytest.param(True, {"tolerations": [{"key": "a"}]}, 200, id="toleration-while-suspended"),
        pytest.param(False, {"nodeSelector": {"a": "b"}}, 422, id="selector-while-running"),
        pytest.param(True, {"hostNetwork": True}, 422, id="anything-else"),
    ],
)
async def test_where_a_jobs_pods_go_may_change_while_it_is_suspended(api, suspended, change, code):
    await api.create(JOBS, job(suspend=suspended))

    reply = await api.patch(f"{JOBS}/one", {"spec": {"template": {"spec": change}}})

    assert reply.code == code, reply.body


async def test_a_jobs_template_is_fixed_once_it_has_started(api):
    await api.create(JOBS, job(suspend=True))
    await api.patch(f"{JOBS}/one/status", {"status": {"startTime": "2026-01-02T03:04:05Z"}})

    change = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    reply = await api.patch(f"{JOBS}/one", change)

    assert reply.code == 422
    assert reply.message.endswith("field is immutable")


async def test_a_job_may_be_suspended_and_resumed(api):
    await api.create(JOBS, job())

    for suspend in (True, False):
        reply = await api.patch(f"{JOBS}/one", {"spec": {"suspend": suspend}})
        assert reply.body["spec"]["suspend"] is suspend


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        pytest.param(
            "/apis/apps/v1/namespaces/default/deployments",
            {
                "metadata": {"name": "one"},
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "c"}},
                        "spec": {"containers": [container()]},
                    },
                },
            },
            "`selector` does not match template `labels`",
            id="selector",
        ),
        pytest.param(
            CLASSES,
            {"metadata": {"name": "one"}, "value": 2_000_000_000},
            "maximum allowed value of a user defined priority is 1000000000",
            id="priority",
        ),
        pytest.param(
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "1st"}},
            "a DNS-1035 label must consist of",
            id="service-name",
        ),
        pytest.param(
            "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "one"}, "data": {"a/b": "c"}},
            "a valid config key must consist of",
            id="config-key",
        ),
        pytest.param(
            "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "one", "annotations": {"a": "x" * 270_000}}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
            id="annotations",
        ),
    ],
)
async def test_other_kinds_have_rules_too(api, path, body, message):
    reply = await api.send("POST", path, body)

    assert reply.code == 422
    assert message in reply.message


async def test_plain_text_in_a_secret_is_encoded(api):
    path = "/api/v1/namespaces/default/secrets"

    created = await api.create(path, {"metadata": {"name": "s"}, "stringData": {"a": "hello"}})

    assert created["data"] == {"a": "aGVsbG8="}
    assert created["type"] == "Opaque"
    assert "stringData" not in created


async def test_a_final_config_map_does_not_change(api):
    path = "/api/v1/namespaces/default/configmaps"
    await api.create(path, {"metadata": {"name": "c"}, "immutable": True, "data": {"a": "b"}})

    reply = await api.patch(f"{path}/c", {"data": {"a": "c"}})

    assert "data: Forbidden: field is immutable when `immutable` is set" in reply.message


async def test_a_node_may_be_created_with_its_status(api):
    status = {"capacity": {"nvidia.com/gpu": 8}}

    created = await api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})

    assert created["status"]["capacity"] == {"nvidia.com/gpu": "8"}
    assert created["status"]["allocatable"] == {"nvidia.com/gpu": "8"}
