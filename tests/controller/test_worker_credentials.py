"""Programs of the Configuration that get credentials for workers: what they get, and may answer."""

import asyncio
import json
import stat
import sys

import pytest

from policyd.api.configuration.kinds import AccessProvider, EnvironmentVariable, ExecConfig
from policyd.clock import SystemClock
from policyd.controller.multikueue import credentials
from policyd.controller.multikueue.remotes import PROFILES
from policyd.kube import resources as r
from policyd.kube.errors import CredentialsError
from policyd.multikueue.connections import ConnectionConfig, read_profile
from tests.controller.clusters import NAMESPACE, Manager, clusters, job, where
from tests.controller.world import condition

pytestmark = pytest.mark.anyio

VERSION = "client.authentication.k8s.io/v1"
ANSWER = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "t1"}}


@pytest.fixture
def program(tmp_path):
    """Return a program, as the Configuration names it, that does what Python lines say."""

    def program(*lines, **more):
        file = tmp_path / "plugin"
        file.write_text("\n".join([f"#!{sys.executable} -I", "import json, os, sys", *lines]))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return ExecConfig(**{"command": str(file), "api_version": VERSION, **more})

    return program


def prints(answer):
    return f"print({json.dumps(json.dumps(answer))})"


async def header(program, **more):
    config = ConnectionConfig(host="http://worker", runs=True, program=program, **more)
    connection = credentials.connection_to(config, SystemClock())
    return await connection.credentials.authorization()


async def test_the_token_of_a_program_is_sent(program):
    assert await header(program(prints(ANSWER))) == "Bearer t1"


async def test_a_program_gets_what_the_configuration_says_and_the_cluster_and_no_more(
    program, monkeypatch
):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the controller")
    answer = (
        "{**%r, 'status': {'token': json.dumps([sys.argv[1:], dict(os.environ)]).encode().hex()}}"
    )
    chosen = program(
        f"print(json.dumps({answer % ANSWER}))",
        args=("--now",),
        env=(EnvironmentVariable("REGION", "eu"),),
        provide_cluster_info=True,
    )

    found = await header(chosen, authority=b"", program_config={"clientId": "7"})

    arguments, environment = json.loads(bytes.fromhex(found.removeprefix("Bearer ")))
    about = json.loads(environment.pop("KUBERNETES_EXEC_INFO"))
    assert arguments == ["--now"]
    environment.pop("LC_CTYPE", None)  # of Python itself
    assert environment == {"PATH": credentials.SEARCH_PATH, "REGION": "eu"}
    assert about["spec"] == {
        "interactive": False,
        "cluster": {"server": "http://worker", "config": {"clientId": "7"}},
    }


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(["sys.exit(3)"], "ended with code 3", id="it-fails"),
        pytest.param(["print('{')"], "not an ExecCredential", id="no-json"),
        pytest.param([prints({**ANSWER, "kind": "Pod"})], "not an ExecCredential", id="kind"),
        pytest.param([prints({**ANSWER, "apiVersion": "v2"})], f"of {VERSION}", id="version"),
        pytest.param([prints({**ANSWER, "status": {}})], "no credential", id="nothing"),
        pytest.param([prints({**ANSWER, "status": {"token": 7}})], "ExecCredential", id="number"),
        pytest.param(
            [prints({**ANSWER, "status": {"token": "t\r\nX: y"}})], "characters", id="two-lines"
        ),
        pytest.param(
            [prints({**ANSWER, "status": {"token": "t", "expirationTimestamp": "soon"}})],
            "not an ExecCredential",
            id="expires-at-no-time",
        ),
        pytest.param(["print('x' * 300_000)"], "more than 262144 bytes", id="endless-answer"),
        pytest.param(["os.write(2, b'x' * 300_000)"], "more than 262144 bytes", id="endless-talk"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_refused_with_the_reason(program, lines, words):
    with pytest.raises(CredentialsError, match=words):
        await header(program(*lines))


async def test_a_program_that_is_not_there_is_named_with_its_hint():
    missing = ExecConfig(command="/nowhere/plugin", api_version=VERSION, install_hint="mount it")

    with pytest.raises(CredentialsError, match="`/nowhere/plugin` failed: it cannot") as failed:
        await header(missing)

    assert failed.value.hint == "mount it"


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(
    program, monkeypatch, tmp_path
):
    monkeypatch.setattr(credentials, "PROGRAM_SECONDS", 0.5)
    late = tmp_path / "late"
    child = f"import time; time.sleep(2); open({str(late)!r}, 'w')"
    lines = ["import subprocess, time", f"subprocess.Popen([sys.executable, '-c', {child!r}])"]

    with pytest.raises(CredentialsError, match=r"did not answer within 0\.5 s"):
        await header(program(*lines, "time.sleep(60)"))

    await asyncio.sleep(2.5)
    assert not late.exists()


def profile(*providers, name="east", field="accessProviders"):
    clusters = [{"name": each, "cluster": {"server": f"https://{name}"}} for each in providers]
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "status": {field: clusters}}


