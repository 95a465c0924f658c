"""What policies ask of registries: manifest and configuration, by the OCI's protocol."""

import json
from base64 import b64encode
from hashlib import sha256

import pytest

from policyd.errors import ConfigurationError
from tests.webhooks.outside import AskingPolicies
from webhooks.external_data.fetching import FetchedResponse
from webhooks.external_data.passwords import Passwords
from webhooks.external_data.registries import Registries

pytestmark = pytest.mark.anyio

INDEX = "application/vnd.oci.image.index.v1+json"


def encoded(value):
    body = json.dumps(value).encode()
    return f"sha256:{sha256(body).hexdigest()}", body


CONFIG = encoded({"architecture": "amd64", "config": {"User": "nobody"}, "created": "2026-01-01"})
MANIFEST = encoded(
    {
        "annotations": {"base": "static"},
        "config": {"digest": CONFIG[0], "size": 10},
        "layers": [{"size": 70}, {"size": 30}],
    }
)
OTHER = {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
SEVERAL = encoded(
    {
        "mediaType": INDEX,
        "manifests": [
            OTHER,
            {"digest": MANIFEST[0], "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
)


class Registry:
    """A registry, and where its tokens come from."""

    def __init__(self, *, token=""):
        self.token = token
        self.asked = []
        self.answers = {
            "https://ghcr.io/v2/team/app/manifests/1.2": MANIFEST[1],
            "https://ghcr.io/v2/team/app/manifests/all": SEVERAL[1],
            f"https://ghcr.io/v2/team/app/manifests/{MANIFEST[0]}": MANIFEST[1],
            f"https://ghcr.io/v2/team/app/blobs/{CONFIG[0]}": CONFIG[1],
            "https://index.docker.io/v2/library/busybox/manifests/latest": MANIFEST[1],
            f"https://index.docker.io/v2/library/busybox/blobs/{CONFIG[0]}": CONFIG[1],
            "http://local.example:5000/v2/app/manifests/b": MANIFEST[1],
            f"http://local.example:5000/v2/app/blobs/{CONFIG[0]}": CONFIG[1],
        }

    async def fetch(self, message):
        url = str(message.url)
        self.asked.append(url)
        if url.startswith("https://tokens.example/"):
            return FetchedResponse(200, {}, json.dumps({"token": self.token}).encode())
        if self.token and message.headers.get("Authorization") != f"Bearer {self.token}":
            realm = 'Bearer realm="https://tokens.example/t",service="s",scope="repository:x:pull"'
            return FetchedResponse(401, {"WWW-Authenticate": realm}, b"")
        body = self.answers.get(url)
        return FetchedResponse(404, {}, b"") if body is None else FetchedResponse(200, {}, body)


HOSTS = ("ghcr.io", "docker.io", "http://local.example:5000")
WITH_TOKENS = (*HOSTS, "tokens.example")


async def evaluate(folder, expression, registry=None, hosts=HOSTS):
    policies = AskingPolicies(folder)
    images = Registries(registry or Registry(), policies.lookups, hosts)
    return await policies.evaluate(expression, images=images)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param('("ghcr.io/team/app:1.2").manifest.annotations.base', "static", id="manifest"),
        pytest.param('("ghcr.io/team/app:1.2").manifest.layers[0].size', "70", id="numbers"),
        pytest.param('("ghcr.io/team/app:1.2").config.config.User', "nobody", id="configuration"),
        pytest.param('("ghcr.io/team/app:1.2").tag', "1.2", id="tag"),
        pytest.param('("busybox").repository', "library/busybox", id="docker's"),
        pytest.param('("local.example:5000/app:b").registry', "local.example:5000", id="http"),
        pytest.param(
            '("ghcr.io/team/app:1.2").resolvedImage',
            f"ghcr.io/team/app:1.2@{MANIFEST[0]}",
            id="resolved",
        ),
        pytest.param(
            f'("ghcr.io/team/app@{MANIFEST[0]}").resolvedImage',
            f"ghcr.io/team/app@{MANIFEST[0]}",
            id="by-digest",
        ),
        pytest.param('("ghcr.io/team/app:all").digest', SEVERAL[0], id="the-index-is-the-image"),
        pytest.param(
            '("ghcr.io/team/app:all").manifest.annotations.base', "static", id="of-several"
        ),
        pytest.param(
            'has(image.GetMetadata("ghcr.io/team/app:1.2").imageIndex)', "false", id="no-index"
        ),
    ],
)
async def test_an_image_is_what_its_registry_says(tmp_path, expression, message):
    asked = expression if expression.startswith("has") else f"image.GetMetadata{expression}"
    assert await evaluate(tmp_path, asked) == message


async def test_a_token_for_all_users_is_fetched(tmp_path):
    registry = Registry(token="let-me")
    assert (
        await evaluate(tmp_path, 'image.GetMetadata("ghcr.io/team/app:1.2").tag', registry) == "1.2"
    )
    asked = [url for url in registry.asked if "tokens" in url]
    assert asked == ["https://tokens.example/t?service=s&scope=repository:x:pull"]


MANIFEST_URL = "https://ghcr.io/v2/team/app/manifests/1.2"
BLOB_URL = f"https://ghcr.io/v2/team/app/blobs/{CONFIG[0]}"


@pytest.mark.parametrize(
    ("url", "body", "message"),
    [
        pytest.param(MANIFEST_URL, None, "answers 404", id="missing"),
        pytest.param(MANIFEST_URL, b"<html>", "answer is invalid", id="no-json"),
        pytest.param(MANIFEST_URL, b'{"config": 5}', "answer is invalid", id="misshapen"),
        pytest.param(MANIFEST_URL, b'{"manifests": [7]}', "answer is invalid", id="bad-index"),
        pytest.param(MANIFEST_URL, b"[" * 100_000, "answer is invalid", id="deep"),
        pytest.param(
            MANIFEST_URL,
            b'{"manifests": []}',
            "no image found for linux/amd64",
            id="other-platforms",
        ),
        pytest.param(BLOB_URL, b"{}", "has another digest", id="another-configuration"),
    ],
)
async def test_a_wrong_answer_of_a_registry_is_reported(tmp_path, url, body, message):
    registry = Registry()
    registry.answers[url] = body
    asked = 'image.GetMetadata("ghcr.io/team/app:1.2").tag'
    assert message in await evaluate(tmp_path, asked, registry)


async def test_other_registries_are_not_asked(tmp_path):
    registry = Registry()
    answer = await evaluate(tmp_path, 'image.GetMetadata("quay.io/a/b").tag', registry)
    assert "policies may not query `quay.io` without `--registries quay.io`" in answer
    assert not registry.asked


@pytest.mark.parametrize("text", ["registry", "", "ghcr.io/team", "ftp://ghcr.io", "a b.c"])
def test_a_registry_that_is_none_is_reported_at_once(tmp_path, text):
    with pytest.raises(ConfigurationError, match="is not a registry"):
        Registries(Registry(), AskingPolicies(tmp_path).lookups, [text])


PASSWORD = "s3cret"
BASIC = "Basic " + b64encode(f"me:{PASSWORD}".encode()).decode()
BEARER = 'Bearer realm="https://tokens.example/t",service="s",scope="repository:x:pull"'
TAG = 'image.GetMetadata("ghcr.io/team/app:1.2").tag'


class Closed(Registry):
    """A registry that wants a password, and notes who is told it."""

    def __init__(self, challenge=BEARER, *, token="let-me", led=False):
        super().__init__(token=token)
        self.challenge = challenge
        self.led = led
        self.credentials = []

    async def fetch(self, message):
        header = message.headers.get("Authorization", "")
        if header.startswith("Basic"):
            self.credentials.append((message.url.host, message.redirects))
        if str(message.url).startswith("https://tokens.example/"):
            body = json.dumps({"token": self.token}).encode()
            return (
                FetchedResponse(200, {}, body) if header == BASIC else FetchedResponse(401, {}, b"")
            )
        wanted = BASIC if self.challenge.startswith("Basic") else f"Bearer {self.token}"
        if header != wanted:
            return FetchedResponse(401, {"WWW-Authenticate": self.challenge}, b"", led=self.led)
        return await Registry.fetch(Registry(), message)


async def credentials(folder, registry, auths=None, expression=TAG, hosts=WITH_TOKENS):
    file = folder / "passwords"
    file.write_text(json.dumps({"auths": auths or {"ghcr.io": {"auth": BASIC[6:]}}}))
    passwords = Passwords(file)
    passwords.read()
    policies = AskingPolicies(folder)
    images = Registries(registry, policies.lookups, hosts, passwords)
    return await policies.evaluate(expression, images=images)


@pytest.mark.parametrize(
    ("challenge", "host"),
    [
        pytest.param(BEARER, "tokens.example", id="a-token-for-it"),
        pytest.param('Basic realm="r"', "ghcr.io", id="itself"),
    ],
)
async def test_a_registry_that_wants_a_password_gets_it(tmp_path, challenge, host):
    registry = Closed(challenge)
    assert await credentials(tmp_path, registry) == "1.2"
    assert {each for each, _ in registry.credentials} == {host}


async def test_where_tokens_are_leads_nowhere_else(tmp_path):
    registry = Closed()
    await credentials(tmp_path, registry)
    assert registry.credentials == [("tokens.example", 0)]


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        pytest.param('Bearer realm="http://tokens.example/t"', "none for HTTPS", id="no-tls"),
        pytest.param('Bearer realm="https://["', "none for HTTPS", id="no-address"),
        pytest.param('Bearer realm="https://u@tokens.example/t"', "none for HTTPS", id="user"),
        pytest.param(
            'Negotiate realm="r"', "`https://ghcr.io` requires a password", id="another-way"
        ),
        pytest.param("", "`https://ghcr.io` requires a password", id="no-way"),
    ],
)
async def test_a_password_is_sent_to_no_other_host(tmp_path, challenge, why):
    registry = Closed(challenge)
    assert why in await credentials(tmp_path, registry)
    assert registry.credentials == []


