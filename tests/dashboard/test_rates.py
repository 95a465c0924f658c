"""Requests that are too many: of one user, of one address, and nobody else's."""

import pytest
from starlette.testclient import TestClient

from policyd.dashboard import guard
from policyd.dashboard.access import Identity
from policyd.dashboard.guard import (
    OF_A_TEAM,
    OF_A_USER,
    OF_AN_ADDRESS,
    SIGN_INS,
    Rate,
    RequestRates,
    client_of,
)
from policyd.dashboard.signing_in import TrustedProxy
from policyd.testing.clock import FakeClock
from tests.dashboard.looking import HOST, Looking

SECRET = "a-secret-of-the-proxy"


@pytest.fixture
def looking():
    return Looking()


def statuses(count, ask):
    return [ask().status_code for _ in range(count)]


def from_address(looking, host):
    return TestClient(
        looking.page.app, base_url=f"http://{HOST}", client=(host, 1), follow_redirects=False
    )


def test_one_user_is_refused_and_no_other(looking):
    looking.sign_in("ann", "")
    bob = looking.another()
    looking.sign_in("bob", "", browser=bob)

    given = statuses(OF_A_USER.burst + 5, lambda: looking.get("/missing-scope"))
    shown = statuses(OF_A_USER.burst + 5, lambda: looking.get("/pending"))

    assert set(given) == {404}  # no page, and nothing to limit
    assert shown[: OF_A_USER.burst].count(429) == 0
    assert shown[OF_A_USER.burst :] == [429] * 5
    assert bob.get("/pending").status_code != 429


def test_service_accounts_of_a_namespace_share_a_rate_and_others_do_not(looking):
    def get(namespace, number):
        browser, name = looking.another(), f"system:serviceaccount:{namespace}:a{number}"
        looking.sign_in(name, "", browser=browser)
        looking.wait(3.0)
        return browser

    accounts = [get("greedy", number) for number in range(6)]
    looking.wait(60)
    given = [each.get("/pending").status_code for each in accounts for _ in range(OF_A_USER.burst)]

    assert 429 not in given[: OF_A_TEAM.burst]
    assert set(given[OF_A_TEAM.burst :]) == {429}
    assert get("modest", 0).get("/pending").status_code != 429


@pytest.mark.parametrize(
    ("name", "team"),
    [
        pytest.param("ann", "ann", id="a-person"),
        pytest.param("system:serviceaccount:ns:a", "system:serviceaccount:ns", id="an-account"),
        pytest.param("x:system:serviceaccount:n:a", "x:system:serviceaccount:n:a", id="of-a-proxy"),
        pytest.param("system:serviceaccount:", "system:serviceaccount:", id="no-account"),
    ],
)
def test_limits_are_shared_by_accounts_of_a_namespace(name, team):
    assert Identity(name, "token").team == team


def test_a_session_more_is_no_share_more(looking):
    looking.sign_in("ann", "")
    again = looking.another()
    looking.sign_in("ann", "", browser=again)

    statuses(OF_A_USER.burst, lambda: looking.get("/pending"))

    assert again.get("/pending").status_code == 429


def test_it_says_when_to_try_again_and_goes_on_then(looking):
    looking.sign_in("ann", "")
    statuses(OF_A_USER.burst, lambda: looking.get("/pending"))

    refused = looking.get("/pending")
    looking.wait(float(refused.headers["retry-after"]))

    assert "too many requests" in refused.text
    assert looking.get("/pending").status_code != 429


def test_strangers_are_counted_by_their_address(looking):
    noisy, quiet = from_address(looking, "192.0.2.1"), from_address(looking, "192.0.2.2")

    given = statuses(OF_AN_ADDRESS.burst + 1, lambda: noisy.get("/pending"))

    assert given[-1] == 429
    assert quiet.get("/pending").status_code == 303
    assert quiet.get("/sign-in").status_code == 200


def test_a_flood_of_strangers_takes_nothing_from_those_who_are_signed_in(looking):
    looking.sign_in("ann", "")
    stranger = looking.another()

    given = statuses(OF_AN_ADDRESS.burst + 1, lambda: stranger.get("/sign-in"))

    assert given[-1] == 429
    assert looking.get("/pending").status_code != 429


def test_few_tokens_are_reviewed_for_one_address(looking):
    given = statuses(SIGN_INS.burst + 3, lambda: looking.post("/sign-in", {"token": "guess"}))

    assert given == [401] * SIGN_INS.burst + [429] * 3
    assert looking.get("/healthz").status_code == 200


def test_those_whom_a_proxy_signs_in_are_counted_by_name_though_their_address_is_the_same():
    looking = Looking(proxy=TrustedProxy(secret=SECRET))

    def get(user):
        return looking.get("/", **{"x-policyd-proxy-secret": SECRET, "x-forwarded-user": user})

    given = statuses(OF_A_USER.burst + 1, lambda: get("ann"))

    assert given[-1] == 429
    assert get("bob").status_code != 429


def test_tokens_come_back_with_time_up_to_the_burst():
    clock = FakeClock()
    made = RequestRates(clock, Rate(2.0, 4))

    assert [made.wait("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    clock._pass(0.5)
    assert [made.wait("a"), made.wait("a")] == [0, 0.5]
    clock._pass(3_600)
    assert [made.wait("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]


def test_however_many_clients_there_are_few_are_remembered(monkeypatch):
    monkeypatch.setattr(guard, "MOST_BUCKETS", 3)
    made = RequestRates(FakeClock(), Rate(1.0, 1))

    for name in "abcde":
        assert made.wait(name) == 0

    assert len(made) == 3
    assert made.wait("e") > 0


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_a_client_has_the_network_part_of_its_address(host, client):
    assert client_of(host) == client
