"""Policies are loaded beside reviews: the newest of each, and namespaces in turn."""

import asyncio
import threading
from contextlib import asynccontextmanager
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.errors import ConfigurationError
from policyd.kube.pace import Pace
from tests.webhooks.policies import stored as stored_as
from tests.webhooks.reviews import policy, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.loading import Loading
from webhooks.policies.stored import PolicyKey

pytestmark = pytest.mark.anyio
NEVER = [{"expression": "false"}]
ALWAYS = [{"expression": "true"}]


async def at_once(_seconds):
    await asyncio.sleep(0)


class Case:
    """Policies that are loaded in a thread, which the test may hold up."""

    def __init__(self):
        self.changes = 0
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.policies = PoliciesInForce(
            namespaces=without_cluster, metrics=self.metrics, changed=self.change
        )
        self.loading = Loading(self.policies, pace=Pace(sleep=at_once))
        self.taken = []
        self.threads = set()
        self.free = threading.Event()
        self.free.set()

    def change(self):
        self.changes += 1

    def note(self, name, namespace="", spec=""):
        key = PolicyKey("Policy", namespace, name)
        self.loading.note(key, partial(self.load, key, spec))

    def note_policy(self, policy):
        self.loading.note(policy.key, partial(self.load, policy.key, policy))

    def load(self, key, given):
        self.free.wait(10)
        self.threads.add(threading.get_ident())
        self.taken.append((key.namespace, key.name, given))
        if hasattr(given, "key"):
            self.policies.take(given)

    def allows(self):
        return self.policies.validate(parse_review(review())).allowed


@asynccontextmanager
async def loading():
    case = Case()
    running = asyncio.create_task(case.loading.run())
    try:
        yield case
    finally:
        case.free.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def stored(name="p", validations=NEVER):
    return stored_as(name, policy(name, validations=validations)["spec"])


async def test_reviews_go_on_by_what_was_in_force_until_it_is_loaded():
    async with loading() as case, asyncio.timeout(10):
        await case.loading.settled()
        case.free.clear()
        case.note_policy(stored())
        await asyncio.sleep(0.01)
        before = case.allows()
        case.free.set()
        await case.loading.settled()

        assert (before, case.allows()) == (True, False)
        assert case.threads != {threading.get_ident()}
        assert case.changes


async def test_of_what_changes_again_and_again_the_newest_alone_is_loaded():
    async with loading() as case, asyncio.timeout(10):
        case.free.clear()
        for number in range(1_000):
            case.note("p", spec=number)
        await asyncio.sleep(0)
        case.free.set()
        await case.loading.settled()

        assert len(case.taken) <= 2
        assert case.taken[-1] == ("", "p", 999)


async def test_objects_that_were_removed_meanwhile_are_not_loaded():
    async with loading() as case, asyncio.timeout(10):
        case.free.clear()
        case.note("first")
        await asyncio.sleep(0)
        policy = stored()
        case.note_policy(policy)
        case.loading.note(policy.key, partial(case.policies.drop, policy.key))
        case.free.set()
        await case.loading.settled()

        assert [name for _, name, _ in case.taken] == ["first"]
        assert case.allows()


async def test_namespaces_take_turns():
    async with loading() as case, asyncio.timeout(10):
        for number in range(5):
            case.note(f"p{number}", "busy")
        case.note("q", "calm")
        await case.loading.settled()

        assert [name for _, name, _ in case.taken].index("q") <= 1


@pytest.mark.parametrize("error", [ConfigurationError("no"), RecursionError("deep")])
async def test_one_that_goes_wrong_leaves_the_others_alone(error):
    async with loading() as case, asyncio.timeout(10):

        def fail():
            raise error

        case.loading.note(PolicyKey("file", "file", ""), fail)
        case.note_policy(stored())
        await case.loading.settled()

        assert not case.allows()


async def test_errors_at_the_start_are_reported():
    async with loading() as case:

        def fail():
            raise ConfigurationError("there is no such file")

        with pytest.raises(ConfigurationError, match="there is no such file"):
            await case.loading.first(fail)
