"""What helm makes of the chart: objects that a real API server takes, or a sentence."""

import itertools
import tarfile

import pytest
import yaml

from policyd import __version__
from policyd.api.crd_v1beta1 import old_versions
from policyd.cli.bootstrap import default_policies
from policyd.config import load_configuration
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.policy_files import KUSTOMIZATION, policy_files
from tests.charts import release
from tests.charts.release import CHART, NAMESPACE, RELEASE
from tests.docs.pages import blocks
from tests.histories import accounts
from tests.live.server import definition

pytestmark = pytest.mark.e2e

LIBRARY = CHART.parents[1] / "policies"
SERVICE_MONITORS = definition("monitoring.coreos.com", ["v1"], "ServiceMonitor", "servicemonitors")
RULES = definition("monitoring.coreos.com", ["v1"], "PrometheusRule", "prometheusrules")
"""Stand-ins for the Prometheus operator's kinds."""

EVERYTHING = {
    "commonLabels": {"team": "platform"},
    "controller.affinity": {"nodeAffinity": {}},
    "background.enabled": True,
    "background.act": True,
    "background.generates": [{"apiGroup": "", "version": "v1", "resources": ["resourcequotas"]}],
    "background.mutates": [{"apiGroup": "", "version": "v1", "resources": ["services"]}],
    "background.deletes": [{"apiGroup": "batch", "version": "v1", "resources": ["jobs"]}],
    "background.reads": [{"apiGroup": "", "version": "v1", "resources": ["configmaps"]}],
    "background.triggers": [{"apiGroup": "apps", "resources": ["deployments"]}],
    "controller.configuration": {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    },
    "controller.featureGates": {"PriorityBoost": True, "MultiKueue": False},
    "controller.extraArgs": ["--no-leader-election"],
    "controller.podAnnotations": {"a": "b"},
    "controller.verbose": True,
    "controller.visibility.enabled": True,
    "dashboard.enabled": True,
    "dashboard.extraArgs": ["--client-ca=/ca"],
    "dashboard.from": [{"podSelector": {"matchLabels": {"a": "b"}}}],
    "dashboard.hostNames": ["queues.example"],
    "dashboard.proxy.existingSecret": "proxy",
    "dashboard.service.annotations": {"a": "b"},
    "idleNotebooks.enabled": True,
    "idleNotebooks.namespaces": ["default"],
    "idleNotebooks.prometheus": "http://prometheus.monitoring:9090",
    "image.digest": f"sha256:{'0' * 64}",
    "imagePullSecrets": [{"name": "pull"}],
    "metrics.dashboards.annotations": {"grafana_folder": "policyd"},
    "metrics.dashboards.enabled": True,
    "metrics.enabled": True,
    "metrics.rules.enabled": True,
    "metrics.rules.labels": {"release": "prometheus"},
    "metrics.serviceMonitor.enabled": True,
    "metrics.serviceMonitor.labels": {"release": "prometheus"},
    "networkPolicy.enabled": True,
    "networkPolicy.metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
    "policies.enabled": True,
    "policies.enforcement": "Warn",
    "priorityClassName": "",
    "webhooks.extraArgs": ["--host=::"],
    "webhooks.hostNetwork": True,
    "webhooks.callers.existingConfigMap": "callers",
    "webhooks.callers.names": ["kube-apiserver", "a, b"],
    "webhooks.nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "webhooks.podDisruptionBudget.maxUnavailable": "50%",
    "webhooks.podLabels": {"a": "b"},
    "webhooks.registryCredentials.existingSecret": "registries",
    "webhooks.resources": {},
    "webhooks.serveV1beta1": True,
    "webhooks.service.annotations": {"a": "b"},
    "webhooks.serviceAccountAnnotations": {"a": "b"},
    "webhooks.tolerations": [{"operator": "Exists"}],
    "webhooks.topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
        }
    ],
}
NOTHING = {
    "controller.enabled": False,
    "controller.podDisruptionBudget.enabled": False,
    "userRoles.enabled": False,
    "webhooks.podDisruptionBudget.enabled": False,
    "webhooks.certificate.existingSecret": "given",
}


