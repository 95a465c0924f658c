"""Flavors by how full they are, where a queue asks for it."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit
from policyd.optimize.opt_ins import OptIns
from tests.alloc.builders import admission, group, queue, workload
from tests.optimize.builders import state


def chosen(packs, *used, **asked):
    """The flavor that a workload gets, of two with 10 GPUs and 10 cores each."""
    quotas = {"gpu": 10, "cpu": 10}
    of = state(
        queue("q", groups=[group(first=quotas, second=quotas)], opt_ins=OptIns(packs=packs)),
        *used,
        workload("new", "q", **asked),
        flavors=("first", "second"),
    )
    (action,) = plan_cycle(of).actions
    assert isinstance(action, Admit)
    return action.admission.pod_sets[0].flavors["gpu"]


def running(flavor, **requests):
    return workload(flavor, "q", admission=admission("q", flavor, **requests), **requests)


@pytest.mark.parametrize(
    ("packs", "used", "expected"),
    [
        pytest.param({}, [("second", {"gpu": 5})], "first", id="off-by-the-queues-order"),
        pytest.param({"gpu": 1.0}, [("second", {"gpu": 5})], "second", id="the-fullest"),
        pytest.param({"gpu": 1.0}, [], "first", id="a-tie-goes-to-the-queues-order"),
        pytest.param({"gpu": 1.0}, [("second", {"gpu": 9})], "first", id="that-has-room"),
        pytest.param(
            {"gpu": 1.0, "cpu": 5.0},
            [("first", {"gpu": 6, "cpu": 1}), ("second", {"gpu": 1, "cpu": 6})],
            "second",
            id="by-the-weights-of-resources",
        ),
        pytest.param({"memory": 1.0}, [("second", {"gpu": 5})], "first", id="of-those-asked-for"),
    ],
)
def test_the_flavor_is_chosen(packs, used, expected):
    taken = [running(flavor, **requests) for flavor, requests in used]

    assert chosen(packs, *taken, gpu=2, cpu=2) == expected
