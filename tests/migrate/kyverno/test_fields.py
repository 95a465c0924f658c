"""No field of a legacy policy is left out in silence: each is converted or refused by its name."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import PODS, legacy, rule

KEY = {"key": "{{ request.namespace }}", "operator": "Equals", "value": "a"}
UNKNOWN = {"unheard": 1}
LABELED = {"pattern": {"metadata": {"labels": {"a": "?*"}}}}
OVERLAY = {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
EACH = {"list": "request.object.spec.containers"}
DENY = {"deny": {"conditions": {"any": [KEY]}}}


def refused(given):
    """Return the paths below the first rule, or below the spec, and the reasons."""
    conversion = convert(given)
    assert not conversion.whole
    return [(each.path, each.reason) for each in conversion.refusals]


def of_rule(**parts):
    return legacy(rule(**parts))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(legacy(rule(validate=LABELED), **UNKNOWN), id="spec"),
        pytest.param(
            legacy(rule(validate=LABELED), webhookConfiguration=UNKNOWN), id="webhookConfiguration"
        ),
        pytest.param(
            legacy(
                rule(validate=LABELED),
                validationFailureActionOverrides=[{"action": "Audit", **UNKNOWN}],
            ),
            id="override",
        ),
        pytest.param(of_rule(validate=LABELED, **UNKNOWN), id="rule"),
        pytest.param(of_rule(validate=LABELED | UNKNOWN), id="validate"),
        pytest.param(
            of_rule(validate={"failureActionOverrides": [UNKNOWN], **LABELED}),
            id="override-of-a-rule",
        ),
        pytest.param(
            legacy(rule(validate=LABELED), webhookConfiguration={"matchConditions": [UNKNOWN]}),
            id="matchConditions",
        ),
        pytest.param(of_rule(validate={"deny": UNKNOWN}), id="deny"),
        pytest.param(
            of_rule(validate={"deny": {"conditions": {"any": [KEY | UNKNOWN]}}}), id="condition"
        ),
        pytest.param(
            of_rule(validate={"deny": {"conditions": [KEY | UNKNOWN]}}), id="listed-condition"
        ),
        pytest.param(
            of_rule(validate={"foreach": [EACH | DENY | UNKNOWN]}), id="foreach-of-validate"
        ),
        pytest.param(
            of_rule(validate={"podSecurity": {"level": "baseline", **UNKNOWN}}), id="podSecurity"
        ),
        pytest.param(of_rule(mutate=OVERLAY | UNKNOWN), id="mutate"),
        pytest.param(
            of_rule(mutate={"foreach": [EACH | OVERLAY | UNKNOWN]}), id="foreach-of-mutate"
        ),
        pytest.param(
            of_rule(validate=LABELED, preconditions={"all": [KEY], **UNKNOWN}), id="preconditions"
        ),
        pytest.param(of_rule(validate=LABELED, match=PODS | UNKNOWN), id="match"),
        pytest.param(
            of_rule(validate=LABELED, match={"any": [PODS["any"][0] | UNKNOWN]}), id="filter"
        ),
        pytest.param(
            of_rule(validate=DENY, context=[{"name": "v", "variable": {"value": "a"}, **UNKNOWN}]),
            id="context",
        ),
        pytest.param(
            of_rule(validate=DENY, context=[{"name": "v", "variable": {"value": "a", **UNKNOWN}}]),
            id="variable",
        ),
    ],
)
def test_an_unknown_field_is_refused_by_its_name(given):
    found = refused(given)

    assert any(path[-1] == "unheard" and "`unheard`" in reason for path, reason in found)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (legacy(rule(validate=LABELED), admission=False), "admission"),
        (legacy(rule(validate=LABELED), emitWarning=True), "emitWarning"),
        (of_rule(validate={"failureAction": "Enforced", **LABELED}), "failureAction"),
        (
            of_rule(validate={"failureActionOverrides": [{"action": "Enforced"}], **LABELED}),
            "action",
        ),
        (
            of_rule(validate={"allowExistingViolations": True, **LABELED}),
            "allowExistingViolations",
        ),
        (of_rule(validate=LABELED, celPreconditions=[{"name": "a"}]), "celPreconditions"),
        (of_rule(validate=LABELED, preconditions={"conditions": {"any": []}}), "conditions"),
        (of_rule(validate={"assert": {}, **LABELED}), "assert"),
        (
            of_rule(validate={"validationFailureAction": "Audit", **LABELED}),
            "validationFailureAction",
        ),
        (of_rule(validate=LABELED, imageExtractors={"Pod": []}), "imageExtractors"),
        (of_rule(validate=LABELED, mutate=OVERLAY), "mutate"),
        (of_rule(validate={**LABELED, "deny": {}}), "deny"),
        (of_rule(mutate={**OVERLAY, "patchesJson6902": "[]"}), "patchesJson6902"),
        (of_rule(validate=LABELED, match={**PODS, "all": PODS["any"]}), "all"),
    ],
)
def test_a_field_without_a_counterpart_is_refused_at_its_place(given, name):
    assert name in [path[-1] for path, _ in refused(given)]


def test_a_filter_beside_any_is_refused():
    ((_, reason),) = refused(of_rule(validate=LABELED, match=PODS | {"subjects": [{}]}))

    assert "beside" in reason
