"""What GlobalContextEntries call is asked where it is declared, and kept as long as they say."""

import json
from contextlib import asynccontextmanager

import pytest

from tests.webhooks.outside import AskingPolicies, sending, serving
from webhooks.external_data.fetching import Fetcher
from webhooks.external_data.reads import ClusterObjects
from webhooks.external_data.web import Web

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def holding(folder, **call):
    """Policies beside an entry that calls, and the server that is called."""
    async with serving() as server:
        policies, fetcher = AskingPolicies(folder), Fetcher({})
        http = Web(fetcher, policies.lookups, [f"{server.url}/api"])
        reads = ClusterObjects(None, [], pace=None)
        service = {"url": server.url + call.pop("path", "/api/teams"), **call.pop("service", {})}
        entry = {
            "apiVersion": "kyverno.io/v2alpha1",
            "kind": "GlobalContextEntry",
            "metadata": {"name": "teams"},
            "spec": {"apiCall": {"service": service, **call}},
        }
        (folder / "entries.json").write_text(json.dumps(entry))

        async def evaluate(expression):
            return await policies.evaluate(f"globalContext.Get{expression}", reads=reads, http=http)

        policies.ask = evaluate
        async with sending(fetcher):
            yield policies, server


@pytest.mark.parametrize(
    ("path", "expression", "message"),
    [
        pytest.param("/api/teams", "('teams', '').name", "ml", id="an-object"),
        pytest.param("/api/list", "('teams')[1]", "b", id="another-value"),
    ],
)
async def test_an_entry_holds_what_is_answered(tmp_path, path, expression, message):
    async with holding(tmp_path, path=path) as (policies, _):
        assert await policies.ask(expression) == message


async def test_the_body_of_the_entry_is_sent(tmp_path):
    headers = [{"key": "Team", "value": "ml"}]
    data = [{"key": "image", "value": "x"}, {"key": "gpus", "value": 8}]
    call = {"method": "POST", "data": data, "service": {"headers": headers}}
    async with holding(tmp_path, **call) as (policies, server):
        assert await policies.ask("('teams').name") == "ml"
    assert server.asked == [("POST", "/api/teams", '{"image":"x","gpus":8}', "ml")]


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        pytest.param({"refreshInterval": "1h30m"}, 5400, id="as-it-says"),
        pytest.param({}, 600, id="by-default"),
    ],
)
async def test_an_answer_is_kept_until_it_is_to_be_refreshed(tmp_path, call, seconds):
    async with holding(tmp_path, **call) as (policies, server):
        await policies.ask("('teams').name")
        await policies.clock.advance(seconds - 1)
        await policies.ask("('teams').name")
        assert len(server.asked) == 1
        await policies.clock.advance(1)
        await policies.ask("('teams').name")
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param({"path": "/secret"}, "policies may not call `http", id="undeclared"),
        pytest.param({"path": "/api/missing"}, "answered 404", id="status"),
        pytest.param({"path": "/api/elsewhere"}, "answered 302", id="redirect"),
        pytest.param({"path": "/api/text"}, "did not answer with JSON", id="no-json"),
        pytest.param({"method": "PUT"}, "entry `teams` cannot be read: Invalid", id="method"),
        pytest.param(
            {"refreshInterval": "soon"},
            "`soon` of entry `teams` is not a refreshInterval: write `10m`",
            id="no-time",
        ),
        pytest.param({"refreshInterval": "0s"}, "is not a refreshInterval", id="no-moment"),
        pytest.param(
            {"service": {"caBundle": "x"}},
            "not a list of PEM certificates",
            id="authorities-of-the-entry",
        ),
    ],
)
async def test_a_call_without_an_answer_says_why(tmp_path, call, why):
    async with holding(tmp_path, **call) as (policies, _):
        assert why in await policies.ask("('teams').name")


async def test_failed_answers_are_not_cached(tmp_path):
    async with holding(tmp_path, path="/api/missing") as (policies, server):
        await policies.ask("('teams').name")
        await policies.ask("('teams').name")
    assert len(server.asked) == 2
