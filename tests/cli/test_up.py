"""`policyd up`, started as a user starts it."""

from contextlib import contextmanager

import pytest

from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import COMMANDS, Process, ready
from tests.scenarios.objects import job


@pytest.fixture
def up(tmp_path):
    """Start `policyd up` with a state file, for as long as a block lasts."""

    @contextmanager
    def up():
        kubeconfig = tmp_path / "kubeconfig"
        state = ("--state", str(tmp_path / "state"))
        command = [str(COMMANDS / "policyd"), "up", "--kubeconfig", str(kubeconfig), *state]
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


def test_a_second_run_goes_on_with_the_state_of_the_first(up):
    with up() as api:
        api.create(job("kept", gpus=8, run_for="2s"))

    with up() as api:
        eventually(
            lambda: api.get("Job", "kept", "team-a").get("status", {}).get("succeeded"),
            what="the job of the first run ends in the second",
        )
