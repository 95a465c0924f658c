"""The status of Policy objects: what it says, and who writes it when."""

import asyncio
import json
from concurrent.futures import Executor, Future

import pytest

from policyd.api.meta import Condition, ObjectMeta, find_condition, timestamp
from policyd.api.policy import BindingObject, PolicyObject, PolicyStatus
from policyd.controller.policies import policy_statuses as module
from policyd.controller.policies.policy_statuses import (
    STAND_BY_SECONDS,
    PolicyStatuses,
    binding_status,
    policy_status,
)
from policyd.kube.errors import UnavailableError
from policyd.kube.namespace_limits import NamespaceLimits
from policyd.kube.resources import POLICIES, POLICY_BINDINGS
from policyd.process import loading_thread
from policyd.testing import FakeClient, FakeClock

NOW = 1_800_000_000.0
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}


def spec(expression="true", **more):
    return {
        "matchConstraints": {"resourceRules": [PODS]},
        "validations": [{"expression": expression}],
        **more,
    }


def policy(given, *, generation=3, status=None):
    metadata = ObjectMeta(name="p", generation=generation)
    return PolicyObject(metadata=metadata, spec=given, status=status)


@pytest.mark.parametrize(
    ("given", "status", "reason", "message"),
    [
        pytest.param(spec(), "True", "Compiled", "", id="good"),
        pytest.param(
            spec("1 + 1"),
            "False",
            "Invalid",
            "spec.validations[0].expression: must evaluate to bool"
            " (the expression evaluates to int)",
            id="wrong-type",
        ),
        pytest.param(
            spec(varibles=[]),
            "False",
            "Invalid",
            "spec.varibles: unknown field `varibles` (did you mean `variables`?)",
            id="unknown-field-with-a-hint",
        ),
        pytest.param(
            None,
            "False",
            "Invalid",
            "spec: `spec` must be an object, not null",
            id="no-spec-at-all",
        ),
    ],
)
def test_ready_says_whether_and_why_not_and_where(given, status, reason, message):
    [condition] = policy_status(policy(given), now=NOW).conditions

    assert (condition.type, condition.status, condition.reason) == ("Ready", status, reason)
    assert condition.message == message
    assert condition.observed_generation == 3
    assert condition.last_transition_time == timestamp(NOW)


def test_everything_that_is_wrong_is_reported():
    given = spec("1 +") | {"validations": [{"expression": "1 +"}, {"expression": "nobody"}]}

    [condition] = policy_status(policy(given), now=NOW).conditions

    fields = [line.partition(": ")[0] for line in condition.message.splitlines()]
    assert fields == ["spec.validations[0].expression", "spec.validations[1].expression"]


def test_a_condition_that_stays_keeps_its_moment():
    first = policy_status(policy(spec()), now=NOW)

    again = policy_status(policy(spec(), status=first), now=NOW + 60)
    broken = policy_status(policy(spec("1 +"), status=first), now=NOW + 60)

    assert again == first
    assert broken.conditions[0].last_transition_time == timestamp(NOW + 60)


def test_a_policy_broken_by_an_edit_names_the_version_in_force():
    good = policy_status(policy(spec(), generation=3), now=NOW)
    broken = policy_status(policy(spec("1 +"), generation=4, status=good), now=NOW + 60)
    worse = policy_status(policy(spec("1 + +"), generation=5, status=broken), now=NOW + 120)
    mended = policy_status(policy(spec(), generation=6, status=worse), now=NOW + 180)

    [first, second] = (find_condition(s.conditions, "InForce") for s in (broken, worse))
    assert first.message == (
        "generation 3 stays in force until the webhooks restart, since generation 4 does not load"
    )
    assert second.observed_generation == 3
    assert second.last_transition_time == first.last_transition_time
    assert [c.type for c in mended.conditions] == ["Ready"]


def test_a_policy_that_was_never_valid_has_nothing_in_force():
    first = policy_status(policy(spec("1 +")), now=NOW)
    again = policy_status(policy(spec("1 +"), generation=4, status=first), now=NOW)

    assert [c.type for c in again.conditions] == ["Ready"]


@pytest.mark.parametrize(
    ("given", "bound", "expected"),
    [
        pytest.param(spec(requiresBinding=True), True, ("True", "Compiled", ""), id="bound"),
        pytest.param(
            spec(requiresBinding=True),
            False,
            ("False", "Unbound", "has no effect until a PolicyBinding has `policyName: p`"),
            id="not-bound",
        ),
        pytest.param(
            spec(shadowOf="old"),
            False,
            ("True", "Shadow", "is not enforced: its differences from `old` is reported"),
            id="shadow",
        ),
    ],
)
def test_a_policy_that_has_no_say_says_why(given, bound, expected):
    [condition] = policy_status(policy(given), now=NOW, bound=bound).conditions

    assert (condition.status, condition.reason, condition.message) == expected


def binding(given, *, status=None):
    metadata = ObjectMeta(name="b", generation=2)
    return BindingObject(metadata=metadata, spec=given, status=status)


