"""What policies ask by HTTP is sent to the addresses that are declared, and counts for a moment."""

import ssl
import time
from contextlib import asynccontextmanager

import pytest

from policyd.certificates import Authority
from policyd.errors import ConfigurationError
from tests.webhooks.outside import AskingPolicies, sending, serving
from webhooks.external_data.fetching import MOST_BYTES, Fetcher
from webhooks.external_data.web import FRESH_SECONDS, Web

pytestmark = pytest.mark.anyio
NOW = time.time()


@asynccontextmanager
async def asking(folder, *paths, context=None):
    async with serving(context) as server:
        policies, fetcher = AskingPolicies(folder), Fetcher({})
        allowed = Web(fetcher, policies.lookups, [server.url + path for path in paths or ("/api",)])

        async def evaluate(expression):
            return await policies.evaluate(expression.replace("URL", server.url), http=allowed)

        policies.ask, policies.fetcher = evaluate, fetcher
        async with sending(fetcher):
            yield policies, server


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param('http.Get("URL/api/teams").name', "ml", id="an-object"),
        pytest.param('http.Get("URL/api/teams").statusCode', "200", id="its-status"),
        pytest.param('http.Get("URL/api/list").body[1]', "b", id="another-value"),
        pytest.param('http.Get("URL/api/missing").statusCode', "404", id="not-there"),
        pytest.param('http.Get("URL/api/text").body == null', "true", id="no-json"),
        pytest.param('http.Get("URL/api/elsewhere").statusCode', "302", id="led-elsewhere"),
        pytest.param('http.get("URL/api/teams").name', "ml", id="the-newer-name"),
        pytest.param(
            'http.Get("URL/api/teams").name + http.Get("URL/api/list").body[0]', "mla", id="two"
        ),
    ],
)
async def test_an_answer_is_what_kyverno_makes_of_it(tmp_path, expression, message):
    async with asking(tmp_path) as (policies, _):
        assert await policies.ask(expression) == message


async def test_sent_data_arrives(tmp_path):
    async with asking(tmp_path) as (policies, server):
        call = 'http.Post("URL/api/teams?a=b", {"image": "x"}, {"Team": "ml"}).name'
        assert await policies.ask(call) == "ml"
    assert server.asked == [("POST", "/api/teams?a=b", '{"image":"x"}', "ml")]


async def test_the_same_is_asked_again_after_a_moment(tmp_path):
    async with asking(tmp_path) as (policies, server):
        for _ in range(3):
            await policies.ask('http.Get("URL/api/teams").name')
        assert len(server.asked) == 1
        await policies.clock.advance(FRESH_SECONDS)
        await policies.ask('http.Get("URL/api/teams").name')
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/secret",
        "/apis",
        "/",
        "/api/../secret",
        "/api/%2e%2e/secret",
        "/api/..%2fsecret",
        "/api\\x",
        "/api/..;/secret",
        "/api/..;a=b/secret",
        "/api/.;/secret",
        "/api/%2e%2e;/secret",
        "/api/..%3b/secret",
        "/api/%252e%252e/secret",
        "/api/x%25",
        "/api/x%2fy",
        "/api/x%5cy",
        "/api/%00",
        "/api/x%0d%0aHost:%20other",
        "/api/%c0%ae%c0%ae/secret",
        "/api/\uff0e\uff0e/secret",
        "/api/x\uff0fy",
        "/api/.../secret",
        "/api/%zz",
        "/api/teams\t",
    ],
)
async def test_no_other_address_is_asked(tmp_path, path):
    async with asking(tmp_path) as (policies, server):
        answer = await policies.ask(f'http.Get(r"URL{path}").name')
    assert "policies may not call" in answer
    assert not server.asked