@pytest.mark.parametrize(
    ("realm", "is_sent"),
    [
        pytest.param("https://ghcr.io:8443/t", True, id="its-own-host"),
        pytest.param("https://evil.example/t", False, id="another"),
        pytest.param("https://evil.ghcr.io/t", False, id="one-below"),
        pytest.param("https://io/t", False, id="a-top-level-domain"),
        pytest.param("https://169.254.169.254/t", False, id="metadata"),
        pytest.param("https://ghcr.io\\.evil.example/t", False, id="odd"),
    ],
)
async def test_a_registry_does_not_send_its_password_anywhere(tmp_path, realm, is_sent):
    registry = Closed(f'Bearer realm="{realm}",service="s"')
    answer = await credentials(tmp_path, registry, hosts=HOSTS)
    assert bool(registry.credentials) is is_sent
    assert is_sent or "password" in answer


async def test_where_tokens_are_says_the_registry_itself(tmp_path):
    registry = Closed(led=True)
    assert "answers 401 to GET" in await credentials(tmp_path, registry)
    assert registry.credentials == []


async def test_a_password_is_not_sent_in_the_clear(tmp_path):
    registry = Closed('Basic realm="r"')
    auths = {"local.example:5000": {"username": "me", "password": PASSWORD}}
    answer = await credentials(
        tmp_path, registry, auths, 'image.GetMetadata("local.example:5000/app:b").tag'
    )
    assert (
        "`http://local.example:5000` requires a password, and policyd has none for HTTPS" in answer
    )
    assert registry.credentials == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"ghcr.io": "other"}, "no token for the password in", id="wrong"),
        pytest.param(
            {"quay.io": PASSWORD}, "no token without a password: it takes `--registry-", id="none"
        ),
    ],
)
async def test_a_refused_password_is_reported_and_not_shown(tmp_path, given, message):
    auths = {name: {"username": "me", "password": word} for name, word in given.items()}
    answer = await credentials(tmp_path, Closed(), auths)
    assert message in answer
    assert "other" not in answer
    assert PASSWORD not in answer


async def test_a_repository_does_not_lead_into_another(tmp_path):
    registry = Closed()
    asked = 'image.GetMetadata("ghcr.io/team/../app:1.2").tag'
    assert "names no repository" in await credentials(tmp_path, registry, expression=asked)
    assert registry.asked == []