@pytest.fixture(scope="module")
def server(bare):
    """An API server that knows every kind of the chart, those of other projects too."""
    bare.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([SERVICE_MONITORS, RULES]))
    bare.wait_for("crd", "--all", condition="condition=Established")
    return bare


def rendered(folder, values=None, *options):
    """Return the objects that helm makes, by kind and name."""
    given = release.set_values(values or {})
    done = release.helm(
        *("template", RELEASE, CHART, f"--namespace={NAMESPACE}", *given, *options), folder=folder
    )
    assert done.code == 0, done.err
    found = [item for item in yaml.safe_load_all(done.out) if item]
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(by_name) == len(found), "no object is there twice"
    return by_name


def arguments(objects, component):
    deployment = objects["Deployment", f"{RELEASE}-{component}"]
    return deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_chart_passes_helms_own_checks(tmp_path):
    done = release.helm("lint", "--strict", CHART, folder=tmp_path)

    assert done.code == 0, done.out
    assert "WARNING" not in done.out


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        pytest.param({}, {"Deployment", "PodDisruptionBudget", "Secret", "Lease"}, id="defaults"),
        pytest.param(
            EVERYTHING,
            {"NetworkPolicy", "Policy", "ServiceMonitor", "PrometheusRule"},
            id="everything",
        ),
        pytest.param(NOTHING, {"Deployment", "Service"}, id="nothing-but-the-webhooks"),
        pytest.param({"fullnameOverride": "gate"}, {"Deployment"}, id="another-name"),
    ],
)
def test_the_api_server_takes_what_is_rendered(server, tmp_path, values, kinds):
    objects = rendered(tmp_path, values)
    text = yaml.safe_dump_all(objects.values())

    taken = server.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "-f", "-", "-o=name"), stdin=text
    )

    assert len(taken.split()) == len(objects)
    assert kinds <= {kind for kind, _ in objects}


def test_rules_and_dashboards_are_those_of_the_files(tmp_path):
    switched = {"metrics.rules.enabled": True, "metrics.dashboards.enabled": True}
    objects, without = rendered(tmp_path, switched), rendered(tmp_path)

    given = yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text())
    assert objects["PrometheusRule", RELEASE]["spec"] == given
    for file in (CHART / "dashboards").glob("*.json"):
        found = objects["ConfigMap", f"{RELEASE}-dashboard-{file.stem}"]
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["data"] == {f"policyd-{file.name}": file.read_text().rstrip("\n")}
    assert not [key for key in without if key[0] == "PrometheusRule" or "dashboard" in key[1]]