@pytest.mark.parametrize(
    ("given", "status", "reason", "message"),
    [
        pytest.param({"policyName": "p"}, "True", "Bound", "", id="good"),
        pytest.param(
            {"policyName": "q"},
            "Unknown",
            "PolicyNotFound",
            "Policy object `q` not found: this has no effect unless the webhooks load that"
            " policy from a file",
            id="for-nobody",
        ),
        pytest.param(
            {"policyName": "polcy"},
            "Unknown",
            "PolicyNotFound",
            "Policy object `polcy` not found: this has no effect unless the webhooks load"
            " that policy from a file (did you mean `policy`?)",
            id="for-nobody-by-a-slip",
        ),
        pytest.param(
            {"policyName": "p", "enforcement": "Maybe"},
            "False",
            "Invalid",
            "spec.enforcement: `Maybe` is not one of `Audit`, `Deny`, `Warn`",
            id="wrong-word",
        ),
        pytest.param(
            {"policyName": "p", "paramRef": {}},
            "False",
            "Invalid",
            "spec.paramRef: `paramRef` takes one of `name` and `selector`",
            id="params-of-no-name",
        ),
        pytest.param(None, "False", "Invalid", "field `spec` is missing", id="none"),
    ],
)
def test_a_binding_says_whether_it_counts(given, status, reason, message):
    found = binding_status(binding(given), ["p", "policy"], now=NOW)

    [condition] = found.conditions
    assert (condition.status, condition.reason, condition.message) == (status, reason, message)
    assert (found.observed_generation, condition.observed_generation) == (2, 2)


def test_a_binding_that_stays_as_it_is_keeps_its_moment():
    first = binding_status(binding({"policyName": "p"}), ["p"], now=NOW)

    again = binding_status(binding({"policyName": "p"}, status=first), ["p"], now=NOW + 60)

    assert again == first


def test_conditions_of_others_stay():
    other = Condition(type="Audited", status="True", reason="Seen")

    status = policy_status(policy(spec(), status=PolicyStatus(conditions=(other,))), now=NOW)

    assert find_condition(status.conditions, "Audited") == other


class Inline(Executor):
    """Does at once what is given to it, and counts that."""

    def __init__(self):
        self.done = 0

    def submit(self, work, /, *given, **more):
        self.done += 1
        future = Future()
        future.set_result(work(*given, **more))
        return future


class Cluster:
    """An API server in memory, and the writer of statuses beside it."""

    def __init__(self, limits=None):
        self.client, self.clock = FakeClient(), FakeClock(NOW)
        self.leading = True
        self.executor = Inline()
        self.statuses = PolicyStatuses(
            self.client,
            leading=lambda: self.leading,
            executor=self.executor,
            pace=self.clock.pace(),
            limits=limits,
        )
        self._tasks = []

    async def __aenter__(self):
        informers = (self.statuses.policies, self.statuses.bindings)
        for work in (*(informer.run() for informer in informers), self.statuses.run()):
            self._tasks.append(asyncio.create_task(work))
        return self

    async def __aexit__(self, *_error):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def create(self, name, given):
        body = {"metadata": {"name": name}, "spec": given}
        await self.client.create(POLICIES, body, into=dict)

    async def bind(self, name, to):
        body = {"metadata": {"name": name}, "spec": {"policyName": to}}
        await self.client.create(POLICY_BINDINGS, body, into=dict)

    async def ready(self, name, resource=POLICIES):
        stored = await self.client.get(resource, name, into=PolicyObject)
        condition = find_condition(stored.status.conditions, "Ready") if stored.status else None
        return condition.status if condition else None

    @property
    def patches(self):
        return [write.name for write in self.client.writes if write.verb == "patch"]


@pytest.mark.anyio
async def test_each_policy_gets_its_status_once():
    async with Cluster() as cluster:
        await cluster.create("good", spec())
        await cluster.create("bad", spec("1 +"))
        await cluster.clock.advance(60)

        assert await cluster.ready("good") == "True"
        assert await cluster.ready("bad") == "False"
        assert sorted(cluster.patches) == ["bad", "good"]


@pytest.mark.anyio
async def test_a_fixed_policy_becomes_ready():
    async with Cluster() as cluster:
        await cluster.create("p", spec("1 +"))
        await cluster.clock.advance(1)
        await cluster.client.patch(POLICIES, "p", {"spec": spec()}, into=dict)
        await cluster.clock.advance(1)

        assert await cluster.ready("p") == "True"


@pytest.mark.anyio
async def test_a_status_that_another_client_changed_is_written_again():
    async with Cluster() as cluster:
        await cluster.create("p", spec())
        await cluster.clock.advance(1)
        await cluster.client.patch(
            POLICIES, "p", {"status": {"conditions": []}}, into=dict, subresource="status"
        )
        await cluster.clock.advance(1)

        assert await cluster.ready("p") == "True"


@pytest.mark.anyio
async def test_a_stand_by_writes_nothing_until_it_leads():
    async with Cluster() as cluster:
        cluster.leading = False
        await cluster.create("p", spec())
        await cluster.clock.advance(60)
        assert cluster.patches == []

        cluster.leading = True
        await cluster.clock.advance(STAND_BY_SECONDS)

        assert await cluster.ready("p") == "True"


