"""What a ClusterQueue's annotations say beyond Kueue's rules."""

import pytest

from policyd.optimize.opt_ins import NO_OPT_INS, OptIns, Protection
from policyd.workload.opt_ins import OptInError, opt_ins_of


def test_without_annotations_nothing_is_wanted():
    assert opt_ins_of({"policyd.io/gang-wait": "5m"}) is NO_OPT_INS


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("queue-order", "Proportion", OptIns(order="Proportion"), id="order"),
        pytest.param("queue-order", "ShortestFirst", OptIns(order="ShortestFirst"), id="shortest"),
        pytest.param("binpack", "gpu=5, cpu", OptIns(packs={"gpu": 5.0, "cpu": 1.0}), id="binpack"),
        pytest.param("stale-gang-grace", "60s", OptIns(stale_seconds=60.0), id="stale"),
        pytest.param("consolidate", "4", OptIns(moves=4), id="consolidate"),
        pytest.param("claim-preempted", "true", OptIns(claims=True), id="claim"),
        pytest.param("avoid-shared-gpus", "true", OptIns(whole_gpus=True), id="whole-gpus"),
        pytest.param("avoid-fragments", "true", OptIns(avoids_fragments=True), id="fragments"),
        pytest.param("reserve-after", "1h30m", OptIns(reserve_seconds=5400.0), id="reserve"),
        pytest.param("reserve-after", "0s", OptIns(reserve_seconds=0.0), id="reserve-at-once"),
        pytest.param(
            "preempt-min-runtime", "5m", OptIns(protection=Protection(preemption=300.0)), id="keep"
        ),
    ],
)
def test_an_annotation_says_what_is_wanted(name, text, expected):
    assert opt_ins_of({f"policyd.io/{name}": text}) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("queue-order", "Proportions", "unknown order `Proportions`", id="order"),
        pytest.param("binpack", "gpu=much", "`much` is not a weight", id="binpack"),
        pytest.param("binpack", "gpu=-1", "negative", id="negative"),
        pytest.param("binpack", "gpu=nan", "negative", id="no-number"),
        pytest.param("stale-gang-grace", "soon", "`soon` is not a duration", id="stale"),
        pytest.param("claim-preempted", "yes", "neither `true` nor `false`", id="claim"),
        pytest.param("consolidate", "yes", "`yes` is not a number", id="consolidate"),
        pytest.param("gang-scheduler", "volcano", "unknown scheduler `volcano`", id="scheduler"),
        pytest.param("gang-wait", "soon", "`soon` is not a duration", id="gang-wait"),
    ],
)
def test_meaningless_input_is_reported(name, text, message):
    with pytest.raises(OptInError, match=message) as caught:
        opt_ins_of({f"policyd.io/{name}": text})

    assert caught.value.hint or name in {"binpack", "claim-preempted"}
