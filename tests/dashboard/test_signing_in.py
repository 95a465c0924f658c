"""Who gets in: links, tokens, proxies, sessions, forms; nobody else, and nothing leaks."""

import asyncio
import logging

import pytest
from structlog.testing import capture_logs

from policyd.dashboard.access import MOST_OF_ONE, MOST_SESSIONS, SESSION_SECONDS
from policyd.dashboard.guard import LOGGED, Address
from policyd.dashboard.signing_in import LINK_SECONDS, MOST_ASKING, SignInError, TrustedProxy
from policyd.questions.snapshots import OF_CLUSTER, OF_NAMESPACE
from tests.alloc.builders import queue
from tests.dashboard.looking import HERE, Looking
from tests.status.test_pending_reasons import settled

SECRET = "a-secret-of-the-proxy"


@pytest.fixture
def looking():
    made = Looking()
    made.api.serve(settled(queue("q", gpu=8)))
    made.api.serve(settled(queue("q", gpu=8)), scope="team-a", queues=[("team-a", "q")])
    return made


def test_without_a_session_one_is_led_to_sign_in_and_back(looking):
    answer = looking.get("/pending?team=a&size=8")

    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fpending%3Fteam%3Da%26size%3D8"
    assert looking.get("/live/").status_code == 401
    assert "clusters" not in answer.text


def test_a_page_that_another_site_leads_to_is_asked_for_again_so_that_the_cookie_comes(looking):
    answer = looking.get("/pending?team=a", **{"sec-fetch-site": "cross-site"})

    assert answer.status_code == 200
    assert 'content="0;url=/pending?team=a"' in answer.text


def test_a_link_is_good_once(looking):
    link = f"/enter/{looking.links.new()}"

    assert looking.browser.get(link).status_code == 200
    assert looking.get("/").status_code == 200
    second = looking.another().get(link)
    assert second.status_code == 401
    assert "has been used, or is too old" in second.text


def test_a_link_is_good_for_ten_minutes(looking):
    link = f"/enter/{looking.links.new()}"
    looking.wait(LINK_SECONDS)

    assert looking.browser.get(link).status_code == 401


def test_a_link_of_another_process_is_none(looking):
    assert looking.browser.get(f"/enter/{Looking().links.new()}").status_code == 401


def test_a_head_request_does_not_use_a_link_up(looking):
    link = f"/enter/{looking.links.new()}"

    assert looking.browser.head(link).status_code == 404
    assert looking.browser.get(link).status_code == 200


def test_the_terminal_shows_a_new_link_when_none_is_left_and_only_then(looking):
    looking.get("/sign-in")
    looking.get("/sign-in")

    assert len(looking.printed_links) == 1