@pytest.mark.anyio
async def test_a_write_that_fails_is_tried_again():
    async with Cluster() as cluster:
        cluster.client.fail(UnavailableError("too busy"), verb="patch", times=2)
        await cluster.create("p", spec())
        await cluster.clock.advance(60)

        assert await cluster.ready("p") == "True"


@pytest.mark.anyio
async def test_a_policy_that_is_gone_before_its_turn_is_no_error():
    async with Cluster() as cluster:
        await cluster.create("p", spec())
        await cluster.client.delete(POLICIES, "p")
        await cluster.clock.advance(60)

        await cluster.create("q", spec())
        await cluster.clock.advance(1)
        assert await cluster.ready("q") == "True"


@pytest.mark.anyio
async def test_a_binding_waits_for_its_policy_and_the_policy_for_it():
    async with Cluster() as cluster:
        await cluster.bind("b", "p")
        await cluster.clock.advance(1)
        assert await cluster.ready("b", POLICY_BINDINGS) == "Unknown"

        await cluster.create("p", spec(requiresBinding=True))
        await cluster.clock.advance(1)
        assert await cluster.ready("b", POLICY_BINDINGS) == "True"
        assert await cluster.ready("p") == "True"

        await cluster.client.delete(POLICY_BINDINGS, "b")
        await cluster.clock.advance(1)
        assert await cluster.ready("p") == "False"


@pytest.mark.anyio
async def test_a_deleted_policy_leaves_its_binding_without_effect():
    async with Cluster() as cluster:
        await cluster.create("p", spec())
        await cluster.bind("b", "p")
        await cluster.clock.advance(1)
        await cluster.client.delete(POLICIES, "p")
        await cluster.clock.advance(1)

        assert await cluster.ready("b", POLICY_BINDINGS) == "Unknown"


@pytest.mark.anyio
async def test_statuses_are_written_once():
    async with Cluster() as cluster:
        await cluster.create("p", spec())
        await cluster.bind("b", "p")
        await cluster.clock.advance(600)

        assert sorted(cluster.patches) == ["b", "p"]


@pytest.mark.anyio
async def test_policies_are_loaded_by_the_executor_alone():
    async with Cluster() as cluster:
        await cluster.create("p", spec())
        await cluster.bind("b", "p")
        await cluster.clock.advance(1)

        assert cluster.executor.done >= 2


@pytest.mark.anyio
async def test_policies_beyond_the_limits_are_neither_kept_nor_loaded_and_say_so():
    async with Cluster(NamespaceLimits(2, 2_000_000)) as cluster:
        for number in range(5):
            await cluster.create(f"p{number}", spec(f"'{'x' * 50_000}' != ''"))
        await cluster.clock.advance(10)

        kept = cluster.statuses.policies.store.values()
        assert sum(len(json.dumps(policy.spec)) for policy in kept) < 2 * 51_000 + 1_000
        assert cluster.executor.done <= 2 * 2
        stored = await cluster.client.get(POLICIES, "p4", into=PolicyObject)
        [condition] = stored.status.conditions
        assert (condition.status, condition.reason) == ("False", "TooMany")
        assert "there are more policies than are kept (2 objects or 1 MiB)" in condition.message

        await cluster.client.delete(POLICIES, "p0")
        await cluster.client.patch(POLICIES, "p4", {"spec": spec()}, into=dict)
        await cluster.clock.advance(10)
        assert await cluster.ready("p4") == "True"


@pytest.mark.anyio
@pytest.mark.breaks
async def test_one_that_goes_wrong_leaves_the_others_their_statuses(monkeypatch):
    def fail(given, **more):
        if given.metadata.name == "bad":
            raise ValueError("nobody thought of it")
        return policy_status(given, **more)

    monkeypatch.setattr(module, "policy_status", fail)
    async with Cluster() as cluster:
        await cluster.create("bad", spec())
        await cluster.create("good", spec())
        await cluster.clock.advance(10)

        assert await cluster.ready("good") == "True"


PATTERNS = [{"expression": f"!'a'.matches('(\\\\pL{{100}}){{3}}x{n}')"} for n in range(1_000)]


def test_a_policy_that_takes_too_much_work_is_given_up():
    [condition] = policy_status(policy({**spec(), "validations": PATTERNS}), now=NOW).conditions

    assert condition.reason == "Invalid"
    assert "patterns of more than 200,000 instructions together" in condition.message


def test_a_policy_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "cpu_limit", lambda: lambda: True)
    [condition] = policy_status(policy(spec()), now=NOW).conditions

    assert condition.reason == "Invalid"
    assert "compiling the document takes too long" in condition.message


def test_a_thread_that_loads_policies_has_a_large_stack():
    executor = loading_thread()
    try:
        nested = spec("(" * 200 + "true" + ")" * 200)
        status = executor.submit(policy_status, policy(nested), now=NOW).result()
    finally:
        executor.shutdown()

    assert len(status.conditions) == 1
