"""`policyd up`, started as a user starts it."""

import itertools
import re
import subprocess
import threading
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from click.testing import CliRunner

from policyd.cli import main
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.clusters import COMMANDS, Process, ready
from tests.scenarios.objects import job, pod


@pytest.fixture
def up(tmp_path):
    """Start `policyd up` with some options, for as long as a block lasts."""

    @contextmanager
    def up(*options):
        kubeconfig = tmp_path / "kubeconfig"
        command = [str(COMMANDS / "policyd"), "up", "--kubeconfig", str(kubeconfig)]
        command += map(str, options)
        process = Process(command, tmp_path / "up.log")
        (tmp_path / "up.log").unlink(missing_ok=True)
        process.start()
        try:
            eventually(lambda: ready(process, "export KUBECONFIG="), what="`policyd up` is ready")
            yield Api(kubeconfig)
        finally:
            code = process.stop()
        assert code == 0, process.tail()

    return up


def test_a_second_run_goes_on_with_the_state_of_the_first(up, tmp_path):
    state = ("--state", tmp_path / "state")
    with up(*state) as api:
        api.create(job("kept", gpus=8, run_for="2s"))
        api.delete("Policy", "gang-labels")

    with up(*state) as api:
        assert not api.exists("Policy", "gang-labels")
        assert api.exists("Policy", "cap-gpus-per-pod")
        eventually(
            lambda: api.get("Job", "kept", "team-a").get("status", {}).get("succeeded"),
            what="the job of the first run ends in the second",
        )


def test_a_configuration_sets_the_resources_that_count_against_quota(up, tmp_path):
    configuration = tmp_path / "configuration.yaml"
    configuration.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "resources: {excludeResourcePrefixes: [nvidia.com/]}\n"
    )

    with up("--config", configuration) as api:
        api.create(job("free", gpus=400, pods=50))
        eventually(
            lambda: not api.get("Job", "free", "team-a")["spec"]["suspend"],
            what="a job of more GPUs than there are has quota",
        )


def test_the_older_version_of_kueues_kinds_is_served_on_request(up):
    paths = [f"apis/kueue.x-k8s.io/{version}/clusterqueues" for version in ("v1beta1", "v1beta2")]

    with up("--no-dashboard") as api:
        with pytest.raises(Refused) as refused:
            api.call("GET", paths[0])
        assert refused.value.code == 404
        assert api.call("GET", paths[1])["items"]
    with up("--no-dashboard", "--serve-v1beta1") as api:
        assert [len(api.call("GET", path)["items"]) for path in paths] == [2, 2]


OWN_POLICIES = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: nobody-enters}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "false", message: nobody enters}
"""
BROKEN = """\
---
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: broken}
spec: {validation: []}
"""


def test_it_is_ready_whatever_the_users_own_policies_do(up, tmp_path):
    policies = tmp_path / "policies.yaml"
    policies.write_text(OWN_POLICIES)

    with up("--policies", policies) as api, pytest.raises(Refused, match="nobody enters"):
        api.create(pod("visitor", gpus=0))


def test_a_broken_policy_ends_it_before_anything_is_started(tmp_path):
    policies, kubeconfig = tmp_path / "policies.yaml", tmp_path / "kubeconfig"
    policies.write_text(OWN_POLICIES + BROKEN)

    result = CliRunner().invoke(
        main, ["up", "--policies", str(policies), "--kubeconfig", str(kubeconfig)]
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown field `validation`" in result.stderr
    assert "error: the policies are invalid" in result.stderr
    assert not kubeconfig.exists()


def test_a_second_run_does_not_take_the_kubeconfig_of_the_first(up, tmp_path):
    with up() as api:
        kubeconfig = (tmp_path / "kubeconfig").read_text()
        second = subprocess.run(
            [COMMANDS / "policyd", "up", "--kubeconfig", tmp_path / "kubeconfig"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (tmp_path / "kubeconfig").read_text() == kubeconfig
        assert api.exists("Policy", "cap-gpus-per-pod")

    assert second.returncode == 2
    assert "kubeconfig` is in use by process " in second.stderr
    assert "--kubeconfig" in second.stderr


def test_it_ends_without_a_word_whatever_is_being_written(up, tmp_path):
    stopped = threading.Event()

    def create(api):
        for number in itertools.count():
            if stopped.is_set():
                return
            with suppress(Exception):
                api.create(job(f"job-{number}", gpus=1, run_for="1s"))

    with up() as api:
        writing = threading.Thread(target=create, args=[api], daemon=True)
        writing.start()
        eventually(lambda: api.exists("Job", "job-9", "team-a"), what="jobs are being created")
    stopped.set()
    writing.join()

    log_text = (tmp_path / "up.log").read_text()
    assert "[warning" not in log_text
    assert "Traceback" not in log_text


def opened(url, opener):
    with opener.open(url, timeout=30) as answer:
        return answer.read().decode()


def test_its_page_is_opened_by_the_link_that_it_prints_and_only_once(up, tmp_path):
    with up() as api:
        api.create(job("first", gpus=8, run_for="1h"))
        link = re.search(r"http://\S+/enter/\S+", (tmp_path / "up.log").read_text())[0]
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        opened(link, browser)
        page = link.partition("/enter/")[0]

        eventually(lambda: "team-a/first" in opened(f"{page}/cluster", browser), what="it runs")
        with pytest.raises(HTTPError, match="401"):
            opened(link, build_opener())


def test_it_serves_no_page_if_that_is_not_wanted(up, tmp_path):
    with up("--no-dashboard"):
        assert "/enter/" not in (tmp_path / "up.log").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--port", "99999"], "not in the range", id="port"),
        pytest.param(["--nodes", "0"], "not in the range", id="nodes"),
        pytest.param(["--racks", "-1"], "not in the range", id="racks"),
        pytest.param(["--kubeconfig", "{file}/kubeconfig"], "cannot write", id="kubeconfig"),
        pytest.param(["--config", "{file}/config"], "cannot be read", id="config"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_sentence(tmp_path, options, sentence):
    file = tmp_path / "file"
    file.touch()

    result = CliRunner().invoke(main, ["up", *(o.format(file=file) for o in options)])

    assert result.exit_code == 2
    assert sentence in result.stderr