def test_a_token_that_the_api_server_takes_signs_in(looking):
    answer = looking.sign_in("ann", "team-a")

    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert all(each in cookie for each in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=3600"))
    page = looking.get("/")
    assert page.status_code == 200
    assert "Queues of team-a" in page.text


def test_over_tls_the_cookie_is_of_this_host_alone_and_secure():
    looking = Looking(address=Address(hosts=frozenset({"page.example"}), secure=True))
    looking.api.tokens["t"] = "ann"
    browser = looking.another("page.example")
    browser.base_url = "https://page.example"
    answer = looking.post(
        "/sign-in", {"token": "t"}, browser=browser, origin="https://page.example"
    )

    assert answer.headers["set-cookie"].startswith("__Host-policyd=")
    assert "Secure" in answer.headers["set-cookie"]
    assert "Domain" not in answer.headers["set-cookie"]
    assert "max-age" in answer.headers["strict-transport-security"]


@pytest.mark.parametrize("token", ["forged", "", " ", "a\nb", "x" * 20_000, "t\0"])
def test_a_token_of_nobody_is_refused_in_a_sentence_that_does_not_repeat_it(looking, token):
    answer = looking.post("/sign-in", {"token": token})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "not a token" in answer.text or "does not accept this token" in answer.text
    assert len(token) < 3 or token not in answer.text


def test_an_api_server_that_does_not_answer_is_a_sentence(looking):
    looking.api.silent = True

    answer = looking.post("/sign-in", {"token": "t"})

    assert answer.status_code == 503
    assert "the API server does not answer" in answer.text
    assert "10.0.0.1" not in answer.text


@pytest.mark.anyio
async def test_few_tokens_are_reviewed_at_a_time(looking):
    tokens = looking.page._signing_in.tokens
    tokens._asking = MOST_ASKING

    with pytest.raises(SignInError, match="many sign in"):
        await tokens.session("t")


def test_tokens_are_neither_logged_nor_on_any_page(looking, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    looking.sign_in("ann", "", "team-a")
    pages = [looking.get(path).text for path in ("/", "/pending", "/cluster", "/sign-in")]

    outputs = [*pages, caplog.text, *capsys.readouterr()]
    assert not any("token-of-ann" in each for each in outputs)


def test_a_session_ends_after_an_hour(looking):
    looking.sign_in("ann", "team-a")
    looking.wait(SESSION_SECONDS - 1)
    assert looking.get("/").status_code == 200
    looking.wait(1)

    assert looking.get("/").status_code == 303
    assert len(looking.page.sessions) == 0


def test_a_token_that_is_revoked_ends_its_session_within_minutes(looking):
    looking.sign_in("ann", "team-a")
    del looking.api.tokens["token-of-ann"]
    looking.wait(300)

    assert looking.get("/").status_code == 303


def test_one_user_takes_the_sessions_of_nobody_else(looking):
    bob = looking.another()
    looking.sign_in("bob", "team-a", browser=bob)
    for _ in range(MOST_OF_ONE + 5):
        looking.sign_in("ann", "team-a")

    assert len(looking.page.sessions) == MOST_OF_ONE + 1
    assert bob.get("/").status_code == 200


def test_signing_out_takes_a_form_of_this_session(looking):
    looking.sign_in("ann", "team-a")
    assert looking.post("/sign-out", {"x": "y"}).status_code == 403
    assert looking.post("/sign-out", {"form_token": "0" * 64}).status_code == 403
    assert looking.get("/").status_code == 200
    (session,) = looking.page.sessions.all

    assert looking.post("/sign-out", {"form_token": session.form_token}).status_code == 303
    assert looking.get("/").status_code == 303


@pytest.mark.parametrize(
    "next_",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "javascript:alert(1)",
        "/\r\nx: y",
        "",
        "/" + "x" * 3_000,
    ],
)
def test_one_is_led_nowhere_else(looking, next_):
    looking.api.tokens["t"] = "ann"
    answer = looking.post("/sign-in", {"token": "t", "next": next_})

    assert 'content="0;url=/"' in answer.text
    assert "evil" not in answer.text


def test_one_is_led_back_to_the_page_that_was_asked_for(looking):
    looking.api.tokens["t"] = "ann"
    answer = looking.post("/sign-in", {"token": "t", "next": "/pending?team=a"})

    assert 'content="0;url=/pending?team=a"' in answer.text


# What somebody may see


def test_a_plain_user_sees_own_namespaces_only(looking):
    looking.sign_in("ann", "team-a")

    assert looking.get("/?namespace=team-a").status_code == 200
    refused = looking.get("/pending?namespace=team-b")
    assert refused.status_code == 403
    assert "ann may not see the queues of namespace team-b" in refused.text
    assert looking.get("/live/?namespace=team-b").status_code == 403
    asked = {each["resourceAttributes"]["resource"] for each in looking.api.asked}
    assert asked >= {OF_CLUSTER.plural, OF_NAMESPACE.plural}


def test_a_user_without_rights_gets_the_missing_right(looking):
    looking.sign_in("ann")
    answer = looking.get("/")

    assert answer.status_code == 403
    assert "may see the queues of no namespace" in answer.text
    assert "queuesnapshots.visibility.policyd.io" in answer.text


def test_a_right_that_is_taken_away_counts_within_half_a_minute(looking):
    looking.sign_in("ann", "team-a")
    assert looking.get("/?namespace=team-a").status_code == 200
    looking.api.grants.clear()
    looking.wait(30)

    assert looking.get("/?namespace=team-a").status_code == 403


def test_an_api_server_that_does_not_say_what_one_may_see_shows_nothing(looking):
    looking.sign_in("ann", "team-a")
    looking.api.silent = True

    assert looking.get("/?namespace=team-a").status_code == 503


# Proxies


@pytest.fixture
def proxied():
    made = Looking(proxy=TrustedProxy(secret=SECRET, user_prefix="oidc:", group_prefix="oidc:"))
    made.api.serve(settled(queue("q", gpu=8)), scope="team-a", queues=[("team-a", "q")])
    made.grant("oidc:ann", "team-a")
    return made


def headers(user="ann", secret=SECRET, groups="researchers,system:masters"):
    return {
        "x-policyd-proxy-secret": secret,
        "x-forwarded-user": user,
        "x-forwarded-groups": groups,
    }


def test_a_proxy_that_is_trusted_signs_in(proxied):
    assert proxied.get("/?namespace=team-a", **headers()).status_code == 200
    spec = proxied.api.asked[0]
    assert spec["user"] == "oidc:ann"
    assert "oidc:researchers" in spec["groups"]
    assert "oidc:system:masters" in spec["groups"]
    assert "system:masters" not in spec["groups"]


@pytest.mark.parametrize("secret", ["", "wrong", SECRET + "x", SECRET.upper()])
def test_headers_that_a_client_forges_sign_nobody_in(proxied, secret):
    assert proxied.get("/?namespace=team-a", **headers(secret=secret)).status_code == 303
    assert proxied.api.asked == []


@pytest.mark.parametrize("secret", ["", "wrong"])
def test_a_proxy_with_a_secret_and_a_certificate_needs_both(secret):
    both = Looking(proxy=TrustedProxy(secret=SECRET, names=frozenset({"the-proxy"})))

    # No certificate is shown in these tests: the right secret alone is not enough.
    assert both.get("/", **headers()).status_code == 303
    assert both.get("/", **headers(secret=secret)).status_code == 303


def test_headers_are_nothing_where_no_proxy_is_configured(looking):
    assert looking.get("/", **headers()).status_code == 303


@pytest.mark.parametrize("user", ["system:admin", "system:serviceaccount:a:b", "", " "])
def test_a_proxy_names_no_user_of_the_api_server(user):
    looking = Looking(proxy=TrustedProxy(secret=SECRET))

    assert looking.get("/", **headers(user=user)).status_code == 303


def test_groups_of_the_api_server_are_left_out():
    looking = Looking(proxy=TrustedProxy(secret=SECRET))
    looking.get("/?namespace=team-a", **headers())

    assert looking.api.asked[0]["groups"] == ["researchers", "system:authenticated"]


def test_a_header_that_is_there_twice_is_from_a_client(proxied):
    given = [*headers().items(), ("x-forwarded-user", "root")]

    assert proxied.browser.get("/?namespace=team-a", headers=given).status_code == 303


def test_who_a_proxy_signs_in_reads_only_what_both_may(proxied):
    answer = proxied.get("/?namespace=team-a", **headers())

    assert "you may not list the events of namespace team-a" in answer.text


# Requests as such


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "a@localhost",
        "x" * 999,
    ],
)
def test_another_host_is_refused_as_a_name_could_be_bound_to_loopback(looking, host):
    looking.enter()
    answer = looking.get("/", host=host)

    assert answer.status_code == 421
    assert "not served under that name" in answer.text
    assert "team" not in answer.text


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
def test_loopback_is_called_by_its_names(looking, host):
    assert looking.get("/sign-in", host=host).status_code == 200


