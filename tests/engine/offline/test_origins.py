"""By whom a field was set that the writer of an object did not send."""

from policyd.engine.offline.origins import MOST_FIELDS, origins
from policyd.engine.offline.shares import decide_in_shares
from policyd.patch.managed_fields import managed_fields, with_managed_fields
from policyd.patch.recorded import submitted
from policyd.patch.schema import schema_of_type
from policyd.patch.structured import FieldWriter, track_update
from tests.engine.reviews import pod, policies, policy, request

POD = schema_of_type("core/v1.Pod")
TIER = """
inject:
  labels: {tier: gold}
  tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
"""
OTHER_TIER = "inject: {labels: {tier: silver, team: a}}"


def stored(sent, change, *, started=None):
    """Return an object as it is stored after webhooks changed it, and a controller started it."""
    after = change(sent)
    writer = FieldWriter(manager="kubectl-create", api_version="v1", now=0.0)
    obj = with_managed_fields(after, track_update(None, sent, schema=POD, writer=writer))
    if started is None:
        return obj
    writer = FieldWriter(manager="policyd", api_version="v1", now=1.0)
    new = {**obj, "spec": {**obj["spec"], **started}}
    return with_managed_fields(new, track_update(obj, new, schema=POD, writer=writer))


def find_origins(obj, *texts):
    sent = submitted(obj, without=["policyd"])
    decided = decide_in_shares(policies(*texts), request(sent)) if texts else None
    return origins(obj, sent, decided, own="policyd")


def changed(*texts):
    return lambda sent: decide_in_shares(policies(*texts), request(sent)).object


def test_fields_are_of_the_policies_that_set_them():
    obj = stored(pod(), changed(policy(TIER, "tier")), started={"nodeSelector": {"gpu": "h100"}})
    obj["spec"]["preemptionPolicy"] = "Never"  # as the API server does

    found = find_origins(obj, policy(TIER, "tier"))

    assert [(each.path, each.policies, each.manager) for each in found.fields] == [
        ("/metadata/labels/tier", ("tier",), ""),
        ("/spec/tolerations/0", ("tier",), ""),
        ("/spec/preemptionPolicy", (), ""),
        ("/spec/nodeSelector/gpu", (), "policyd"),
    ]
    assert found.fields[0].value == '"gold"'
    assert not found.not_there


def test_what_a_policy_would_set_today_is_distinguished():
    obj = stored(pod(), changed(policy(TIER, "tier")))

    found = find_origins(obj, policy(OTHER_TIER, "other"))

    assert found.not_there == {"other": ("/metadata/labels/tier", "/metadata/labels/team")}
    assert all(not each.policies for each in found.fields)


def test_without_policies_the_fields_are_of_nobody():
    found = find_origins(stored(pod(), changed(policy(TIER, "tier"))))

    assert {each.path for each in found.fields} == {"/metadata/labels/tier", "/spec/tolerations/0"}
    assert {each.policies for each in found.fields} == {()}


def test_of_many_fields_the_first_are_named_and_the_others_counted():
    many = {f"l{number}": "x" * 999 for number in range(MOST_FIELDS + 5)}
    obj = stored(pod(), lambda sent: {**sent, "metadata": {**sent["metadata"], "labels": many}})

    found = find_origins(obj)

    assert (len(found.fields), found.more) == (MOST_FIELDS, 5)
    assert all(len(each.value.encode()) <= 300 for each in found.fields)
    assert managed_fields(obj)
