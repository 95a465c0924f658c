"""A proxy that is known by its client certificate, over TLS as the command serves it."""

import asyncio
import ssl

import aiohttp
import pytest

from policyd.cli.questions.dashboard import _listening, _proxy
from policyd.dashboard.guard import Address
from policyd.dashboard.serve import with_sign_in
from policyd.questions.snapshots import OF_CLUSTER
from tests.dashboard.looking import FakeApi
from tests.dashboard.made import made_queue, made_snapshot
from tests.kube.test_connection import pair

pytestmark = pytest.mark.anyio

SERVER = pair("the page", hosts=["localhost"])
PROXY, COLLEAGUE = pair("the-proxy", hosts=["proxy"]), pair("a-colleague", hosts=["colleague"])
IMPOSTOR = pair("the-proxy", hosts=["proxy"])
"""A certificate of the proxy's name, by an authority that the page does not trust."""
ANN = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "research"}


SECRET = "a-secret-of-the-proxy-with-32-chars"


@pytest.fixture
def given(request, tmp_path):
    """The options of the command: with the secret of the parameter, if there is one."""
    secret = getattr(request, "param", "")
    (tmp_path / "secret").write_text(secret)
    files = {"certificate": SERVER[0], "key": SERVER[1], "client_ca": PROXY[0] + COLLEAGUE[0]}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    return {
        **{name: str(tmp_path / name) for name in files},
        "proxy_name": ("the-proxy",),
        "proxy_secret_file": str(tmp_path / "secret") if secret else None,
        "proxy_user_header": "X-Forwarded-User",
        "proxy_groups_header": "X-Forwarded-Groups",
        "proxy_user_prefix": "oidc:",
        "proxy_group_prefix": "oidc:",
    }


@pytest.fixture
async def page(given, monkeypatch):
    """A page for a proxy, and its port; `oidc:ann` may see all queues."""
    api = FakeApi()
    api.grants.add(("oidc:ann", OF_CLUSTER.plural, ""))

    async def ask(_reader, _scope):
        return made_snapshot(made_queue("q"))

    monkeypatch.setattr("policyd.questions.snapshots.ask", ask)
    listening, address = _listening(given), Address(secure=True)
    serving = with_sign_in(
        api, None, _proxy(given), address, listening, host="127.0.0.1", port=0
    )  # fmt: skip
    ended, started = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve():  # a context of an event loop begins and ends in one task
        async with serving as port:
            started.set_result(port)
            await ended.wait()

    running = asyncio.create_task(serve())
    yield api, await started
    ended.set()
    await running


async def answer(folder, port, shown, **headers):
    """Return status and text of the overview; None if the page does not answer."""
    context = ssl.create_default_context(cadata=SERVER[0].decode())
    if shown is not None:
        for name, text in zip(("shown.crt", "shown.key"), shown, strict=True):
            (folder / name).write_bytes(text)
        context.load_cert_chain(folder / "shown.crt", folder / "shown.key")
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(
                f"https://localhost:{port}/", headers=headers, allow_redirects=False
            ) as given,
        ):
            return given.status, await given.text()
    except (aiohttp.ClientError, OSError):
        return None


async def test_the_proxy_says_who_somebody_is(page, tmp_path):
    api, port = page

    status, text = await answer(tmp_path, port, PROXY, **ANN)

    assert status == 200
    assert "oidc:ann" in text
    assert {each["user"] for each in api.asked} == {"oidc:ann"}
    assert api.asked[0]["groups"] == ["oidc:research", "system:authenticated"]


@pytest.mark.parametrize(
    "shown",
    [None, COLLEAGUE, IMPOSTOR],
    ids=["no-certificate", "another-name", "another-authority"],
)
async def test_other_clients_are_not_answered(page, tmp_path, shown):
    api, port = page

    assert await answer(tmp_path, port, shown, **ANN) is None
    assert api.asked == []
    assert (await answer(tmp_path, port, PROXY, **ANN))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nobody"),
        pytest.param({"X-Forwarded-User": " "}, id="blank"),
        pytest.param({"X-Policyd-Proxy-Secret": "guessed"}, id="secret-alone"),
    ],
)
async def test_the_proxy_alone_signs_nobody_in(page, tmp_path, headers):
    api, port = page

    status, _ = await answer(tmp_path, port, PROXY, **headers)

    assert status == 303
    assert api.asked == []


@pytest.mark.parametrize("given", [SECRET], indirect=True)
async def test_a_certificate_is_not_enough_where_a_secret_is_configured(page, tmp_path):
    api, port = page

    alone, _ = await answer(tmp_path, port, PROXY, **ANN)
    wrong, _ = await answer(tmp_path, port, PROXY, **ANN, **{"X-Policyd-Proxy-Secret": SECRET[:-1]})
    asked = [*api.asked]
    both, text = await answer(tmp_path, port, PROXY, **ANN, **{"X-Policyd-Proxy-Secret": SECRET})

    assert (alone, wrong, asked) == (303, 303, [])
    assert both == 200
    assert "oidc:ann" in text
