"""A release from its installation to its end: nothing is lost, and nothing blocks afterwards."""

import copy
import json
from contextlib import ExitStack
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import yaml

from tests.charts import release
from tests.charts.conftest import WEBHOOKS, installation
from tests.charts.release import CHART, NAMESPACE, RELEASE
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD, HOST
from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import pod

pytestmark = pytest.mark.e2e

WITHOUT_PODS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CONFIGURATION_NAME = "admission.policyd.io"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with installation(tmp_path_factory.mktemp("release"), components=WITHOUT_PODS) as installed:
        yield installed


def webhooks(control_plane):
    """What both configurations have the API server call, by the webhooks' names."""
    found = [
        json.loads(control_plane.kubectl("get", kind, CONFIGURATION_NAME, "-o=json"))
        for kind in CONFIGURATIONS
    ]
    return {w["name"]: w for item in found for w in item.get("webhooks", [])}


def registered(control_plane):
    """Which of the two configurations are there."""
    return [
        name
        for kind in CONFIGURATIONS
        for name in release.names(release.objects(control_plane, kind))
    ]


def unready(running):
    """Say why the webhooks are not ready; nothing if they are, or do not answer yet."""
    port = running.values["webhooks.metricsPort"]
    try:
        urlopen(f"http://{HOST}:{port}/readyz")
    except HTTPError as error:
        return error.read().decode()
    except URLError:
        pass
    return ""


def certificate(control_plane):
    found = control_plane.kubectl("get", "secret", WEBHOOKS, "-n", NAMESPACE, "-o=json")
    return json.loads(found)["data"]


def refuse_all(name):
    """A policy that refuses every pod of the teams, and holds if nobody answers."""
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"policyd.io/team": "team-b"}},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            },
            "validations": [{"expression": "false", "message": "no pod may be made"}],
            "failurePolicy": "Fail",
        },
    }


def refused(api):
    """Say why a pod of team-b is refused; nothing if it is not."""
    try:
        api.create(pod("probe", "team-b", gpus=0), dry_run=True)
    except Refused as refusal:
        return refusal.message
    return ""


def test_an_upgrade_keeps_certificate_and_webhooks(running):
    before = certificate(running.control_plane), webhooks(running.control_plane)
    assert all(before)

    changed = running.values | {"controller.workers": 4, "commonLabels": {"a": "b"}}
    running.helm("upgrade", RELEASE, CHART, *release.set_values(changed))

    assert (certificate(running.control_plane), webhooks(running.control_plane)) == before
    assert "--workers=4" in release.deployed_command(running.control_plane, "policyd-controller")


def test_the_way_out_stays_open_until_an_upgrade(running):
    api, control_plane = running.api, running.control_plane
    api.create(refuse_all("closed"))
    eventually(lambda: "no pod may be made" in refused(api), what="the policy holds")

    for kind in CONFIGURATIONS:
        control_plane.kubectl("delete", kind, CONFIGURATION_NAME)
    api.delete("Policy", "closed")
    api.create(refuse_all("closed-again"))
    eventually(
        lambda: "configurations_missing" in running.webhooks.log.read_text(), what="it may not"
    )

    assert registered(control_plane) == []
    assert refused(api) == ""

    running.webhooks.stop()
    running.webhooks.start()
    eventually(lambda: "`helm upgrade` brings them back" in unready(running), what="it says why")

    running.helm("upgrade", RELEASE, CHART, *release.set_values(running.values))

    eventually(lambda: "no pod may be made" in refused(api), what="the policy holds again")
    api.delete("Policy", "closed-again")


def test_an_uninstall_leaves_kinds_and_queues_and_nothing_that_blocks(tmp_path):
    with installation(tmp_path, components=WITHOUT_PODS) as installed:
        api, control_plane = installed.api, installed.control_plane
        api.create(refuse_all("closed"))
        eventually(lambda: "no pod may be made" in refused(api), what="the policy holds")
        log_before = len(installed.webhooks.log.read_text())

        installed.helm("uninstall", RELEASE)

        # The pods end later than the release: a policy that goes has them register once more.
        api.delete("Policy", "closed")
        eventually(
            lambda: "registration_failed" in installed.webhooks.log.read_text()[log_before:],
            what="the webhook may no longer register",
        )
        assert registered(control_plane) == []
        assert refused(api) == ""
        assert left(control_plane) == set()
        assert len(api.find("ClusterQueue")) == 2
        assert "policies.policyd.io" in release.names(release.objects(control_plane, "crds"))


