"""Passwords of registries are read from a file as Docker keeps them, and quoted nowhere."""

import asyncio
import json
from base64 import b64encode

import pytest
from structlog.testing import capture_logs

from policyd.config import Settings
from policyd.errors import ConfigurationError
from webhooks.external_data.passwords import Passwords
from webhooks.policies.reading import read_policies
from webhooks.shared import WebhookServer

SECRET = b64encode(b"me:s3cret").decode()
ENTRY = {"auth": SECRET}


def reading(folder, auths):
    (folder / "config.json").write_text(json.dumps({"auths": auths}))
    passwords = Passwords(folder / "config.json")
    passwords.read()
    return passwords


@pytest.mark.parametrize(
    ("name", "entry", "place"),
    [
        pytest.param("ghcr.io", ENTRY, "ghcr.io/team/app", id="a-registry"),
        pytest.param("https://ghcr.io/v2/", ENTRY, "ghcr.io/team/app", id="its-address"),
        pytest.param("ghcr.io/team", ENTRY, "ghcr.io/team/app", id="a-part-of-it"),
        pytest.param("r.example:5000", ENTRY, "r.example:5000/app", id="port"),
        pytest.param(
            "https://index.docker.io/v1/", ENTRY, "index.docker.io/library/a", id="docker's"
        ),
        pytest.param("docker.io", ENTRY, "index.docker.io/library/a", id="docker's-short-name"),
        pytest.param(
            "ghcr.io", {"username": "me", "password": "s3cret"}, "ghcr.io/a", id="not-encoded"
        ),
    ],
)
def test_a_password_counts_for_what_is_below_its_name(tmp_path, name, entry, place):
    assert reading(tmp_path, {name: entry}).of(place) == f"Basic {SECRET}"


@pytest.mark.parametrize(
    ("name", "entry", "place"),
    [
        pytest.param("ghcr.io", ENTRY, "quay.io/team/app", id="another-registry"),
        pytest.param("ghcr.io", ENTRY, "ghcr.io.evil.example/app", id="longer-name"),
        pytest.param("ghcr.io/team", ENTRY, "ghcr.io/teams/app", id="another-part"),
        pytest.param("ghcr.io", {}, "ghcr.io/team/app", id="kept-by-a-helper"),
        pytest.param("ghcr.io", {"identitytoken": "x"}, "ghcr.io/team/app", id="another-way"),
    ],
)
def test_others_get_no_password(tmp_path, name, entry, place):
    assert reading(tmp_path, {name: entry}).of(place) == ""


def test_the_nearest_entry_counts(tmp_path):
    other = {"username": "b", "password": "c"}
    passwords = reading(tmp_path, {"ghcr.io": other, "ghcr.io/team": ENTRY})

    assert passwords.of("ghcr.io/team/app") == f"Basic {SECRET}"
    assert passwords.of("ghcr.io/app") == f"Basic {b64encode(b'b:c').decode()}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param('{"auths": {"ghcr.io": {"auth": "s3cret"}}}', "of `ghcr.io` is no", id="text"),
        pytest.param(
            '{"auths": {"ghcr.io": {"auth": "czNjcmV0"}}}', "is not a valid password", id="alone"
        ),
        pytest.param('{"auths": "s3cret"}', "has no registry passwords", id="other"),
        pytest.param('{"s3cret": {}}', "has no registry passwords", id="none"),
        pytest.param("s3cret", "has no registry passwords", id="no-json"),
        pytest.param('{"auths": ' * 9_999, "has no registry passwords", id="deep"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing_and_is_not_quoted(tmp_path, text, why):
    passwords = reading(tmp_path, {"ghcr.io": ENTRY})
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(ConfigurationError, match=why) as caught:
        passwords.read()

    assert "s3cret" not in f"{caught.value} {caught.value.hint}"
    assert passwords.of("ghcr.io/a") == f"Basic {SECRET}"


def test_a_file_that_is_gone_is_reported(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot read"):
        Passwords(tmp_path / "gone").read()


def test_without_a_file_there_are_none():
    passwords = Passwords()
    passwords.read()

    assert passwords.of("ghcr.io/a") == ""


@pytest.mark.anyio
async def test_the_webhook_reads_the_file_and_follows_it(tmp_path):
    file = tmp_path / ".dockerconfigjson"
    given = {"registries": ("ghcr.io",), "registry_credentials": str(file)}
    server = WebhookServer(settings=Settings(**given, reload_seconds=0.01))
    running = []

    def start(what):
        running.append(asyncio.create_task(what))

    with pytest.raises(ConfigurationError, match="cannot read"):
        await read_policies(server, start)
    file.write_text(json.dumps({"auths": {"ghcr.io": ENTRY}}))
    await read_policies(server, start)
    file.write_text("s3cret")

    with capture_logs() as lines:
        async with asyncio.timeout(10):
            while not lines:  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.005)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert [line["event"] for line in lines] == ["change_refused"]
    assert "s3cret" not in str(lines)