@pytest.mark.parametrize(
    ("origin", "more"),
    [
        ("https://evil.example", {}),
        ("null", {}),
        (None, {}),
        ("http://localhost:9999", {}),
        ("https://localhost:8080", {}),
        (HERE, {"sec-fetch-site": "cross-site"}),
        (HERE, {"sec-fetch-site": "same-site"}),
    ],
)
def test_forms_of_other_sites_are_refused(looking, origin, more):
    looking.api.tokens["t"] = "ann"
    answer = looking.post("/sign-in", {"token": "t"}, origin=origin, **more)

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_body_that_is_no_form_is_refused(looking):
    given = {"origin": HERE, "content-type": "application/json"}
    assert looking.browser.post("/sign-in", content=b"{}", headers=given).status_code == 415


def test_a_form_without_end_is_refused(looking):
    assert looking.post("/sign-in", {"token": "x" * 600_000}).status_code == 413


def test_a_form_with_many_fields_is_refused(looking):
    assert looking.post("/sign-in", {f"f{n}": "x" for n in range(100)}).status_code == 400


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("team=" + "x" * 300, "longer than 256"),
        ("&".join(f"a{n}=1" for n in range(40)), "more than 32 parameters"),
        ("team=" + "x" * 9_000, "longer than 4096"),
    ],
)
def test_huge_filters_are_a_sentence(looking, query, message):
    looking.enter()
    answer = looking.get(f"/pending?{query}")

    assert answer.status_code == 400
    assert message in answer.text