def test_without_a_controller_no_alert_misses_it(tmp_path):
    objects = rendered(tmp_path, {"metrics.rules.enabled": True, "controller.enabled": False})

    groups = objects["PrometheusRule", RELEASE]["spec"]["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert "PolicydWebhooksDown" in alerts
    assert "PolicydLeaderMissing" not in alerts


def test_another_configuration_is_mounted_and_starts_new_pods(tmp_path):
    key = "controller.configuration"
    configurations = [EVERYTHING[key], EVERYTHING[key] | {"featureGates": {"PriorityBoost": True}}]

    before, after = (rendered(tmp_path, {key: each}) for each in configurations)

    name = f"{RELEASE}-controller"
    assert "--config=/configuration/configuration.yaml" in arguments(before, "controller")
    assert [
        load_configuration(_file(tmp_path, each["ConfigMap", name])).feature_gates
        for each in (before, after)
    ] == [None, {"PriorityBoost": True}]
    pods = [each["Deployment", name]["spec"]["template"]["metadata"] for each in (before, after)]
    assert pods[0]["annotations"] != pods[1]["annotations"]


def test_feature_gates_reach_both_processes(tmp_path):
    objects = rendered(tmp_path, {"controller.featureGates": {"B": True, "A": False}})

    for process in ("controller", "webhooks"):
        assert "--feature-gates=A=false,B=true" in arguments(objects, process)


def _file(folder, config_map):
    file = folder / "configuration.yaml"
    file.write_text(config_map["data"]["configuration.yaml"])
    return str(file)


def test_positions_and_snapshots_are_served_through_the_api_server(tmp_path):
    objects = rendered(tmp_path, {"controller.visibility.otherTeams": "team"})

    services = {
        name: body["spec"] for (kind, name), body in objects.items() if kind == "APIService"
    }
    assert services.keys() == {
        "v1beta2.visibility.kueue.x-k8s.io",
        "v1alpha1.visibility.policyd.io",
    }
    (called,) = {each["service"]["name"] for each in services.values()}
    assert ("Service", called) in objects
    assert objects["RoleBinding", called]["metadata"]["namespace"] == "kube-system"
    assert {"--visibility-port=8082", "--other-teams=team"} <= {*arguments(objects, "controller")}


def test_positions_are_served_in_the_older_version_on_request(tmp_path):
    objects = rendered(tmp_path, {"webhooks.serveV1beta1": True})

    assert ("APIService", "v1beta1.visibility.kueue.x-k8s.io") in objects


def test_neither_is_served_if_that_is_switched_off(tmp_path):
    objects = rendered(tmp_path, {"controller.visibility.enabled": False})

    assert not [name for kind, name in objects if kind == "APIService"]
    assert not any("visibility" in word for word in arguments(objects, "controller"))
    assert "--no-queue-snapshots" in arguments(objects, "webhooks")
    assert "admissionsnapshots" not in str(objects["ClusterRole", f"{RELEASE}-webhooks"])


def test_the_webhooks_may_read_the_snapshot_that_is_made_for_them_and_no_other(tmp_path):
    objects = rendered(tmp_path)

    rules = objects["ClusterRole", f"{RELEASE}-webhooks"]["rules"]
    (rule,) = (each for each in rules if "visibility.policyd.io" in each["apiGroups"])
    assert "--no-queue-snapshots" not in arguments(objects, "webhooks")
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (
        ["admissionsnapshots"],
        ["current"],
        ["get"],
    )


def test_the_page_may_ask_who_somebody_is_and_read_snapshots_and_nothing_else(tmp_path):
    objects = rendered(tmp_path, {"dashboard.enabled": True})

    rules = objects["ClusterRole", f"{RELEASE}-dashboard"]["rules"]
    assert {(each["resources"][0], *each["verbs"]) for each in rules} == {
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
        ("queuesnapshots", "get"),
        ("localqueues", "list"),
    }
    assert policy_of(objects, "dashboard") == {}
    assert ("Deployment", f"{RELEASE}-dashboard") not in rendered(tmp_path)


def test_names_of_the_page_are_reached_over_tls(tmp_path):
    named = rendered(tmp_path, {"dashboard.enabled": True, "dashboard.hostNames": ["a.example"]})

    assert {"--host-name=a.example", "--behind-tls"} <= set(arguments(named, "dashboard"))
    plain = arguments(rendered(tmp_path, {"dashboard.enabled": True}), "dashboard")
    assert "--behind-tls" not in plain
    assert "--tokens" in plain


def test_the_page_asks_each_webhook_for_its_counts(tmp_path):
    values = {"dashboard.enabled": True, "webhooks.metricsPort": 9555}
    objects = rendered(tmp_path, values)
    counts = objects["Service", f"{RELEASE}-webhooks-counts"]["spec"]
    pod = objects["Deployment", f"{RELEASE}-webhooks"]["spec"]["template"]
    page = objects["Deployment", f"{RELEASE}-dashboard"]["spec"]["template"]

    assert counts["clusterIP"] == "None"
    assert counts["selector"].items() <= pod["metadata"]["labels"].items()
    assert counts["ports"] == [{"name": "metrics", "port": 9555, "targetPort": "metrics"}]
    asked = f"--webhook-metrics={RELEASE}-webhooks-counts:9555"
    assert asked in arguments(objects, "dashboard")
    (peer,) = policy_of(objects, "webhooks")["metrics"]
    assert peer["podSelector"]["matchLabels"].items() <= page["metadata"]["labels"].items()
    assert ("Service", f"{RELEASE}-webhooks-counts") not in rendered(tmp_path)


def policy_of(objects, component):
    spec = objects["NetworkPolicy", f"{RELEASE}-{component}"]["spec"]
    return {each["ports"][0]["port"]: each.get("from") for each in spec["ingress"] or ()}


def test_nobody_but_nodes_reaches_metrics_unless_configured(tmp_path):
    objects = rendered(tmp_path, {"controller.visibility.enabled": True})

    assert policy_of(objects, "webhooks") == {"https": None}
    assert policy_of(objects, "controller") == {"visibility": None}


def test_the_scraper_and_the_api_servers_address_are_configurable(tmp_path):
    scrapes = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
    calls = [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    values = {"networkPolicy.metricsFrom": scrapes, "networkPolicy.apiServerFrom": calls}
    objects = rendered(tmp_path, {**values, "controller.visibility.enabled": True})

    assert policy_of(objects, "webhooks") == {"https": calls, "metrics": scrapes}
    assert policy_of(objects, "controller") == {"health": scrapes, "visibility": calls}


def test_the_api_server_alone_is_answered_where_its_authority_is_given(tmp_path):
    values = {"webhooks.callers.existingConfigMap": "mine", "webhooks.callers.names": ["a", "b"]}
    objects = rendered(tmp_path, values)
    pod = objects["Deployment", f"{RELEASE}-webhooks"]["spec"]["template"]["spec"]

    asked = arguments(objects, "webhooks")
    assert {"--client-ca=/callers/ca.crt", "--client-names=a", "--client-names=b"} <= set(asked)
    assert {"name": "callers", "configMap": {"name": "mine"}} in pod["volumes"]
    assert "/callers" in [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]


def test_without_the_queue_the_webhook_holds_no_jobs(tmp_path):
    objects = rendered(tmp_path, NOTHING)

    assert "--no-queue" in arguments(objects, "webhooks")
    assert not [name for kind, name in objects if "controller" in name]


def test_a_given_certificate_needs_no_right_to_secrets(tmp_path):
    objects = rendered(tmp_path, {"webhooks.certificate.existingSecret": "given"})

    assert "--authority=/certificate/ca.crt" in arguments(objects, "webhooks")
    assert not [1 for kind, name in objects if kind == "Secret"]
    assert ("Role", f"{RELEASE}-webhooks") not in objects


def test_passwords_of_registries_are_mounted_where_they_are_read(tmp_path):
    objects = rendered(tmp_path, {"webhooks.registryCredentials.existingSecret": "given"})
    pod = objects["Deployment", f"{RELEASE}-webhooks"]["spec"]["template"]["spec"]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] != "tmp")
    (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])

    assert volume["secret"]["secretName"] == "given"
    file = f"{mount['mountPath']}/.dockerconfigjson"
    assert f"--registry-credentials={file}" in arguments(objects, "webhooks")


