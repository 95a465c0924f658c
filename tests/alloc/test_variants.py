"""Variants of one workload: which may be admitted beside those that are."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Evict, Requeue
from policyd.alloc.settings import Gates, QueueingSettings
from policyd.status.messages import message_of
from tests.alloc.builders import admission, group, queue, state, workload

ON = QueueingSettings(gates=Gates(concurrent_admission=True))
FLAVORS = ("reserved", "on-demand", "spot")


def variant(name, flavor, *, of="parent", held=False):
    held_by = admission("q", flavor=flavor, gpu=1) if held else None
    more = {"admission": held_by, "admitted": True} if held else {}
    return workload(name, "q", gpu=1, allowed_flavors=(flavor,), variant_of=of, **more)


def decided(*workloads, migrates=True, last_acceptable=""):
    made = queue(
        "q",
        groups=(group(**{name.replace("-", "_"): {"gpu": 1} for name in FLAVORS}),),
        migrates=migrates,
        last_acceptable=last_acceptable,
    )
    return plan_cycle(state(made, *workloads, flavors=FLAVORS, rules=ON)).actions


@pytest.mark.parametrize(
    ("flavor", "options", "message", "evicts"),
    [
        pytest.param("spot", {}, "A more favorable variant is already admitted", False, id="worse"),
        pytest.param("reserved", {}, "Waiting for the admitted variant", True, id="better"),
        pytest.param(
            "reserved",
            {"last_acceptable": "reserved"},
            "Waiting for the admitted variant",
            True,
            id="acceptable",
        ),
        pytest.param(
            "reserved",
            {"migrates": False},
            "Target flavor is below LastAcceptableFlavorName",
            False,
            id="the-first-one-stays",
        ),
    ],
)
def test_a_better_variant_takes_the_place_of_the_admitted_one(flavor, options, message, evicts):
    admitted = variant("a", "on-demand", held=True)

    *evictions, last = decided(admitted, variant("b", flavor), **options)

    assert isinstance(last, Requeue)
    assert not last.inadmissible
    assert last.refusal.reason == "PendingEvaluation"
    assert message_of(last.refusal).startswith(message)
    assert [type(each) for each in evictions] == [Evict] * evicts
    assert [each.reason for each in evictions] == ["FlavorMigration"] * evicts


def test_a_flavor_after_the_last_acceptable_one_is_no_reason_to_migrate():
    admitted = variant("a", "spot", held=True)

    (last,) = decided(admitted, variant("b", "on-demand"), last_acceptable="reserved")

    assert message_of(last.refusal).startswith("Target flavor is below")


def test_variants_of_other_workloads_do_not_count():
    (last,) = decided(variant("a", "on-demand", held=True), variant("b", "spot", of="another"))

    assert isinstance(last, Admit)
