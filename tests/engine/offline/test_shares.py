"""A decision tells which policy contributed what, and is the one that a review makes."""

from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.offline.shares import decide_in_shares
from tests.engine.reviews import pod, policies, policy, request

LABEL = """
priority: 9
inject:
  labels: {tier: gold}
"""
BY_LABEL = """
priority: 1
matchConditions: [{name: gold, expression: "object.metadata.?labels.?tier.orValue('') == 'gold'"}]
inject:
  annotations: {note: seen}
"""
EARLY = """
priority: 99
matchConditions: [{name: gold, expression: "object.metadata.?labels.?tier.orValue('') == 'gold'"}]
inject:
  annotations: {early: "yes"}
"""
WRONG = """
validations: [{expression: "false", message: never so}]
"""


def test_each_change_is_of_the_policy_that_made_it():
    policy_set = policies(policy(LABEL, "label"), policy(BY_LABEL, "note"), policy(WRONG, "wrong"))

    shared = decide_in_shares(policy_set, request(pod()))

    changes = {each.policy: [op.path for op in each.operations] for each in shared.shares}
    assert changes == {"label": ["/metadata/labels"], "note": ["/metadata/annotations"]}
    assert shared.object["metadata"]["annotations"] == {"note": "seen"}
    assert [each.message for each in shared.decision.denials] == ["never so"]


def test_a_policy_runs_again_after_the_changes_of_others():
    policy_set = policies(policy(LABEL, "label"), policy(EARLY, "early"))
    asked = request(pod())

    shared = decide_in_shares(policy_set, asked)

    assert [each.policy for each in shared.shares] == ["label", "early"]
    assert shared.object == policy_set.review(asked).object


def test_without_policies_the_object_stays_as_it_is():
    shared = decide_in_shares(policies(), request(pod()))

    assert (shared.shares, shared.object) == ((), pod())


def test_policies_that_are_not_reached_in_time_refuse():
    shared = decide_in_shares(policies(policy(LABEL)), request(pod()), lambda: True)

    assert not shared.shares
    assert str(OutOfTimeError()) in shared.decision.denials[0].message
