"""What the comparison with a real API server taught the embedded one, without a real one."""

import pytest

from tests.local.apiserver.client import CONFIG_MAPS, JOBS, PODS, config_map, job, pod

pytestmark = pytest.mark.anyio

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
EVENTS = "/api/v1/namespaces/default/events"
TWICE = b'{"metadata": {"name": "one"}, "data": {"a": "1", "a": "2"}}'


def container(**more):
    return pod(containers=[{"name": "main", "image": "busybox", **more}])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        pytest.param(
            PODS, container(ports=[{}]), "spec.containers[0].ports[0].containerPort", id="port"
        ),
        pytest.param(
            PODS, container(env=[{"name": "a=b"}]), "spec.containers[0].env[0].name", id="env"
        ),
        pytest.param(
            PODS, container(livenessProbe={}), "spec.containers[0].livenessProbe", id="probe"
        ),
        pytest.param(
            PODS,
            container(volumeMounts=[{"name": "x", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[0].name",
            id="mount",
        ),
        pytest.param(PODS, pod(volumes=[{"name": "A"}]), "spec.volumes[0].name", id="volume"),
        pytest.param(PODS, pod(nodeName="A"), "spec.nodeName", id="node-name"),
        pytest.param(PODS, pod(os={"name": "beos"}), "spec.os", id="system"),
        pytest.param(
            PODS,
            pod(
                topologySpreadConstraints=[
                    {"topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            ),
            "spec.topologySpreadConstraints[0].maxSkew",
            id="spreading",
        ),
        pytest.param(JOBS, job(managedBy="me"), "spec.managedBy", id="manager"),
        pytest.param(
            LEASES,
            {"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds",
            id="lease",
        ),
        pytest.param(
            CLASSES, {"metadata": {"name": "system-x"}, "value": 1}, "metadata.name", id="class"
        ),
        pytest.param(
            EVENTS,
            {
                "metadata": {"name": "one"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingComponent": "a/b",
                "reportingInstance": "c",
                "reason": "d",
                "type": "Normal",
            },
            "action",
            id="event",
        ),
    ],
)
async def test_errors_are_named_by_field(api, path, body, field):
    reply = await api.send("POST", path, body)

    assert reply.code == 422, reply.body
    assert [cause["field"] for cause in reply.body["details"]["causes"]] == [field]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"dryRun": "Some"}, id="dry-run"),
        pytest.param({"fieldValidation": "Hard"}, id="field-validation"),
        pytest.param({"fieldManager": "x" * 129}, id="field-manager"),
    ],
)
async def test_options_that_are_none_are_refused(api, query):
    reply = await api.send("POST", CONFIG_MAPS, config_map(), **query)

    assert reply.code == 422
    assert (await api.get(f"{CONFIG_MAPS}/one")).code == 404


async def test_a_field_given_twice_is_warned_of_and_refused_when_strict(api):
    warned = await api.send("POST", CONFIG_MAPS, TWICE)
    refused = await api.send("POST", CONFIG_MAPS, TWICE, fieldValidation="Strict")

    assert warned.headers["Warning"] == '299 - "duplicate field \\"data.a\\""'
    assert refused.code == 400
    assert 'duplicate field "data.a"' in refused.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"active": -1}, "status.active", id="negative-count"),
        pytest.param(
            {"completionTime": "2026-01-01T00:00:00Z"},
            "no Complete=True condition",
            id="completion",
        ),
        pytest.param(
            {"conditions": [{"type": "Complete", "status": "True"}]}, "startTime", id="end"
        ),
        pytest.param({"startTime": "yesterday"}, "parsing time", id="no-time"),
    ],
)
async def test_a_job_status_that_cannot_be_is_refused(api, change, message):
    await api.create(JOBS, job())

    reply = await api.patch(f"{JOBS}/one/status", {"status": change})

    assert reply.code == 422
    assert message in reply.message


async def test_a_lease_is_created_by_a_put_and_then_changed_in_a_version_only(api):
    lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}

    created = await api.send("PUT", f"{LEASES}/one", lease)
    changed = await api.send("PUT", f"{LEASES}/one", lease)

    assert (created.code, changed.code) == (201, 422)


async def test_conditions_always_have_their_times(api):
    await api.create(PODS, pod())

    condition = {"type": "Ready", "status": "False"}
    reply = await api.patch(f"{PODS}/one/status", {"status": {"conditions": [condition]}})

    assert reply.body["status"]["conditions"] == [
        condition | {"lastProbeTime": None, "lastTransitionTime": None}
    ]


async def test_applied_objects_may_not_have_unknown_fields(api):
    body = config_map() | {"colour": "red"}

    reply = await api.send(
        "PATCH",
        f"{CONFIG_MAPS}/one",
        body,
        content_type="application/apply-patch+yaml",
        fieldManager="x",
    )

    assert reply.code == 500
    assert ".colour: field not declared in schema" in reply.message


async def test_items_of_a_list_do_not_repeat_what_they_are(api):
    await api.create(CONFIG_MAPS, config_map())

    listed = (await api.get(CONFIG_MAPS)).body

    assert listed["kind"] == "ConfigMapList"
    assert "kind" not in listed["items"][0]


@pytest.mark.parametrize(
    "selector",
    [pytest.param(text, id=text) for text in ("a=b=c", "a in b", "a b", "=", "a=x,,b")],
)
async def test_a_label_selector_that_is_none_is_refused(api, selector):
    reply = await api.get(PODS, labelSelector=selector)

    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")


async def test_a_second_default_priority_class_is_refused(api):
    await api.create(CLASSES, {"metadata": {"name": "one"}, "value": 1, "globalDefault": True})

    reply = await api.send(
        "POST", CLASSES, {"metadata": {"name": "two"}, "value": 2, "globalDefault": True}
    )

    assert reply.code == 403
    assert "one is already marked as default" in reply.message
