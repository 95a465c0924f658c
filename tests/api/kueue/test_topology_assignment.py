"""Topology assignments: what is written reads as it was, and is short."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.kueue import Admission, PodSetAssignment, TopologyAssignment
from policyd.api.kueue.topology_assignment import (
    HOSTNAME,
    DomainPods,
    assigned_nodes,
    decode_topology,
    domain_count,
    encode_topology,
    nodes_of,
    pod_counts,
)

NAMES = st.from_regex(r"[a-c]{1,2}(-[a-c]{1,2}){0,3}", fullmatch=True)
DOMAINS = st.lists(st.builds(DomainPods, st.tuples(NAMES, NAMES), st.integers(0, 3)), max_size=12)


@given(DOMAINS)
def test_written_data_reads_as_before(domains):
    written = encode_topology(("block", "rack"), domains)

    assert list(decode_topology(written)) == domains
    assert pod_counts(written) == [domain.pods for domain in domains]
    assert domain_count(written) == len(domains)


@given(st.lists(st.builds(DomainPods, st.tuples(NAMES), st.integers(0, 3)), max_size=12))
def test_runs_by_prefix_read_as_they_were_and_are_never_longer(domains):
    written = encode_topology((HOSTNAME,), domains)
    plain = encode_topology((HOSTNAME,), domains, by_prefix=False)

    assert list(decode_topology(written)) == domains
    assert len(msgspec.json.encode(written)) <= len(msgspec.json.encode(plain))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["a-1"], {"universal": "a-1"}, id="one-name-is-written-whole"),
        pytest.param(["a-1", "a-2"], {"prefix": "a-", "roots": ["1", "2"]}, id="prefix"),
        pytest.param(["1.x", "2.x"], {"suffix": ".x", "roots": ["1", "2"]}, id="suffix"),
        pytest.param(
            ["aba", "ababa"], {"suffix": "aba", "roots": ["", "ab"]}, id="overlap-goes-to-suffix"
        ),
    ],
)
def test_common_ends_are_written_once(names, expected):
    written = encode_topology(("rack",), [DomainPods((name,), 1) for name in names])

    values = msgspec.json.decode(msgspec.json.encode(written))["slices"][0]["valuesPerLevel"][0]
    assert values == (expected if "universal" in expected else {"individual": expected})


def test_only_a_lowest_level_of_host_names_names_nodes():
    rack = encode_topology(("rack",), [DomainPods(("a",), 1)])
    hosts = encode_topology((HOSTNAME,), [DomainPods(("a",), 2), DomainPods(("b",), 0)])
    pod_sets = tuple(PodSetAssignment(topology_assignment=each) for each in (rack, hosts, None))

    assert [nodes_of(each) for each in pod_sets] == [{}, {"a": 2}, {}]
    assert assigned_nodes(Admission(cluster_queue="q", pod_set_assignments=pod_sets)) == {"a"}
    assert assigned_nodes(None) == set()
    assert not nodes_of(PodSetAssignment(topology_assignment=TopologyAssignment()))
