"""Names by which answers are filtered: a mistyped one is an error with the nearest name."""

import msgspec
import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.questions.history import history
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.questions.known_names import (
    UnknownNameError,
    check_names,
    near_names,
    of_owner,
    of_queue,
    of_team,
    of_tree,
)
from policyd.testing import FakeClient
from tests.dashboard.made import cohort, made_queue, made_snapshot
from tests.questions.test_unqueued_jobs import put

pytestmark = pytest.mark.anyio

SNAPSHOT = made_snapshot(made_queue("team-a", pending=1, cohort="all"), cohorts=(cohort("all"),))


@pytest.fixture
def client():
    client = FakeClient()
    put(client, r.LOCAL_QUEUES, "idle", {"clusterQueue": "team-b"}, namespace="team-b")
    return client


@pytest.mark.parametrize("made", [of_queue("", SNAPSHOT), of_queue("team-a", SNAPSHOT),
    of_queue("main", SNAPSHOT), of_queue("idle", SNAPSHOT), of_team("team-a", SNAPSHOT),
    of_team("team-b", SNAPSHOT), of_tree("all", SNAPSHOT), of_owner("ann", SNAPSHOT)])  # fmt: skip
async def test_what_there_is_passes_also_where_it_has_no_workloads(client, made):
    assert await check_names(client, "", [made]) == []


@pytest.mark.parametrize(
    ("made", "message", "hint"),
    [
        pytest.param(
            of_queue("idel", SNAPSHOT),
            "no ClusterQueue or LocalQueue here is named `idel`",
            "did you mean `idle`?",
            id="queue",
        ),
        pytest.param(
            of_team("taem-a", SNAPSHOT),
            "no namespace with LocalQueues here is named `taem-a`",
            "did you mean `team-a`?",
            id="team",
        ),
        pytest.param(
            of_tree("xyz", SNAPSHOT),
            "no ClusterQueue or Cohort here is named `xyz`",
            "there are all, team-a",
            id="tree",
        ),
    ],
)
async def test_what_there_is_not_is_an_error_with_the_nearest_name(client, made, message, hint):
    with pytest.raises(UnknownNameError) as error:
        await check_names(client, "", [made])

    assert (str(error.value), error.value.hint) == (message, hint)


async def test_what_cannot_be_known_is_returned(client):
    for _ in range(2):
        client.fail(ForbiddenError("no"), plural="localqueues")
    made = [of_queue("idel", SNAPSHOT), of_team("x", SNAPSHOT), of_owner("annn", SNAPSHOT)]

    assert await check_names(client, "team-a", made) == made


def test_long_lists_of_names_are_cut():
    assert near_names("xyz", map(str, range(12))).endswith("and others")
    assert near_names("xyz", ()) == "there are none"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        pytest.param(["quota", "--queue", "taem-a"], "did you mean `team-a`?", id="quota"),
        pytest.param(["quota", "--resource", "nvidia.com/gpus"], "nvidia.com/gpu`?", id="resource"),
        pytest.param(["top", "--queue", "al1"], "did you mean `all`?", id="top"),
    ],
)
def test_commands_name_a_mistyped_filter(tmp_path, words, output):
    file = tmp_path / "snapshot.json"
    file.write_bytes(msgspec.json.encode(SNAPSHOT))

    result = CliRunner().invoke(main, [*words, "--snapshot", str(file)])

    assert result.exit_code == 2
    assert output in result.stderr


@pytest.mark.parametrize(
    "words",
    [["queue", "--queue", "idel"], ["queue", "--user", "annn"], ["priority", "--team", "x"]],
)
def test_a_name_that_a_file_may_lack_is_a_warning(tmp_path, words):
    file = tmp_path / "snapshot.json"
    file.write_bytes(msgspec.json.encode(SNAPSHOT))

    result = CliRunner().invoke(main, [*words, "--snapshot", str(file)])

    assert result.exit_code == 0
    assert f"is named `{words[-1]}`" in result.stderr


async def test_history_knows_queues_of_which_no_workload_is_left(client):
    assert await history(client, "team-b", queue="idle") == []
    assert await history(client, "team-b", queue="team-b") == []

    with pytest.raises(UnknownNameError) as error:
        await history(client, "team-b", queue="idel")
    assert error.value.hint == "did you mean `idle`?"
