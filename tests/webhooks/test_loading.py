"""Policies are loaded beside reviews: the newest of each, and namespaces in turn."""

import asyncio
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.api.meta import ObjectMeta
from policyd.api.policy import PolicyObject
from policyd.errors import ConfigurationError
from policyd.kube.changes import Added, Deleted, Modified
from policyd.kube.pace import Pace
from tests.webhooks.reviews import policy, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.loading import Loading

pytestmark = pytest.mark.anyio
NEVER = [{"expression": "false"}]
ALWAYS = [{"expression": "true"}]


async def at_once(_seconds):
    await asyncio.sleep(0)


def pairwise(note):
    """Return what notes a change that is given as it was and as it is."""

    def both(old, new):
        note(Deleted(old) if new is None else Added(new) if old is None else Modified(old, new))

    return both


class Case:
    """Policies that are loaded in a thread, which the test may hold up."""

    def __init__(self):
        self.changes = 0
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.policies = PoliciesInForce(
            namespaces=without_cluster, metrics=self.metrics, changed=self.change
        )
        self.loading = Loading(self.policies, pace=Pace(sleep=at_once))
        self.note = pairwise(self.loading.taking(self.take))
        self.taken = []
        self.threads = set()
        self.free = threading.Event()
        self.free.set()

    def change(self):
        self.changes += 1

    def take(self, old, new):
        self.free.wait(10)
        self.threads.add(threading.get_ident())
        given = new or old
        self.taken.append((given.metadata.namespace, given.metadata.name, new and new.spec))
        if isinstance(given, PolicyObject):
            self.policies.take(old, new)

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
    return PolicyObject(
        metadata=ObjectMeta(name=name), spec=policy(name, validations=validations)["spec"]
    )


def named(name, namespace="", spec=""):
    return SimpleNamespace(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


async def test_reviews_go_on_by_what_was_in_force_until_it_is_loaded():
    async with loading() as case, asyncio.timeout(10):
        await case.loading.settled()
        case.free.clear()
        case.note(None, stored())
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
        old = None
        for number in range(1_000):
            new = named("p", spec=number)
            case.note(old, new)
            old = new
        await asyncio.sleep(0)
        case.free.set()
        await case.loading.settled()

        assert len(case.taken) <= 2
        assert case.taken[-1] == ("", "p", 999)


async def test_what_came_and_went_is_not_loaded():
    async with loading() as case, asyncio.timeout(10):
        case.free.clear()
        case.note(None, named("first"))
        await asyncio.sleep(0)
        case.note(None, named("p"))
        case.note(named("p"), None)
        case.free.set()
        await case.loading.settled()

        assert [name for _, name, _ in case.taken] in ([], ["first"])


async def test_what_is_gone_is_told_with_what_it_was_when_it_was_loaded():
    async with loading() as case, asyncio.timeout(10):
        case.note(None, stored(validations=NEVER))
        await case.loading.settled()
        case.note(stored(validations=NEVER), stored(validations=ALWAYS))
        case.note(stored(validations=ALWAYS), None)
        await case.loading.settled()

        assert case.allows()
        assert case.policies.loaded == ()


async def test_namespaces_take_turns():
    async with loading() as case, asyncio.timeout(10):
        for number in range(5):
            case.note(None, named(f"p{number}", "busy"))
        case.note(None, named("q", "calm"))
        await case.loading.settled()

        assert [name for _, name, _ in case.taken].index("q") <= 1


async def test_kinds_of_one_name_are_apart():
    async with loading() as case, asyncio.timeout(10):
        note = pairwise(case.loading.taking(case.take, lambda each: each.spec))
        note(None, named("p", spec="ValidatingPolicy"))
        note(None, named("p", spec="MutatingPolicy"))
        await case.loading.settled()

        assert [kind for *_, kind in case.taken] == ["ValidatingPolicy", "MutatingPolicy"]


@pytest.mark.parametrize("error", [ConfigurationError("no"), RecursionError("deep")])
async def test_one_that_goes_wrong_leaves_the_others_alone(error):
    async with loading() as case, asyncio.timeout(10):

        def fail():
            raise error

        case.loading.read("files", fail)
        case.note(None, stored())
        await case.loading.settled()

        assert not case.allows()


async def test_what_is_wrong_at_the_start_is_told():
    async with loading() as case:

        def fail():
            raise ConfigurationError("there is no such file")

        with pytest.raises(ConfigurationError, match="there is no such file"):
            await case.loading.first(fail)
