"""Kueue's tables of how a topology assignment is written, read and asked."""

from itertools import count, islice, product
from string import ascii_lowercase, digits

import msgspec

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import TopologyNode
from policyd.api.kueue import Admission, PodSetAssignment, TopologyAssignment
from policyd.api.kueue.topology_assignment import (
    DOMAIN_LIMIT,
    HOSTNAME,
    SLICE_LIMIT,
    DomainPods,
    assigned_nodes,
    decode_topology,
    domain_count,
    encode_topology,
    nodes_of,
    pod_counts,
)
from tests.conformance.kueue_objects import convert, run_table

BYTES = 1_500_000
"""What of an object an assignment may take, so that it can be stored."""


IDENTIFIERS = {"poolIDLength": 22, "nodeIDLength": 6}
"""Letters in names of pools and nodes."""


def domains(internal):
    return [
        DomainPods(tuple(each["Values"]), each.get("Count", 0))
        for each in internal.get("Domains") or ()
    ]


def assignment(body):
    return convert(body, TopologyAssignment)


def as_written(found):
    return msgspec.to_builtins(found)


def run_encoding(path):
    """Write domains, and compare with what the API holds."""
    return run_table(path, _encoding)


def _encoding(case):
    internal = case.input.get("internal") or case.data.get("locals", {}).get("internal")
    if internal is None:
        return _without_table(case)
    by_prefix = case.gates.get("TASAssignmentsEncodingByHostnamePrefix", True)
    wanted = assignment(case.want.get("want") or case.input.get("v1beta2"))
    given = domains(internal)
    found = encode_topology(internal["Levels"], given, by_prefix=by_prefix)
    if list(decode_topology(found)) != given:
        return f"reads as something else: {found}"
    # A table that splits its assignments by hand says what is read, not what is written.
    by_hand = "v1beta2" in case.input and case.data.get("observed", {}).get("got")
    wanted = assignment(by_hand) if by_hand else wanted
    return "" if found == wanted else f"expected {as_written(wanted)}, got {as_written(found)}"


def _without_table(case):
    """Judge a case that gives no domains: there are none, or too many to write them down."""
    if case.data.get("observed", {}).get("got", "") is None:
        return "" if not nodes_of(PodSetAssignment()) else "found nodes"
    return _size({"pools": 1000, "fixedPrefixAndSuffixLength": 20, **IDENTIFIERS}, 40_000)


def run_reading(path):
    """Read what the API holds, in each of the ways there are."""
    return run_table(path, _reading)


def _reading(case):
    if "internal" not in case.input:
        return _without_table(case)
    internal = case.input["internal"]
    found = assignment(case.input["v1beta2"])
    got = (list(decode_topology(found)), pod_counts(found), domain_count(found))
    wanted = (domains(internal), case.input["podCounts"], case.input["totalDomainCount"])
    if got[0] != wanted[0] or list(found.levels) != (internal.get("Levels") or []):
        return f"expected {wanted[0]}, got {got[0]}"
    return "" if got == wanted else f"expected {wanted}, got {got}"


def run_nodes(path):
    """Tell whether pods go to a node."""
    return run_table(path, _nodes)


def _nodes(case):
    if "admission" in case.input:
        nodes = assigned_nodes(convert(case.input["admission"], Admission))
    else:
        nodes = set(nodes_of(convert(case.input["psa"], PodSetAssignment)))
    found = case.input["nodeName"] in nodes
    return "" if found == case.want["want"] else f"got {nodes}"


def run_node_names(path):
    """Tell which node a domain is, if it is one."""
    return run_table(path, _node_name)


def _node_name(case):
    written = encode_topology(case.input["levels"], [DomainPods((case.input["domainID"],), 1)])
    nodes = nodes_of(PodSetAssignment(topology_assignment=written))
    wanted = {case.want["wantNodeName"]: 1} if case.want["wantOK"] else {}
    return "" if nodes == wanted else f"got {nodes}"


def run_belonging(path):
    """Tell whether a domain is another one, or within it."""
    return run_table(path, _belongs)


def _belongs(case):
    domain, target = (
        tuple(filter(None, case.input[column].split(",")))
        for column in ("domainID", "targetDomain")
    )
    levels = [f"level-{number}" for number in range(max(len(domain), len(target)))]
    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name="flavor", topology="topology"), levels)
    for path in (domain, target):
        values = (*path, *["below"] * (len(levels) - len(path)))
        nodes.put(
            TopologyNode(name=",".join(values), labels=dict(zip(levels, values, strict=True)))
        )
    tree = nodes.trees["flavor"]
    number, around = tree.values.index(domain), {()}
    while number >= 0:
        around.add(tree.values[number])
        number = tree.parent[number]
    found = target in around
    return "" if found == case.want["want"] else f"is within {around}"


def run_library(path):
    """Leave out what Kueue asks the scheduler's own library, where switched on: an alpha gate."""
    return run_table(path, lambda _case: "", rule=lambda _case: "the scheduler's library")


def run_sizes(path):
    """Write assignments of very many nodes, named as clusters name them."""
    return run_table(
        path,
        lambda case: _size(
            case.input["naming"],
            case.input["targetNodeCount"],
            in_order=case.input.get("sortNodeNames", False),
        ),
    )


def _size(naming, nodes, *, in_order=False):
    names = node_names(naming, nodes)
    if in_order:
        names.sort()
    found = encode_topology([HOSTNAME], [DomainPods((name,), 1) for name in names])
    size = len(msgspec.json.encode(found))
    longest = max(part.domain_count for part in found.slices)
    if size > BYTES or len(found.slices) > SLICE_LIMIT or longest > DOMAIN_LIMIT:
        return f"{size} bytes, {len(found.slices)} slices of up to {longest} domains"
    return "" if domain_count(found) == len(names) else f"{domain_count(found)} domains"


def node_names(naming, nodes):
    """Return names of `nodes` nodes: what all have, then the pool's, then the node's own."""
    fixed = "n" * (naming.get("fixedPrefixAndSuffixLength", 0) - 1) + "-"
    pools = naming.get("pools") or 0
    pool_names = [f"{name}-" for name in islice(words(naming.get("poolIDLength", 0)), pools)] or [
        ""
    ]
    each = -(-nodes // len(pool_names))
    names = [
        f"{fixed}{pool}{name}"
        for pool in pool_names
        for name in islice(words(naming.get("nodeIDLength", 0)), each)
    ]
    return names[:nodes]


def words(length):
    """Yield words of letters and digits, all of one length, that begin differently."""
    letters = ascii_lowercase + digits
    if length < 5:
        yield from ("".join(word) for word in product(letters, repeat=length))
        return
    for number in count():
        scattered, word = number * 7_368_787 % len(letters) ** 5, ""
        for _ in range(5):
            scattered, place = divmod(scattered, len(letters))
            word += letters[place]
        yield word.ljust(length, "x")
