"""Feature gates that are left out: each with a reason, and nobody sets one without being told."""

import re
from pathlib import Path

import msgspec
import pytest

from policyd.alloc.settings import Gates
from policyd.api.configuration.gates import DEFAULTS, LOCKED
from policyd.api.configuration.left_out import LEFT_OUT, gates_in_vain

PRODUCT = Path(__file__).parents[2] / "policyd"
FIELDS = {field.encode_name for field in msgspec.structs.fields(Gates)}


def mentioned():
    """The gates that the product's code names, but for the lists of gates themselves."""
    code = "\n".join(
        path.read_text()
        for path in PRODUCT.rglob("*.py")
        if path.name not in {"gates.py", "left_out.py"}
    )
    names = {name.lower() for name in re.findall(r"\w+", code.replace("_", ""))}
    return {name for name in DEFAULTS if name.lower() in names}


def test_every_gate_is_heeded_locked_or_left_out_with_a_reason():
    assert DEFAULTS.keys() - LEFT_OUT.keys() - LOCKED <= mentioned()
    assert DEFAULTS.keys() >= LEFT_OUT.keys()
    assert all(left_out.reason for left_out in LEFT_OUT.values())


def test_what_the_core_heeds_is_not_left_out():
    assert not FIELDS & LEFT_OUT.keys()


@pytest.mark.parametrize(
    ("gates", "told"),
    [
        pytest.param({}, [], id="nothing-is-set"),
        pytest.param({"PartialAdmission": False}, [], id="a-gate-that-is-heeded"),
        pytest.param({"WorkloadRequestUseMergePatch": True}, [], id="what-is-so-anyway"),
        pytest.param(
            {"MultiKueueClusterProfile": True, "WorkloadRequestUseMergePatch": False},
            [
                "feature gate `MultiKueueClusterProfile` is set to true, but stays off:"
                " jobs are not sent to other clusters",
                "feature gate `WorkloadRequestUseMergePatch` is set to false, but stays on:"
                " every status is a merge patch",
            ],
            id="what-is-left-out",
        ),
    ],
)
def test_who_sets_what_is_left_out_is_told_why(gates, told):
    assert list(gates_in_vain("", gates)) == told
