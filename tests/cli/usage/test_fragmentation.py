"""`policyd usage fragmentation` on recorded series, against what was worked out by hand."""

import json

import pytest

from tests.cli.usage.given import usage
from tests.usage import recording
from tests.usage.loopback import FakePrometheus, serving
from tests.usage.recording import GPU


def check_fragmentation(address):
    done = usage("fragmentation", address, "--no-cluster", "-o", "json")
    assert done.exit_code == 0, done.output
    over_time = json.loads(done.stdout)["overTime"]
    assert len(over_time) == 72
    last = over_time[-1]
    for name, value in recording.GPUS.items():
        assert last[name] == pytest.approx(value), name
    answer = json.loads(done.stdout)
    check_stranded(answer["stranded"])
    assert [each for each in answer["notes"] if "stranded" in each] == [
        "left out: series of stranded devices without flavor or resource",
        "left out: stranded devices at times at which two controllers report others",
    ]


def check_stranded(points):
    hours = {}
    for each in points:
        assert each["resource"] == recording.GPU
        hour = -(-(each["at"] - recording.BEGIN) // recording.HOUR) - 1
        hours.setdefault((each["flavor"], hour), set()).add(each["devices"])
    for flavor, values in recording.STRANDED_HOURS.items():
        for hour, value in enumerate(values):
            assert hours.get((flavor, hour)) == (None if value is None else {value}), (flavor, hour)


def test_fragments_are_those_that_were_worked_out_by_hand(address):
    check_fragmentation(address)


def test_a_table_has_the_stranded_devices_of_each_flavor_over_time(address):
    done = usage("fragmentation", address, "--no-cluster")

    assert done.exit_code == 0, done.output
    head, *lines = [*map(str.split, done.stdout.split("\n\n")[1].splitlines())]
    assert head == ["STRANDED", "UNTIL", *f"{GPU} OF h100 {GPU} OF a100".split()]
    assert lines[0] == ["2026-11-02T00:30:00Z", "6", "0.5"]
    assert lines[2] == ["2026-11-02T01:30:00Z", "-", "0.5"]
    assert lines[-1] == ["2026-11-02T06:00:00Z", "0", "0.5"]
    assert len(lines) == 12


@pytest.mark.parametrize("more", [{}, {"cluster": "b"}])
def test_without_samples_of_the_controller_the_answer_says_so(more):
    labels = {"flavor": "h100", "resource": GPU, **more}

    def series():
        yield recording.UTIL, recording.gpu("a", 0, cluster="a"), recording.always(0)
        if more:
            yield recording.STRANDED, labels, recording.always(1)

    matchers = ["--match", 'cluster="a"', "--match", 'Hostname=~"node-.*"']
    with serving(FakePrometheus(series)) as address:
        done = usage("fragmentation", address, "--no-cluster", *matchers)

    assert done.exit_code == 0, done.output
    assert "not known: stranded devices over time: Prometheus has no samples" in done.stdout


def test_a_matcher_of_the_exporters_labels_keeps_the_samples_of_the_controller():
    labels = {"flavor": "h100", "resource": GPU, "cluster": "a"}

    def series():
        yield recording.UTIL, recording.gpu("a", 0, cluster="a"), recording.always(0)
        yield recording.STRANDED, labels, recording.always(1)
        yield recording.STRANDED, {**labels, "cluster": "b"}, recording.always(2)

    matchers = ["--match", 'Hostname=~"node-.*"', "--match", 'cluster!="b"', "-o", "json"]
    with serving(FakePrometheus(series)) as address:
        done = usage("fragmentation", address, "--no-cluster", *matchers)

    assert {each["devices"] for each in json.loads(done.stdout)["stranded"]} == {1.0}
