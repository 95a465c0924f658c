"""The page against its users: odd paths and queries, names that are markup, forged users, floods.

Each attempt goes through the whole application, as a browser or a program would send it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Any
from urllib.parse import unquote

from policyd.dashboard.access import Identity
from policyd.dashboard.guard import OF_A_TEAM
from policyd.dashboard.live import MOST_VIEWERS_OF_A_TEAM, Hub, TooManyViewersError
from policyd.dashboard.signing_in import TrustedProxy
from policyd.kube.pace import Pace
from policyd.testing import FakeClock
from tests.attacks.figures import Figures
from tests.dashboard.looking import HOST, Looking
from tests.dashboard.test_hostile import ATTACKS as NAMES
from tests.dashboard.test_hostile import check, hostile_api

MOST_SECONDS = 0.5
"""CPU that one request may take of the page, with few objects in the cluster."""

ODD = (
    *("..", ".", "%2e%2e", "%2e%2e%2f%2e%2e", "%5c..", "a%00b", "%ff%fe", "%0d%0aX:1", "%E2%80%AE"),
    *("*", "-", "0", "%3f", "%23", "a%2fb", "%F0%9F%92%A9", "%25%32%65", "9" * 300, "a" * 4_000),
    *("(a+)+$", "%7B%7B7*7%7D%7D", "[]", "%22%27%3C%3E", "true", "null", "-1", "1e999"),
)
PATHS = (
    *("/jobs/{}/Job/x", "/jobs/ns/{}/x", "/jobs/ns/Job/{}", "/jobs/ns/Pod/{}"),
    *("/jobs/ns/Workload/{}", "/jobs/ns/PodGroup/{}", "/policies/{}", "/static/{}", "/enter/{}"),
    *("/{}", "/live/{}"),
)
VIEWS = ("/", "/pending", "/cluster", "/policies", "/what-if", "/sign-in")
PARAMETERS = (
    *("namespace", "queue", "team", "kind", "size", "order", "page", "rack", "job", "device"),
    *("resource", "until", "assume", "mode", "text", "deleted", "lost_nodes", "next"),
)


def odd() -> Figures:
    """Ask for odd paths and queries: each gets an answer soon, and the page fails at none."""
    return asyncio.run(_odd())


async def _odd() -> Figures:
    looking = Looking()
    hostile_api(looking, "plain")
    looking.enter()
    tried, worst, faults = 0, 0.0, list[str]()
    for target in _targets():
        looking.wait(1)
        began = time.process_time()
        status = await _status(looking, target)
        took = time.process_time() - began
        tried, worst = tried + 1, max(worst, took)
        if took > MOST_SECONDS or status not in ANSWERS:
            faults.append(f"{target[:80]}: {status}, {took:.1f} s")
    return Figures(tried=tried, worst_seconds=worst, faults=tuple(faults))


ANSWERS = frozenset({200, 303, 400, 401, 403, 404, 405, 503})
"""With 503, the page says that the cluster has no such snapshot."""


def _targets() -> Iterator[str]:
    yield from (path.format(each) for path, each in product(PATHS, ODD))
    yield from (f"{view}?{name}={each}" for view, name, each in product(VIEWS, PARAMETERS, ODD))
    for view in VIEWS:
        yield f"{view}?{'&'.join(f'a{number}=1' for number in range(5_000))}"
        yield f"{view}?{'&' * 60_000}"
        yield f"{view}?queue={'%41' * 20_000}"


async def _status(looking: Looking, target: str) -> int:
    path, _, query = target.partition("?")
    cookie = "; ".join(f"{name}={value}" for name, value in looking.browser.cookies.items())
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path, errors="replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 8080),
        "state": {},
    }
    answered = asyncio.Event()
    found: list[int] = []

    async def receive() -> dict[str, Any]:
        if found:  # the client goes, as some answers have no end
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])
            answered.set()

    task = asyncio.create_task(looking.page.app(scope, receive, send))
    await asyncio.wait_for(answered.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found[0]


def names() -> Figures:
    """Give everything names that are markup: they stay text on every view."""
    tried, through = 0, list[str]()
    for name, view in product(NAMES, VIEWS):
        looking = Looking()
        hostile_api(looking, name)
        looking.enter()
        tried += 1
        try:
            check(looking.get(view))
        except AssertionError:
            through.append(f"{view}: {name}")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


SECRET = "a-secret-of-the-proxy"


def forged() -> Figures:
    """Name users and groups that one is not: no view is shown."""
    tried, shown = 0, list[str]()
    for how, headers in _forgeries():
        looking = Looking(proxy=TrustedProxy(secret=SECRET))
        hostile_api(looking, "plain")
        looking.sign_in("ann", "")
        stranger = looking.another()
        for view in VIEWS[:-1]:
            tried += 1
            answer = stranger.get(view, headers=headers)
            if answer.status_code == 200:
                shown.append(f"{view}: {how}")
        if any("system:masters" in each["groups"] for each in looking.api.asked):
            shown.append(f"a group of the API server: {how}")
    return Figures(tried=tried, reads=len(shown), faults=tuple(shown))


def _forgeries() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    user, secret = "x-forwarded-user", "x-policyd-proxy-secret"
    yield "no secret", [(user, "ann")]
    yield "another secret", [(user, "ann"), (secret, "a-secret")]
    yield "an empty secret", [(user, "ann"), (secret, "")]
    yield "two secrets", [(user, "ann"), (secret, SECRET), (secret, "x")]
    yield "secrets in one", [(user, "ann"), (secret, f"{SECRET}, x")]
    yield "two users", [(user, "ann"), (user, "bob"), (secret, SECRET)]
    yield "no user", [(user, " "), (secret, SECRET)]
    yield "an account", [(user, "system:admin"), (secret, SECRET)]
    yield "two groups", [(user, "bob"), ("x-forwarded-groups", "a"), ("x-forwarded-groups", "b"),
                         (secret, SECRET)]  # fmt: skip
    yield "a group of the API server", [(user, "bob"), (secret, SECRET),
                                        ("x-forwarded-groups", "system:masters")]  # fmt: skip
    yield "a token", [("authorization", "Bearer token-of-ann")]
    yield "impersonation", [("impersonate-user", "ann")]
    yield "the API server's headers", [("x-remote-user", "ann")]
    for name in ("policyd", "__Host-policyd", "POLICYD"):
        for value in ("", "a", "ann", "token-of-ann", "A" * 4_000, "../..", "\\x00"):
            yield f"the cookie {name}", [("cookie", f"{name}={value}")]


def floods() -> Figures:
    """Have many service accounts of one namespace ask and watch: another team is answered."""
    return asyncio.run(_floods())


async def _floods() -> Figures:
    clock = FakeClock()
    hub = Hub(Pace(clock=clock, sleep=clock.sleep))
    tries = [(f"{GREEDY}:a{n}", key) for key in ("key-{}", "key-0") for n in range(600)]
    for number, (name, key) in enumerate(tries):
        await _watch(hub, name, key.format(number))
    faults = [*_rates()]
    if hub.viewers > MOST_VIEWERS_OF_A_TEAM:
        faults.append(f"{hub.viewers} viewers of one namespace")
    if not await _watch(hub, "ann", "another"):
        faults.append("no updates for another user")
    await hub.close()
    return Figures(tried=len(tries), faults=tuple(faults))


GREEDY = "system:serviceaccount:greedy"


async def _watch(hub: Hub, name: str, key: str) -> bool:
    """Have a browser wait for updates that it does not take; tell whether there was room."""

    async def render() -> dict[str, str]:
        return {"live-x": "x" * 1_000}

    async def still() -> bool:
        return True

    try:
        changes = hub.changes(key, Identity(name, "token"), render, still)
    except TooManyViewersError:
        return False
    OPENED.append(changes)
    return await anext(changes, None) is not None  # type: ignore[call-overload, no-any-return]


OPENED: list[AsyncIterator[bytes | memoryview]] = []
"""Updates that nobody takes: without a name for them, they would end."""


def _rates() -> Iterator[str]:
    looking = Looking()
    hostile_api(looking, "plain")
    accounts = []
    for number in range(8):
        browser = looking.another()
        looking.sign_in(f"{GREEDY}:a{number}", "", browser=browser)
        accounts.append(browser)
        looking.wait(3)
    looking.wait(60)
    shown = [each.get("/pending").status_code for each in accounts for _ in range(100)]
    if shown.count(200) > OF_A_TEAM.burst:
        yield f"{shown.count(200)} requests of one namespace at once"
    modest = looking.another()
    looking.sign_in("ann", "", browser=modest)
    if modest.get("/pending").status_code != 200:
        yield "another user is not answered"


ATTACKS = {
    "odd paths and queries": odd,
    "names that are markup": names,
    "forged users": forged,
    "floods of one namespace": floods,
}
