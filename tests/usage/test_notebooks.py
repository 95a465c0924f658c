"""Which idle notebooks are stopped."""

from fractions import Fraction

import pytest
from msgspec.structs import replace

from policyd.usage.idle import PodUse
from policyd.usage.notebooks import Notebook, judge, reversal, stop_patch

END = 100_000.0
HOUR = 3_600
USE = PodUse(
    team="team-a", pod="nb-0", gpus=Fraction(1), idle=Fraction(1), busy=0.0, since=END - 3 * HOUR,
    at_least=False, known=True, devices=(),
)  # fmt: skip
NOTEBOOK = Notebook("StatefulSet", "team-a", "nb", 1, "2h", "nb-0", 0.0, 1.0)


@pytest.mark.parametrize(
    ("changed", "use", "stops", "why"),
    [
        pytest.param({}, {}, True, "idle for 3.0 hours, and 2h are allowed", id="idle"),
        pytest.param({"idle_after": "3h"}, {}, True, "idle for 3.0 hours", id="at-the-limit"),
        pytest.param({"idle_after": "181m"}, {}, False, "idle for 180 minutes", id="not-yet"),
        pytest.param({"started_at": END - HOUR}, {}, False, "idle for 60", id="started-again"),
        pytest.param({"idle_after": ""}, {}, False, "it has no annotation policyd", id="no-policy"),
        pytest.param({"idle_after": "never"}, {}, False, "is not a duration", id="text"),
        pytest.param({"idle_after": "0h"}, {}, False, "is not a duration", id="zero"),
        pytest.param({"replicas": 2}, {}, False, "it has 2 replicas", id="replicas"),
        pytest.param({}, {"since": None}, False, "its GPUs are in use", id="busy"),
        pytest.param({"gpus": 2.0}, {}, False, "not all GPUs that it requests", id="unseen"),
    ],
)
def test_a_notebook_is_stopped_after_the_time_that_a_policy_set(changed, use, stops, why):
    found = judge(NOTEBOOK._replace(**changed), replace(USE, **use), end=END)

    assert found.stops is stops
    assert found.why.startswith(why) or why in found.why


def test_a_stop_can_be_taken_back():
    verdict = judge(NOTEBOOK, USE, end=END)
    kubeflow = judge(NOTEBOOK._replace(kind="Notebook"), USE, end=END)

    assert reversal(verdict) == "kubectl scale statefulset/nb -n team-a --replicas=1"
    assert reversal(kubeflow) == "kubectl annotate notebook/nb -n team-a kubeflow-resource-stopped-"


def test_a_stop_changes_nothing_else_and_nothing_that_changed_meanwhile():
    assert stop_patch("StatefulSet", "7", at="x") == {
        "metadata": {"resourceVersion": "7"}, "spec": {"replicas": 0}
    }  # fmt: skip
    assert stop_patch("Notebook", "7", at="x") == {
        "metadata": {"resourceVersion": "7", "annotations": {"kubeflow-resource-stopped": "x"}}
    }
