"""Nodes that count for nobody are told, each with its reason."""

import pytest

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.values import HOSTNAME
from policyd.status.excluded_nodes import not_counted
from tests.alloc.builders import queue, state
from tests.alloc.topology.builders import node

FLAVOR = FlavorSpec(
    name="h100", labels={"gpu": "h100"}, topology="racks", levels=("rack", HOSTNAME)
)


def spec(name, *, host=None, rack="a", **facts):
    where = {} if rack is None else {"rack": rack}
    bare = node(host or name, levels=(HOSTNAME,), name=name, labels={"gpu": "h100", **where})
    return type(bare)(**{**{f: getattr(bare, f) for f in bare.__struct_fields__}, **facts})


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        pytest.param([spec("a1")], "", id="all-are-counted"),
        pytest.param([spec("a1", ready=False)], "a1 is not ready", id="not-ready"),
        pytest.param([spec("a1", schedulable=False)], "a1 is cordoned", id="cordoned"),
        pytest.param([spec("a1", rack=None)], "a1 has no label `rack`", id="no-level"),
        pytest.param(
            [spec("a1", rack=None, schedulable=False)], "a1 has no label `rack`", id="two-reasons"
        ),
        pytest.param(
            [spec("a1"), spec("a2", host="a1")],
            "a2 has the host name `a1` of node `a1`",
            id="twins",
        ),
        pytest.param([spec("a1", labels={"gpu": "a100"})], "", id="of-another-flavor"),
        pytest.param(
            [spec(f"a{n}", ready=False) for n in range(5)],
            "a0 is not ready; a1 is not ready; a2 is not ready and 2 more",
            id="many",
        ),
        pytest.param([spec("a1", ready=False), spec("a1")], "", id="ready-again"),
    ],
)
def test_nodes_that_are_not_counted(nodes, message):
    made = state(queue("a"), flavors=())
    made.put_flavor(FLAVOR)
    for each in nodes:
        made.ledger.nodes.put(each)

    assert not_counted(made, "h100") == message


def test_a_deleted_node_does_not_matter():
    made = state(queue("a"), flavors=())
    made.put_flavor(FLAVOR)
    made.ledger.nodes.put(spec("a1", ready=False))

    made.ledger.nodes.remove("a1")

    assert not_counted(made, "h100") == ""


def test_a_flavor_without_a_topology_counts_no_nodes():
    assert not_counted(state(queue("a")), "default") == ""
