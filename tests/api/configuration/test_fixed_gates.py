"""Feature gates that are left out: each with a reason, and nobody sets one without being told."""

import msgspec
import pytest

from policyd.alloc.settings import Gates
from policyd.api.configuration.fixed_gates import LEFT_OUT, ineffective_gates
from policyd.api.configuration.gates import DEFAULTS, LOCKED, validate_gates
from tests.gates import flipped, unfounded
from tests.generate_versions import stages


def test_every_gate_is_flipped_by_a_test_or_left_out_with_a_reason():
    assert flipped().keys() | LEFT_OUT.keys() == DEFAULTS.keys()
    assert not flipped().keys() & LEFT_OUT.keys()
    assert all(left_out.reason for left_out in LEFT_OUT.values())


def test_tests_say_something_of_the_gates_that_they_are_marked_with():
    assert unfounded() == []


def test_settings_of_the_core_are_gates():
    assert {field.encode_name for field in msgspec.structs.fields(Gates)} <= DEFAULTS.keys()


def test_no_gate_of_kueue_is_unknown_or_off_where_kueue_has_it_on():
    default = {name: history[-1].default == "on" for name, history in stages().items()}
    here = {n: LEFT_OUT[n].on if n in LEFT_OUT else on for n, on in DEFAULTS.items()}

    assert here.keys() == default.keys()
    assert [name for name, on in default.items() if on and not here[name]] == []


@pytest.mark.parametrize("name", sorted(LOCKED))
def test_locked_gates_of_kueue_cannot_be_set(name):
    _, errors = validate_gates("", {name: not DEFAULTS[name]})

    assert "feature is locked" in errors[0].message


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param({}, [], id="nothing-is-set"),
        pytest.param({"PartialAdmission": False}, [], id="a-gate-that-is-heeded"),
        pytest.param({"WorkloadRequestUseMergePatch": True}, [], id="what-is-so-anyway"),
        pytest.param(
            {"ShortWorkloadNames": True, "WorkloadRequestUseMergePatch": False},
            [
                "feature gate `ShortWorkloadNames` is set to true, but stays off:"
                " names stay as they are in a cluster that runs",
                "feature gate `WorkloadRequestUseMergePatch` is set to false, but stays on:"
                " every status is a merge patch",
            ],
            id="what-is-left-out",
        ),
    ],
)
def test_a_user_who_sets_an_ignored_gate_gets_the_reason(gates, expected):
    assert list(ineffective_gates("", gates)) == expected