@pytest.mark.parametrize(
    ("release_name", "values", "expected"),
    [
        pytest.param("policyd", {}, "policyd-webhooks", id="the-charts-name"),
        pytest.param("gpu-policyd", {}, "gpu-policyd-webhooks", id="has-the-charts-name"),
        pytest.param("gate", {}, "gate-policyd-webhooks", id="another"),
        pytest.param("gate", {"nameOverride": "x"}, "gate-x-webhooks", id="name-overridden"),
        pytest.param("gate", {"fullnameOverride": "x"}, "x-webhooks", id="all-overridden"),
    ],
)
def test_objects_are_named_for_the_release(tmp_path, release_name, values, expected):
    given = release.set_values(values)

    done = release.helm("template", release_name, CHART, *given, folder=tmp_path)

    found = [item for item in yaml.safe_load_all(done.out) if item]
    assert expected in release.names([item for item in found if item["kind"] == "Deployment"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, f"registry.example/policyd:{__version__}", id="the-charts-version"),
        pytest.param({"image.tag": "main"}, "registry.example/policyd:main", id="a-tag"),
        pytest.param(
            {"image.tag": "main", "image.digest": f"sha256:{'a' * 64}"},
            f"registry.example/policyd@sha256:{'a' * 64}",
            id="a-digest-wins",
        ),
    ],
)
def test_the_image_is(tmp_path, values, expected):
    for component in ("webhooks", "controller"):
        deployment = rendered(tmp_path, values)["Deployment", f"{RELEASE}-{component}"]

        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == expected


