"""Which pods may run on the nodes of a flavor."""

import pytest

from policyd.alloc.queue import FlavorSpec, matches_affinity, untolerated_taint
from policyd.node_rules import LabelRequirement, NodeTaint, TaintToleration

SPOT = NodeTaint(key="spot", value="yes", effect="NoSchedule")
SLA = NodeTaint(key="sla", value="900", effect="NoExecute")


def need(key, operator, *values):
    return LabelRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("taint", "toleration", "expected"),
    [
        pytest.param(SPOT, TaintToleration(key="spot", value="yes"), True, id="equal"),
        pytest.param(SPOT, TaintToleration(key="spot", value="no"), False, id="other-value"),
        pytest.param(SPOT, TaintToleration(key="spot", operator="Exists"), True, id="exists"),
        pytest.param(SPOT, TaintToleration(key="gpu", operator="Exists"), False, id="other-key"),
        pytest.param(SPOT, TaintToleration(operator="Exists"), True, id="any-key"),
        pytest.param(SPOT, TaintToleration(value="yes"), False, id="equal-without-key"),
        pytest.param(
            SPOT, TaintToleration(operator="Exists", effect="NoExecute"), False, id="other-effect"
        ),
        pytest.param(
            SLA, TaintToleration(key="sla", operator="Gt", value="700"), True, id="greater"
        ),
        pytest.param(
            SLA, TaintToleration(key="sla", operator="Lt", value="700"), False, id="not-less"
        ),
        pytest.param(
            SLA, TaintToleration(key="sla", operator="Lt", value="x"), False, id="no-number"
        ),
    ],
)
def test_a_toleration_meets_a_taint(taint, toleration, expected):
    assert toleration.tolerates(taint) is expected


@pytest.mark.parametrize(
    ("flavor", "tolerations", "expected"),
    [
        pytest.param(FlavorSpec(name="f"), (), None, id="no-taints"),
        pytest.param(FlavorSpec(name="f", taints=(SPOT,)), (), SPOT, id="keeps-out"),
        pytest.param(
            FlavorSpec(name="f", taints=(NodeTaint(key="a", effect="PreferNoSchedule"),)),
            (),
            None,
            id="preference-keeps-nobody-out",
        ),
        pytest.param(
            FlavorSpec(name="f", taints=(SPOT,), tolerations=(TaintToleration(operator="Exists"),)),
            (),
            None,
            id="flavor-brings-its-toleration",
        ),
        pytest.param(
            FlavorSpec(name="f", taints=(SPOT, SLA)),
            (TaintToleration(key="spot", operator="Exists"),),
            SLA,
            id="first-that-is-not-tolerated",
        ),
    ],
)
def test_a_flavor_keeps_out_pods_by_its_taints(flavor, tolerations, expected):
    assert untolerated_taint(flavor, tolerations) == expected


ZONE_A = FlavorSpec(name="f", labels={"zone": "a", "gen": "3"})


@pytest.mark.parametrize(
    ("selector", "terms", "expected"),
    [
        pytest.param({}, (), True, id="no-wish"),
        pytest.param({"zone": "a"}, (), True, id="selector"),
        pytest.param({"zone": "b"}, (), False, id="selector-of-another"),
        pytest.param({"disk": "ssd"}, (), True, id="label-the-flavor-does-not-name"),
        pytest.param({}, ((need("zone", "In", "a", "b"),),), True, id="in"),
        pytest.param({}, ((need("zone", "NotIn", "a"),),), False, id="not-in"),
        pytest.param({}, ((need("zone", "Exists"),),), True, id="exists"),
        pytest.param({}, ((need("zone", "DoesNotExist"),),), False, id="does-not-exist"),
        pytest.param({}, ((need("gen", "Gt", "2"),),), True, id="greater"),
        pytest.param({}, ((need("gen", "Lt", "2"),),), False, id="less"),
        pytest.param({}, ((need("gen", "Gt", "x"),),), False, id="no-number"),
        pytest.param({}, ((need("gen", "Gt"),),), False, id="no-value"),
        pytest.param(
            {}, ((need("zone", "In", "b"),), (need("zone", "In", "a"),)), True, id="one-of-terms"
        ),
        pytest.param(
            {}, ((need("zone", "In", "a"), need("gen", "In", "1")),), False, id="all-of-a-term"
        ),
        pytest.param(
            {},
            ((need("zone", "In", "b"),), (need("disk", "In", "ssd"),)),
            True,
            id="term-of-unknown-labels-could-match",
        ),
    ],
)
def test_only_labels_the_flavor_names_are_looked_at(selector, terms, expected):
    assert matches_affinity(ZONE_A, selector, terms) is expected
