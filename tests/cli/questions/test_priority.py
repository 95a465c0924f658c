"""`policyd priority` on snapshots that were kept: the tables, and what programs get."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.questions import question
from policyd.clock import SystemClock
from policyd.questions.snapshots import OF_CLUSTER, OF_NAMESPACE
from policyd.snapshot.values import FORMAT, NAME
from policyd.testing import FakeClient
from tests.alloc.builders import cohort, queue, state, workload
from tests.alloc.preemption.test_preemption import running
from tests.snapshot.taking import body_for, taken
from tests.snapshot.test_priorities import SHARING, by_usage, waiting


@pytest.fixture
def ask(tmp_path):
    """Ask a snapshot of a state; return what the command prints."""

    def ask(of, *options):
        file = tmp_path / "snapshot.json"
        file.write_bytes(body_for(taken(of)))
        done = CliRunner().invoke(main, ["priority", "--snapshot", str(file), *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    return ask


def test_the_table_says_by_what_each_is_behind(ask):
    of = state(queue("q", gpu=1), waiting("job-high", 9, 5), waiting("job-low", 1))
    head, first, second = ask(of).splitlines()

    assert head.split()[:8] == [
        "QUEUE",
        "AHEAD",
        "NAMESPACE",
        "JOB",
        "BY",
        "PRIORITY",
        "CLASS",
        "WAITS",
    ]
    assert first.split()[:7] == ["q", "0", "ns", "Job/high", "first", "5", "PriorityClass/high"]
    assert second.split()[:7] == ["q", "1", "ns", "Job/low", "priority", "0", "-"]


def test_shares_have_a_table_where_cohorts_share_fairly(ask):
    of = state(
        cohort("c"), queue("a", "c", gpu=8), queue("b", "c", gpu=8),
        running("ns/job-r", "a", gpu=12), workload("ns/job-w", "a", gpu=8), rules=SHARING,
    )  # fmt: skip
    text = ask(of)

    assert "Shares of the Cohorts' quota" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines()[4:]}
    assert rows["a"] == ["a", "ClusterQueue", "c", "250", "1", "gpu"]


def test_usage_has_a_table_with_its_decay(ask):
    text = ask(by_usage())

    assert "past usage counts half after 60m; weights of resources: gpu 2:" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["ann"][2:6] == ["12", "1", "6", "gpu"]
    assert rows["zero"][2:4] == ["last", "0"]


def test_programs_get_all_of_it(ask):
    answer = json.loads(ask(by_usage(), "-o", "json"))

    assert [each["decidedBy"] for each in answer["workloads"]] == ["first", "usage", "usage"]
    assert answer["halfLifeSeconds"] == 3600


def test_a_snapshot_is_not_watched(ask, tmp_path):
    ask(by_usage())
    command = ["priority", "--snapshot", str(tmp_path / "snapshot.json"), "--watch"]
    done = CliRunner().invoke(main, command)

    assert done.exit_code == 2
    assert "--watch asks a cluster" in done.stderr


@pytest.mark.parametrize("command", ["queue", "quota", "top", "priority"])
@pytest.mark.parametrize(
    ("words", "hint"), [pytest.param([], True, id="here"), pytest.param(["-A"], False, id="all")]
)
def test_the_answer_for_a_namespace_without_queues_names_the_option_for_all(
    monkeypatch, command, words, hint
):
    client, body = FakeClient(), {"format": FORMAT, "takenAt": SystemClock().now()}
    for resource, namespace in ((OF_NAMESPACE, "ns"), (OF_CLUSTER, "")):
        metadata = {"name": NAME, "namespace": namespace}
        client.store.put(resource, {**body, "metadata": metadata})
    monkeypatch.setattr(question, "connection_for", lambda _: SimpleNamespace(namespace="ns"))
    monkeypatch.setattr(question, "HttpClient", lambda _: nullcontext(client))

    found = CliRunner().invoke(main, [command, *words])

    assert found.exit_code == 0, found.output
    assert ("; -A asks for the whole cluster" in found.stderr) is hint
    assert found.stderr.startswith("no ")


@pytest.mark.parametrize(
    ("age", "warned"), [pytest.param(50, False, id="new"), pytest.param(7200, True, id="old")]
)
@pytest.mark.parametrize("command", [["queue"], ["quota"], ["priority"], ["why", "last"]])
def test_an_old_snapshot_is_answered_with_a_warning(tmp_path, command, age, warned):
    of = state(queue("q", gpu=1), waiting("job-high", 9, 5), waiting("job-last", 1))
    body = json.loads(body_for(taken(of))) | {"takenAt": SystemClock().now() - age}
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(body))

    found = CliRunner().invoke(main, [*command, "--snapshot", str(file), "-n", "ns"])

    assert found.exit_code == 0, found.output
    assert ("warning: the snapshot is 120m old" in found.stderr) is warned
    assert found.stdout