def test_the_guide_gives_the_same_rights_and_those_to_create(tmp_path):
    by_hand = rights_of(in_guide("accounts.yaml"))
    by_chart = rights_of(rendered(tmp_path, {"userRoles.enabled": False}).values())

    assert by_chart <= by_hand
    assert {(resource, verb) for _, _, resource, verb in by_hand - by_chart} == {
        ("leases", "create"),
        ("mutatingwebhookconfigurations", "create"),
        ("secrets", "create"),
        ("validatingwebhookconfigurations", "create"),
    }


def test_the_guide_gives_a_manager_of_multi_kueue_the_rights_that_the_chart_does(tmp_path):
    by_hand = rights_of(in_guide("multikueue.yaml"))
    given = {"controller.multiKueue.enabled": True}
    by_chart = rights_of(rendered(tmp_path, given).values()) - rights_of(
        rendered(tmp_path).values()
    )

    assert {right[1:] for right in by_hand} == {right[1:] for right in by_chart}


def in_guide(file):
    """Return the objects of a file that the guide to a cluster has a reader save."""
    guide = CHART.parents[1] / "docs" / "guides" / "run-on-a-cluster.md"
    text = next(block.text for block in blocks(guide) if block.remark == file)
    return [item for item in yaml.safe_load_all(text) if item]


def test_owners_may_be_looked_up_where_everybody_is_believed_of_them(tmp_path):
    without = rights_of(rendered(tmp_path).values())
    given = rights_of(rendered(tmp_path, {"ownerReferences": "trust"}).values())

    kinds = {(kind.group, kind.plural, "get") for kind in (*KINDS, *PARENTS)}
    assert {right[1:] for right in given - without} == kinds


def test_the_kinds_of_params_that_are_listed_may_be_read(tmp_path):
    kinds = [
        {"apiGroup": "", "resource": "configmaps"},
        {"apiGroup": "example.com", "resource": "limits"},
    ]

    without = rights_of(rendered(tmp_path).values())
    given = rights_of(rendered(tmp_path, {"webhooks.paramKinds": kinds}).values())

    assert {right[1:] for right in given - without} == {
        (kind["apiGroup"], kind["resource"], verb) for kind in kinds for verb in ("list", "watch")
    }


def test_params_of_one_namespace_may_be_read_there_only(tmp_path):
    kinds = [{"apiGroup": "", "resource": "configmaps", "namespace": "rules"}]

    values = {"webhooks.paramKinds": kinds, "reports.enabled": True}
    objects = rendered(tmp_path, values).values()

    reading = [
        item
        for item in objects
        for rule in item.get("rules", [])
        if "configmaps" in rule["resources"] and "resourceNames" not in rule
    ]
    assert {(item["kind"], item["metadata"]["namespace"]) for item in reading} == {
        ("Role", "rules")
    }
    bound = {
        item["roleRef"]["name"]: item["subjects"][0]["name"]
        for item in objects
        if item["kind"] == "RoleBinding" and item["metadata"]["namespace"] == "rules"
    }
    assert bound == {
        f"{name}-params-0": name for name in ("policyd-controller", "policyd-webhooks")
    }


def test_policies_may_ask_the_authorizer_if_that_is_switched_on(tmp_path):
    without = rights_of(rendered(tmp_path).values())
    given = rights_of(rendered(tmp_path, {"webhooks.authorizer": True}).values())

    assert {right[1:] for right in given - without} == {
        ("authorization.k8s.io", "subjectaccessreviews", "create")
    }


