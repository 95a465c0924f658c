"""`policyd check --prove`: policies that never or always deny, or are shadowed by another."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

pytest.importorskip("z3")


def policy(name, expression, resource="pods", **spec):
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [resource],
    }
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no"}],
            **spec,
        },
    }


def check(*policies, seconds="60"):
    text = yaml.safe_dump_all(policies, sort_keys=False)
    done = CliRunner().invoke(main, ["check", "--prove", seconds, "-"], input=text)
    assert done.exit_code == 0, done.output
    return done.stderr


ON_NODE = "object.spec.?nodeName.orValue('') == 'a'"
HEADLESS = "object.spec.?clusterIP.orValue('') == 'None'"
WIDE = policy("wide", "object.spec.?hostNetwork.orValue(false) == false")
CONDITION = [{"name": "c", "expression": ON_NODE}]
NARROW = {**WIDE, "metadata": {"name": "narrow"}, "spec": {**WIDE["spec"]}}
NARROW["spec"]["matchConditions"] = CONDITION


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param(
            [policy("p", "!object.spec.?hostPID.orValue(false) || true")],
            "`p` denies no request: proved for lists and maps of up to 4 elements",
            id="never",
        ),
        pytest.param(
            [policy("p", f"{ON_NODE} && object.spec.?nodeName.orValue('') == 'b'")],
            "`p` denies each request that it matches",
            id="always",
        ),
        pytest.param(
            [WIDE, NARROW],
            "`narrow` denies nothing that `wide` in stdin:1:1 does not deny",
            id="shadowed",
        ),
    ],
)
def test_what_is_proved_is_a_warning(policies, expected):
    found = check(*policies)

    assert expected in found
    assert found.count("warning:") == 1


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([policy("p", "false")], id="written-so"),
        pytest.param([policy("p", "true", enforcement="Audit")], id="not-enforced"),
        pytest.param([WIDE, policy("other", ON_NODE)], id="apart"),
        pytest.param([WIDE, policy("other", HEADLESS, resource="services")], id="other-kinds"),
    ],
)
def test_what_is_meant_so_is_no_warning(policies):
    assert "warning" not in check(*policies)


def test_policies_that_deny_the_same_are_named_once():
    twin = {**WIDE, "metadata": {"name": "twin"}}

    assert check(WIDE, twin).count("denies nothing that") == 1


def test_what_is_not_looked_at_in_time_is_counted(monkeypatch):
    times = iter([0.0, *[100.0] * 50])
    monkeypatch.setattr(
        "policyd.cli.policies.proving.SystemClock.monotonic", lambda _clock: next(times)
    )

    assert "1 seconds are over: 6 questions are not asked" in check(WIDE, NARROW, seconds="1")