async def test_no_other_server_is_asked(tmp_path):
    async with asking(tmp_path, "") as (policies, server):
        for other in ("http://localhost:1/", "https://127.0.0.1/", "file:///etc/passwd", "x"):
            assert "policies may not call" in await policies.ask(f'http.Get("{other}").name')
        port = server.url.rpartition(":")[2]
        answer = await policies.ask(f'http.Get("http://user@127.0.0.1:{port}/api/teams").name')
    assert "policies may not call" in answer
    assert not server.asked


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.0.0.01", "0"),
        *("[::ffff:127.0.0.1]", "[::1]", "[fe80::1%25eth0]", "127.0.0.1@other", "a@127.0.0.1"),
        *("127.0.0.1%00", "127.0.0.1\\@other", "127.0.0.1:1@127.0.0.1", " 127.0.0.1"),
    ],
)
async def test_a_host_is_written_in_one_way_alone(tmp_path, host):
    async with asking(tmp_path, "") as (policies, server):
        port = server.url.rpartition(":")[2]
        answer = await policies.ask(f'http.Get(r"http://{host}:{port}/api/teams").name')
        if host != "[::1]":  # which is written as it should be, and another
            with pytest.raises(ConfigurationError, match="is not a URL that policies can call"):
                Web(policies.fetcher, policies.lookups, [f"http://{host}:{port}/api"])
    assert "policies may not call" in answer
    assert not server.asked


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding"),
        *("X-Original-Url", "X-Rewrite-Url", "X-HTTP-Method-Override", "Expect"),
    ],
)
async def test_no_header_makes_another_request_of_it(tmp_path, name):
    async with asking(tmp_path) as (policies, server):
        answer = await policies.ask(f'http.Get("URL/api/teams", {{"{name}": "other"}}).name')
    assert f"header `{name}` may not be set by policies" in answer
    assert not server.asked


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        pytest.param('{"a": "b\\r\\nHost: other"}', "", id="a-line"),
        pytest.param('{"a\\r\\nHost": "b"}', "", id="a-line-in-a-name"),
        pytest.param(f'{{"a": "{"b" * 20_000}"}}', "more than 16384 characters", id="long"),
    ],
)
async def test_headers_are_bounded_and_on_one_line(tmp_path, headers, why):
    async with asking(tmp_path) as (policies, server):
        answer = await policies.ask(f'http.Get("URL/api/teams", {headers}).name')
    assert "failed to send http" in answer
    assert why in answer
    assert not server.asked


async def test_an_answer_that_is_too_long_is_none(tmp_path):
    async with asking(tmp_path) as (policies, _):
        answer = await policies.ask('http.Get("URL/api/long").statusCode')
    assert f"the answer has more than {MOST_BYTES} bytes" in answer


async def test_a_server_that_is_not_there_is_reported(tmp_path):
    async with asking(tmp_path) as (policies, _):
        gone = Web(policies.fetcher, policies.lookups, ["http://127.0.0.1:1"])
        answer = await policies.evaluate('http.Get("http://127.0.0.1:1/a").name', http=gone)
    assert "failed to send http: GET http://127.0.0.1:1/a" in answer


async def test_authorities_are_those_of_the_policy(tmp_path):
    authority = Authority.create(now=NOW)
    pair = authority.issue(["127.0.0.1"], now=NOW)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    folder = tmp_path / "policies"
    folder.mkdir()
    pem = authority.certificate_pem.decode().replace("\n", "\\n")
    async with asking(folder, context=context) as (policies, _):
        assert "certificate verify failed" in await policies.ask('http.Get("URL/api/teams").name')
        answer = await policies.ask(f'http.Client("{pem}").Get("URL/api/teams").name')
        assert "not a list of PEM certificates" in await policies.ask(
            'http.Client("x").Get("URL/api/a").name'
        )
    assert answer == "ml"


@pytest.mark.parametrize("text", ["inventory", "ftp://a/b", "https://a/b?c=d", "https://u:p@a/"])
def test_an_address_that_is_none_is_reported_at_once(tmp_path, text):
    with pytest.raises(ConfigurationError, match="is not a URL that policies can call"):
        Web(Fetcher({}), AskingPolicies(tmp_path).lookups, [text])
