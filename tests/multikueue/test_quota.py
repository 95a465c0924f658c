"""Quota of a manager that follows the quotas of workers, which may say anything."""

import msgspec
import pytest

from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.kueue.multikueue import MultiKueueConfig, MultiKueueConfigSpec
from policyd.multikueue.quota import WorkerQueues, plan_quota

LOCAL = msgspec.convert(
    {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}, LocalQueue
)


def queue(amount):
    quota = [{"name": "cpu", "nominalQuota": amount}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quota}]}
    body = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}}
    return msgspec.convert(body, ClusterQueue)


@pytest.mark.parametrize("amount", ["-5", "many", "1e999999"])
def test_an_amount_that_is_none_adds_nothing(amount):
    config = MultiKueueConfig(spec=MultiKueueConfigSpec(quota_management="Automated"))
    workers = [WorkerQueues([LOCAL], [queue(each)]) for each in ("7", amount)]

    found = plan_quota(queue("0"), config, [LOCAL], workers)

    assert found.quotas == (("cpu", "7"),)