def left(control_plane):
    """What an uninstall has left of the release, in its namespace and outside."""
    inside = "deployments,services,secrets,serviceaccounts,leases,roles,rolebindings,pdb"
    outside = "clusterroles,clusterrolebindings,policies"
    found = [
        *release.objects(control_plane, inside, "-n", NAMESPACE),
        *release.objects(control_plane, outside),
    ]
    return {name for name in release.names(found) if name.startswith(RELEASE)}


@pytest.fixture
def kinds(bare):
    """The chart's kinds by name, on a server where a test may change them."""
    files = [yaml.safe_load(file.read_text()) for file in (CHART / "crds").glob("*.yaml")]
    ours = {kind["metadata"]["name"]: kind for kind in files}
    with ExitStack() as stack:
        restored = yaml.safe_dump_all(ours.values())
        stack.callback(bare.kubectl, "apply", "-f", "-", stdin=restored)
        yield ours


@pytest.fixture
def release_on(bare):
    """A server with a release that nothing runs of."""
    yield bare
    release.on(bare, "uninstall", RELEASE)


def test_kinds_that_are_there_are_used_as_they_are(release_on, kinds):
    other = copy.deepcopy(kinds["cohorts.kueue.x-k8s.io"])
    older = copy.deepcopy(other["spec"]["versions"][0]) | {"name": "v1beta1", "storage": False}
    other["spec"]["versions"].append(older)
    release_on.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(other))

    notes = release.on(release_on, "install", RELEASE, CHART)

    found = json.loads(release_on.kubectl("get", "crd", "cohorts.kueue.x-k8s.io", "-o=json"))
    assert [v["name"] for v in found["spec"]["versions"]] == ["v1beta2", "v1beta1"]
    assert "these CustomResourceDefinitions are missing or outdated" not in notes


def test_an_outdated_kind_is_named_with_what_to_do(release_on, kinds):
    name = "policies.policyd.io"
    old = copy.deepcopy(kinds[name])
    del old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del old["spec"]["versions"][0]["subresources"]
    release_on.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(old))
    command = "apply --server-side --force-conflicts -f"

    notes = release.on(release_on, "install", RELEASE, CHART)

    named = [line.split()[-1] for line in notes.splitlines() if command in line]
    assert named == ["crds/policyd.io_policies.yaml"]
    release_on.kubectl(*command.split(), str(CHART / named[0]))
    assert command not in release.on(release_on, "upgrade", RELEASE, CHART)


def test_full_schemas_that_are_wanted_and_not_there_are_named(release_on, kinds):
    command = "apply --server-side --force-conflicts -f"
    full = (RELEASE, CHART, "--set", "crds.schema=full")

    notes = release.on(release_on, "install", *full)

    named = [line.split()[-1] for line in notes.splitlines() if command in line]
    folder = CHART / "full-crds"
    assert {CHART / name for name in named} == set(folder.glob("*.yaml"))
    assert len(named) == len([kind for kind in kinds if not kind.endswith("policyd.io")])
    for name in named:
        release_on.kubectl(*command.split(), str(CHART / name))
    assert command not in release.on(release_on, "upgrade", *full)


def test_a_kind_that_is_missing_at_an_upgrade_is_named(release_on):
    release.on(release_on, "install", RELEASE, CHART)
    release_on.kubectl("delete", "crd", "policybindings.policyd.io")

    notes = release.on(release_on, "upgrade", RELEASE, CHART)

    assert "-f crds/policyd.io_policybindings.yaml" in notes


def test_a_second_release_is_refused(release_on, tmp_path):
    release.on(release_on, "install", RELEASE, CHART)
    to = {"kubeconfig": release_on.kubeconfig, "folder": tmp_path}

    done = release.helm("install", "other", CHART, "--namespace=default", **to)

    assert done.code != 0
    assert 'must equal "default": current value is "policyd-system"' in done.err
    assert RELEASE in done.err


def test_the_notes_say_what_to_do_next(release_on):
    notes = release.on(release_on, "install", RELEASE, CHART)

    assert "policies.enforcement=Warn" in notes
    assert "`image.repository` is not set" in notes
    kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    assert f"kubectl delete {kinds} {CONFIGURATION_NAME}" in notes