def test_kyvernos_policies_are_read_if_that_is_switched_on(tmp_path):
    without = rights_of(rendered(tmp_path).values())
    given = rights_of(rendered(tmp_path, {"webhooks.kyverno": True}).values())

    assert {right[1] for right in given - without} == {"policies.kyverno.io", "kyverno.io"}
    assert {right[3] for right in given - without} == {"list", "watch", "patch"}
    changed = {right for right in given - without if right[3] == "patch"}
    assert {right[0] for right in changed} == {
        right[0] for right in given if "webhooks" in right[0]
    }
    assert all(right[2].endswith("/status") for right in changed)


def test_the_older_version_takes_the_right_to_change_kueues_kinds_and_no_others(tmp_path):
    values = {"webhooks.serveV1beta1": True}
    without, given = rendered(tmp_path), rendered(tmp_path, values)

    added = rights_of(given.values()) - rights_of(without.values())
    role = given["ClusterRole", "policyd-webhooks"]
    rule = next(r for r in role["rules"] if r["apiGroups"] == ["apiextensions.k8s.io"])

    definitions = ("apiextensions.k8s.io", "customresourcedefinitions")
    assert {right[1:] for right in added} == {(*definitions, verb) for verb in ("get", "patch")}
    assert rule["resourceNames"] == sorted(old_versions())
    asked = [*arguments(given, "webhooks")]
    asked.remove("--serve-v1beta1")
    assert asked == arguments(without, "webhooks")


def test_reports_take_rights_to_list_and_to_write_them(tmp_path):
    values = {
        "reports.enabled": True,
        "reports.apiGroups": ["openreports.io"],
        "reports.resources": [{"apiGroup": "apps", "resources": ["deployments"]}],
    }

    without = rights_of(rendered(tmp_path).values())
    given = rights_of(rendered(tmp_path, values).values()) - without

    group = "openreports.io"
    assert {right[1:] for right in given if right[0].endswith("controller")} == {
        ("apps", "deployments", "list"),
        ("resource.k8s.io", "resourceclaims", "list"),
        ("resource.k8s.io", "resourceclaimtemplates", "list"),
        *((group, "reports", verb) for verb in ("get", "list", "create", "update", "delete")),
        *((group, "clusterreports", verb) for verb in ("get", "create", "update", "delete")),
    }
    assert {right[1:] for right in given if right[0].endswith("webhooks")} == {
        (group, resource, verb)
        for resource in ("reports", "clusterreports")
        for verb in ("get", "create", "update")
    }


def rights_of(objects):
    """Return every right that roles give, with the role's name."""
    return {
        (item["metadata"]["name"], group, resource, verb)
        for item in objects
        for rule in item.get("rules", [])
        for group, resource, verb in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"]
        )
    }


def defaults():
    """The library's policies that are installed unless others are chosen, by name."""
    return {policy["metadata"]["name"]: policy for policy in default_policies(LIBRARY)}


def policies(objects):
    return {name: item for (kind, name), item in objects.items() if kind == "Policy"}


def test_files_of_the_kustomization_are_installed_unchanged(tmp_path):
    installed = policies(rendered(tmp_path, {"policies.enabled": True}))

    assert {name: item["spec"] for name, item in installed.items()} == {
        name: item["spec"] for name, item in defaults().items()
    }


def test_others_of_the_library_are_installed_beside_them(tmp_path):
    values = {
        "policies.enabled": True,
        "policies.also": ["gpu-sizes"],
        "policies.exclude": ["spot"],
    }

    installed = policies(rendered(tmp_path, values))

    assert set(installed) == {*defaults(), "gpu-sizes"} - {"spot"}


def test_no_policy_is_installed_unless_asked_for(tmp_path):
    assert policies(rendered(tmp_path)) == {}


def test_all_policies_may_begin_with_warnings(tmp_path):
    values = {"policies.enabled": True, "policies.enforcement": "Warn"}

    installed = policies(rendered(tmp_path, values))

    assert {item["spec"]["enforcement"] for item in installed.values()} == {"Warn"}


