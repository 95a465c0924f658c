"""What policies ask of registries: manifest and configuration, by the OCI's protocol."""

import json
from hashlib import sha256

import pytest

from policyd.errors import ConfigurationError
from tests.webhooks.outside import AskingDoor
from webhooks.fetching import Fetched
from webhooks.registries import Registries

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
            return Fetched(200, {}, json.dumps({"token": self.token}).encode())
        if self.token and message.headers.get("Authorization") != f"Bearer {self.token}":
            realm = 'Bearer realm="https://tokens.example/t",service="s",scope="repository:x:pull"'
            return Fetched(401, {"WWW-Authenticate": realm}, b"")
        body = self.answers.get(url)
        return Fetched(404, {}, b"") if body is None else Fetched(200, {}, body)


HOSTS = ("ghcr.io", "docker.io", "http://local.example:5000")


async def says(folder, expression, registry=None, hosts=HOSTS):
    door = AskingDoor(folder)
    images = Registries(registry or Registry(), door.inquiries, hosts)
    return await door.says(expression, images=images)


@pytest.mark.parametrize(
    ("expression", "said"),
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
async def test_an_image_is_what_its_registry_says(tmp_path, expression, said):
    asked = expression if expression.startswith("has") else f"image.GetMetadata{expression}"
    assert await says(tmp_path, asked) == said


async def test_a_token_that_everybody_gets_is_fetched(tmp_path):
    registry = Registry(token="let-me")
    assert await says(tmp_path, 'image.GetMetadata("ghcr.io/team/app:1.2").tag', registry) == "1.2"
    asked = [url for url in registry.asked if "tokens" in url]
    assert asked == ["https://tokens.example/t?service=s&scope=repository:x:pull"]


MANIFEST_URL = "https://ghcr.io/v2/team/app/manifests/1.2"
BLOB_URL = f"https://ghcr.io/v2/team/app/blobs/{CONFIG[0]}"


@pytest.mark.parametrize(
    ("url", "body", "said"),
    [
        pytest.param(MANIFEST_URL, None, "answers 404", id="missing"),
        pytest.param(MANIFEST_URL, b"<html>", "answers what is none", id="no-json"),
        pytest.param(MANIFEST_URL, b'{"config": 5}', "answers what is none", id="misshapen"),
        pytest.param(MANIFEST_URL, b'{"manifests": [7]}', "answers what is none", id="bad-index"),
        pytest.param(MANIFEST_URL, b"[" * 100_000, "answers what is none", id="deep"),
        pytest.param(
            MANIFEST_URL, b'{"manifests": []}', "no image for linux/amd64", id="other-platforms"
        ),
        pytest.param(BLOB_URL, b"{}", "is something else", id="another-configuration"),
    ],
)
async def test_what_a_registry_answers_wrongly_is_said(tmp_path, url, body, said):
    registry = Registry()
    registry.answers[url] = body
    asked = 'image.GetMetadata("ghcr.io/team/app:1.2").tag'
    assert said in await says(tmp_path, asked, registry)


async def test_other_registries_are_not_asked(tmp_path):
    registry = Registry()
    said = await says(tmp_path, 'image.GetMetadata("quay.io/a/b").tag', registry)
    assert "policies may not ask `quay.io` here: it takes `--registries quay.io`" in said
    assert not registry.asked


@pytest.mark.parametrize("text", ["registry", "", "ghcr.io/team", "ftp://ghcr.io", "a b.c"])
def test_a_registry_that_is_none_is_said_at_once(tmp_path, text):
    with pytest.raises(ConfigurationError, match="is no registry"):
        Registries(Registry(), AskingDoor(tmp_path).inquiries, [text])