def test_every_answer_forbids_other_scripts_and_frames(looking):
    looking.enter()
    for path in ("/", "/sign-in", "/nothing", "/static/page.js", "/pending?x=" + "y" * 999):
        given = looking.get(path).headers
        assert given["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in given["content-security-policy"]
        assert given["x-content-type-options"] == "nosniff"
        assert given["referrer-policy"] == "same-origin"
    assert looking.get("/").headers["cache-control"] == "no-store"


def test_an_unforeseen_error_says_nothing_of_itself(looking, monkeypatch):
    looking.enter()
    monkeypatch.setattr(looking.page, "_scopes", None)
    answer = looking.get("/")

    assert answer.status_code == 500
    assert "NoneType" not in answer.text
    assert "Traceback" not in answer.text


def test_service_accounts_of_a_namespace_take_the_sessions_of_no_others(looking):
    async def begin_all():
        await looking.page.sessions.begin(ann := looking.session("ann"))
        for number in range(MOST_SESSIONS + 1):
            account = f"system:serviceaccount:greedy:a{number}"
            await looking.page.sessions.begin(looking.session(account))
        return ann

    ann = asyncio.run(begin_all())

    assert ann in looking.page.sessions.all
    assert len(looking.page.sessions) == MOST_SESSIONS


def test_a_request_that_fails_again_and_again_does_not_fill_the_log(looking, monkeypatch):
    looking.enter()
    monkeypatch.setattr(looking.page, "_scopes", None)
    with capture_logs() as logged:
        found = {looking.get("/").status_code for _ in range(3 * LOGGED.burst)}

    assert found == {500}
    assert len(logged) == LOGGED.burst


@pytest.mark.parametrize("host", ["[", "[::1", "a]b", "[x]", "]"])
def test_a_host_that_is_no_name_is_refused(looking, host):
    assert looking.get("/sign-in", host=host).status_code == 421


@pytest.mark.parametrize("name", ["..", "."])
@pytest.mark.parametrize(
    "path", ["/jobs/{}/Job/x", "/jobs/ns/Job/{}", "/jobs/ns/Workload/{}", "/?namespace={}"]
)
def test_a_name_that_leads_elsewhere_is_that_of_no_page(looking, path, name):
    looking.enter()

    assert looking.get(path.format(name.replace(".", "%2e"))).status_code == 404


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/static/app.py", "/enter/"])
def test_there_is_nothing_else(looking, path):
    assert looking.get(path).status_code == 404


def test_probes_need_no_session_and_say_nothing(looking):
    assert looking.get("/healthz", host="10.0.0.1:8080").text == "ok\n"


def test_somebody_may_type_a_namespace_that_is_not_offered(looking):
    looking.sign_in("ann")
    page = looking.get("/pending").text

    assert '<input id="other" name="namespace"' in page
    assert "Queues of" not in page
    looking.grant("ann", "team-a")
    looking.wait(30)
    assert looking.get("/pending?namespace=team-a").status_code == 200
