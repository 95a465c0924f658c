"""Exceptions lift what they say, for whom they say, until they end; and say why."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, policy, request

EXCEPTED = """
validations:
- {name: small, expression: "size(object.spec.containers) < 2", message: too many}
- {name: named, expression: "object.spec.containers.all(c, c.name.startsWith('m'))", message: name}
exceptions:
- {reason: INC-1, %s}
"""


def excepted(terms, *, user="someone", now=None):
    obj = pod()
    obj["spec"]["containers"] = [{"name": "main"}, {"name": "debug"}]
    loaded = load_policies(policy(EXCEPTED % terms), "policy.yaml")
    assert not loaded.findings, loaded.findings
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), now=now)
    asked = PolicySet(loaded.policies, surroundings=surroundings)
    decision = asked.validate(request(obj, user=user, groups=["ops"]))
    return [denial.message for denial in decision.denials], decision.audit_annotations


BOTH = ["too many", "name"]


@pytest.mark.parametrize(
    ("terms", "left"),
    [
        pytest.param("users: [someone]", [], id="of-a-user"),
        pytest.param("users: [another]", BOTH, id="of-another-user"),
        pytest.param("groups: [ops, dev]", [], id="of-a-group"),
        pytest.param("namespaces: [team-a], users: [another]", BOTH, id="all-must-hold"),
        pytest.param("expression: object.metadata.name == 'a'", [], id="by-cel"),
        pytest.param("validations: [small]", ["name"], id="of-a-validation"),
        pytest.param("containers: [debug]", [], id="of-a-container"),
        pytest.param("containers: [main]", ["name"], id="the-other-container-must-pass"),
        pytest.param(
            "containers: [debug], validations: [named]", ["too many"], id="of-both-together"
        ),
    ],
)
def test_an_exception_exempts_from_the_named_parts(terms, left):
    assert excepted(terms)[0] == left


@pytest.mark.parametrize(
    ("now", "left"),
    [
        pytest.param(lambda: 1_801_439_999.0, [], id="on-its-last-day"),  # 2027-01-31 23:59:59
        pytest.param(lambda: 1_801_440_000.0, BOTH, id="on-the-day-after"),
        pytest.param(None, BOTH, id="without-a-clock"),
    ],
)
def test_an_exception_ends(now, left):
    assert excepted('users: [someone], until: "2027-01-31"', now=now)[0] == left


def test_the_reason_of_an_exemption_is_in_the_audit_log():
    assert excepted("owner: ops, users: [someone]")[1] == {"lifted-by": "p: INC-1 (ops)"}
