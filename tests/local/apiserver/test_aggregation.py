"""Groups that another server answers: it gets the user and the path, and no credentials."""

import json

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.local.apiserver.client import session_with

pytestmark = pytest.mark.anyio

PATH = "/apis/other.example/v1/things/one"


async def answer_request(request):
    named = {name: request.headers.getlist(name) for name in request.headers}
    return JSONResponse({"path": request.url.path, "headers": named}, status_code=203)


@pytest.fixture
def aggregated(server):
    server.aggregate("other.example", Starlette(routes=[Route("/{rest:path}", answer_request)]))
    return server


async def test_another_server_answers_with_the_user_in_its_headers(aggregated):
    async with session_with(aggregated) as api:
        reply = await api.get(PATH, headers={"X-Remote-User": "forged"})

    seen = reply.body["headers"]
    assert (reply.code, reply.body["path"]) == (203, PATH)
    assert seen["x-remote-user"] == ["kubernetes-admin"]
    assert seen["x-remote-group"] == ["system:masters", "system:authenticated"]
    assert "authorization" not in json.dumps(reply.body)


async def test_a_user_that_is_impersonated_is_the_user(aggregated):
    async with session_with(aggregated) as api:
        reply = await api.get(PATH, headers={"Impersonate-User": "alice"})

    assert reply.body["headers"]["x-remote-user"] == ["alice"]
    assert "impersonate-user" not in reply.body["headers"]


async def test_without_a_token_nothing_is_passed_on(aggregated):
    async with session_with(aggregated) as api:
        reply = await api.get(PATH, headers={"Authorization": "Bearer wrong"})

    assert reply.code == 401


async def test_other_groups_are_answered_here(aggregated):
    async with session_with(aggregated) as api:
        assert (await api.get("/apis/apps/v1")).body["kind"] == "APIResourceList"
        assert (await api.get("/apis/others.example/v1")).code == 404