def provider(name, command="/plugins/get"):
    return AccessProvider(name=name, exec_config=ExecConfig(command=command, api_version=VERSION))


@pytest.mark.parametrize(
    ("given", "providers", "words"),
    [
        (profile("cloud"), (), "no access provider configured"),
        (profile("other"), (provider("cloud"),), 'found for cluster profile "east"'),
        (profile("cloud"), (provider("cloud", "get"),), 'command "get" of access provider'),
        ({**profile(), "status": [7]}, (provider("cloud"),), 'found for cluster profile "east"'),
        (
            {"status": {"accessProviders": [{"name": "cloud", "cluster": {"server": ""}}]}},
            (provider("cloud"),),
            "server URL is required for cluster cloud",
        ),
        (
            {
                "status": {
                    "accessProviders": [
                        {
                            "name": "cloud",
                            "cluster": {"server": "https://a", "insecure-skip-tls-verify": True},
                        }
                    ]
                }
            },
            (provider("cloud"),),
            "insecure TLS verification",
        ),
    ],
    ids=["none", "unknown", "relative", "garbled", "no-server", "insecure"],
)
def test_a_profile_that_gives_no_safe_connection_is_refused(given, providers, words):
    assert words in read_profile(given, providers)


def test_the_first_provider_of_the_configuration_that_the_profile_knows_is_used():
    providers = (provider("a", "/a"), provider("b", "/b"), provider("c", "/c"))

    found = read_profile(profile("c", "b"), providers)
    old = read_profile(profile("c", field="credentialProviders"), providers)

    assert (found.program.command, old.program.command) == ("/b", "/c")


def test_a_profile_chooses_neither_the_arguments_nor_the_variables_of_a_program():
    given = profile("cloud")
    (access,) = given["status"]["accessProviders"]
    names = ("additional-args", "additional-envs")
    access["cluster"]["extensions"] = [
        {"name": f"clusterprofiles.multicluster.x-k8s.io/exec/{name}", "extension": {"X": "y"}}
        for name in names
    ] + [{"name": "client.authentication.k8s.io/exec", "extension": {"clientId": "7"}}]
    wanted = provider("cloud")

    found = read_profile(given, (wanted,))

    assert found.program == wanted.exec_config
    assert found.program_config == {"clientId": "7"}


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueClusterProfile")
async def test_a_cluster_profile_leads_to_a_worker(on):
    gates = {"MultiKueueClusterProfile": on}
    manager = Manager(8, 0, gates=gates, providers=(provider("cloud"),))
    spec = {"clusterSource": {"clusterProfileRef": {"name": "east"}}}
    manager.put(r.MULTIKUEUE_CLUSTERS, {"metadata": {"name": "east"}, "spec": spec})
    job(manager, "train")
    async with clusters(manager):
        if not on:
            manager.put(PROFILES, profile("cloud"))
            await manager.pass_time(5)
            assert state(manager) == ("False", "MultiKueueClusterProfileFeatureDisabled")
            return
        assert state(manager) == ("False", "BadClusterProfile")
        manager.put(PROFILES, profile("cloud"))
        await manager.pass_time(5)
        assert state(manager) == ("True", "Active")
        assert where(manager, "train") == "east"
        manager.put(PROFILES, profile("another"))
        await manager.pass_time(5)
        assert state(manager) == ("False", "BadClusterProfile")


def state(manager):
    active = condition(manager.get(r.MULTIKUEUE_CLUSTERS, "east"), "Active")
    return active["status"], active["reason"]