def test_policies_are_chosen_by_name(tmp_path):
    some = ["gang-labels", "spot"]
    values = {"policies.enabled": True, "policies.only": some, "policies.exclude": ["spot"]}

    assert set(policies(rendered(tmp_path, values))) == {"gang-labels"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"webhook.replicas": 2}, ["'webhook' not allowed"], id="misspelt"),
        pytest.param(
            {"webhooks.replicas": "two"},
            ["/webhooks/replicas", "got string, want integer"],
            id="type",
        ),
        pytest.param(
            {"webhooks.timeoutSeconds": 60}, ["/webhooks/timeoutSeconds", "want 30"], id="too-long"
        ),
        pytest.param({"webhooks.port": 0}, ["/webhooks/port"], id="no-port"),
        pytest.param({"image.repository": ""}, ["/image/repository"], id="no-image"),
        pytest.param(
            {"policies.enforcement": "deny"},
            ["/policies/enforcement", "'Deny', 'Warn', 'Audit'"],
            id="enforcement",
        ),
        pytest.param(
            {"policies.enabled": True, "policies.only": ["gangs"]},
            ["no policy `gangs` in the library, which has", "gang-labels"],
            id="unknown-policy",
        ),
        pytest.param({"webhooks.extraArgs": ["host"]}, ["/webhooks/extraArgs/0"], id="no-option"),
        pytest.param({"fullnameOverride": "A_b"}, ["/fullnameOverride"], id="no-name"),
    ],
)
def test_a_bad_value_is_refused_in_words(tmp_path, values, words):
    given = release.set_values(values)

    done = release.helm("template", RELEASE, CHART, *given, folder=tmp_path)

    assert done.code != 0
    assert [word for word in words if word not in done.err] == []


def test_a_package_has_the_policies_and_not_their_cases(tmp_path):
    done = release.helm("package", CHART, folder=tmp_path)
    assert done.code == 0, done.err

    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        names = {name.removeprefix("policyd/") for name in package.getnames()}

    assert {name for name in names if name.startswith("policies/")} == {
        f"policies/{file.relative_to(LIBRARY)}"
        for file in [LIBRARY / KUSTOMIZATION, *policy_files([LIBRARY])]
    }
    assert "image/Dockerfile" not in names
    assert {"README.md", "values.schema.json"} <= names


def test_a_package_renders_what_the_folder_renders(tmp_path):
    values = release.set_values({"policies.enabled": True})
    release.helm("package", CHART, folder=tmp_path)
    package = next(tmp_path.glob("*.tgz"))

    texts = [
        release.helm("template", RELEASE, where, *values, folder=tmp_path).out
        for where in (CHART, package)
    ]

    assert texts[0]
    assert texts[0] == texts[1]


def idle_notebooks(**values):
    given = {
        "idleNotebooks.enabled": True,
        "idleNotebooks.namespaces": ["team-a"],
        "idleNotebooks.prometheus": "http://prometheus.monitoring:9090",
        **values,
    }
    return [
        each
        for each in release.rendered(given)
        if each["metadata"]["name"] == f"{RELEASE}-idle-notebooks"
    ]


def test_idle_notebooks_are_stopped_by_an_account_of_their_own_once_that_is_wanted():
    trial, real = (idle_notebooks(**{"idleNotebooks.dryRun": dry}) for dry in (True, False))

    kinds = {each["kind"]: each["metadata"].get("namespace") for each in real}
    assert kinds == {
        "ServiceAccount": NAMESPACE,
        "CronJob": NAMESPACE,
        "Role": "team-a",
        "RoleBinding": "team-a",
        "ValidatingAdmissionPolicy": None,
        "ValidatingAdmissionPolicyBinding": None,
    }
    verbs = [
        {
            verb
            for each in items
            if each["kind"] == "Role"
            for r in each["rules"]
            for verb in r["verbs"]
        }
        for items in (trial, real)
    ]
    assert verbs == [{"get"}, {"get", "create", "patch"}]
    assert not [e for e in release.rendered({}) if "idle" in e["metadata"]["name"]]


def test_histories_judge_by_the_roles_and_policies_of_the_chart():
    """If this fails: `python -m tests.histories.accounts`."""
    assert accounts.FILE.read_text() == accounts.rendered()
