"""Kubeconfigs and service accounts: what connects, and what is said when it cannot."""

import asyncio
import base64
import json
import ssl
import sys
import textwrap
from datetime import UTC, datetime

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from policyd.errors import ConfigurationError
from policyd.kube.connection import connection_from
from policyd.kube.errors import CredentialsError, UnauthorizedError, UnreachableError
from policyd.kube.http_client import HttpClient
from policyd.kube.pace import Pace
from policyd.kube.transport import Limits
from policyd.testing import FakeClock
from tests.kube.fake_server import Answer, serving

ONCE = Limits(tries=1)


def pair(name="localhost", *, hosts=("localhost",)):
    """A certificate that vouches for itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(h) for h in hosts]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def config(*, cluster=None, user=None, context=None, current="lab"):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [
            {"name": "lab-cluster", "cluster": {"server": "http://lab"} | (cluster or {})}
        ],
        "users": [{"name": "me", "user": user or {}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "lab-cluster", "user": "me"} | (context or {})}
        ],
    }


@pytest.fixture
def write(tmp_path):
    def write(content, name="config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


def connect(path, **options):
    return connection_from({}, kubeconfig=path, **options)


async def header(connection):
    return await connection.credentials.authorization()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({}, "", id="nobody"),
        pytest.param({"token": "t0"}, "Bearer t0", id="token"),
        pytest.param({"tokenFile": "token"}, "Bearer t1", id="token-file-beside-the-kubeconfig"),
        pytest.param({"tokenFile": "token", "token": "t0"}, "Bearer t1", id="token-file-wins"),
        pytest.param(
            {"username": "ann", "password": "s3"}, "Basic YW5uOnMz", id="name-and-password"
        ),
    ],
)
@pytest.mark.anyio
async def test_credentials_that_are_given(write, user, expected):
    write("t1\n", "token")

    connection = connect(write(config(user=user)))

    assert await header(connection) == expected


def test_a_context_states_its_cluster(write):
    cluster = {
        "server": "https://api.lab:6443/",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
    }

    connection = connect(write(config(cluster=cluster, context={"namespace": "ml"})))

    assert connection.server == "https://api.lab:6443"
    assert connection.tls.verify_mode == ssl.CERT_NONE
    assert connection.server_name == "kubernetes"
    assert connection.proxy == "http://proxy:3128"
    assert connection.namespace == "ml"


def test_impersonated_users_are_requested_by_headers(write):
    user = {
        "as": "ann",
        "as-uid": "u1",
        "as-groups": ["ml", "ops"],
        "as-user-extra": {"scopes.example/of": ["view"]},
    }

    connection = connect(write(config(user=user)))

    assert connection.impersonation == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Group", "ml"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-scopes.example%2Fof", "view"),
    )


def test_of_several_files_the_first_that_names_something_decides(write):
    first = write({"current-context": "lab", "users": [{"name": "me", "user": {"token": "a"}}]})
    second = write(config(user={"token": "b"}, current="other"), "more/config")

    connection = connection_from({"KUBECONFIG": f"{first}:/does/not/exist:{second}"})

    assert asyncio.run(header(connection)) == "Bearer a"
    assert connection.server == "http://lab"


def test_files_are_looked_for_beside_the_kubeconfig_that_names_them(write):
    certificate, key = pair()
    write(certificate.decode(), "users/me.crt")
    write(key.decode(), "users/me.key")
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    cluster = config(cluster={"server": "https://lab"}) | {"users": []}
    users = write({"users": [{"name": "me", "user": user}]}, "users/config")

    connection = connection_from({"KUBECONFIG": f"{write(cluster)}:{users}"})

    assert connection.tls is not None


def test_a_context_can_be_chosen(write):
    both = config()
    both["contexts"].append(
        {"name": "prod", "context": {"cluster": "lab-cluster", "namespace": "live"}}
    )

    assert connect(write(both), context="prod").namespace == "live"


def test_the_home_folder_is_the_last_resort(write, tmp_path):
    write(config(), ".kube/config")

    assert connection_from({"HOME": str(tmp_path)}).server == "http://lab"


def test_a_pod_uses_its_service_account(tmp_path):
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_bytes(pair()[0])
    (tmp_path / "namespace").write_text("policyd-system")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}

    connection = connection_from(environ, account=tmp_path)

    assert connection.server == "https://[fd00::1]:6443"
    assert connection.namespace == "policyd-system"
    assert asyncio.run(header(connection)) == "Bearer t"


@pytest.mark.anyio
async def test_a_token_file_is_read_again_every_minute(tmp_path, write):
    clock = FakeClock()
    token = tmp_path / "token"
    token.write_text("old")
    connection = connect(write(config(user={"tokenFile": "token"})), clock=clock)
    token.write_text("new")

    before = await header(connection)
    await clock.advance(60)
    after = await header(connection)
    token.unlink()
    await clock.advance(60)
    gone = await header(connection)

    assert [before, after, gone] == ["Bearer old", "Bearer new", "Bearer new"]


NO_PEM = base64.b64encode(b"nothing").decode()
CERTIFICATE, KEY = pair()
ENCODED = base64.b64encode(CERTIFICATE).decode()
OTHER_KEY = base64.b64encode(pair()[1]).decode()


@pytest.mark.parametrize(
    ("content", "context", "message", "hint"),
    [
        pytest.param(
            config(), "labb", "has no context `labb`", "did you mean `lab`", id="context-misspelt"
        ),
        pytest.param(config(), "x", "has no context `x`", "it has: lab", id="no-such-context"),
        pytest.param(
            config(current=""), "", "has no current context", "it has: lab", id="no-current-context"
        ),
        pytest.param(
            config(context={"cluster": "lab-clutter"}),
            "",
            "has no cluster `lab-clutter`",
            "did you mean `lab-cluster`",
            id="no-such-cluster",
        ),
        pytest.param(
            config(context={"user": "you"}),
            "",
            "has no user `you`",
            "it has: me",
            id="no-such-user",
        ),
        pytest.param(
            config(cluster={"server": "lab:6443"}),
            "",
            "server `lab:6443` of context `lab` is not a URL",
            "https://host:port",
            id="server-without-scheme",
        ),
        pytest.param("a: [", "", "config:1:5` is not YAML", None, id="not-yaml"),
        pytest.param(
            {"clusters": "lab"},
            "",
            "is not a kubeconfig: Expected `array.*clusters`",
            None,
            id="not-a-kubeconfig",
        ),
        pytest.param(
            config(user={"tokenFile": "nowhere"}),
            "",
            "token file `.*nowhere` cannot be read: no such file",
            None,
            id="no-token-file",
        ),
        pytest.param(
            config(cluster={"server": "https://lab", "certificate-authority-data": "%"}),
            "",
            "`certificate-authority-data` of the kubeconfig is not base64",
            None,
            id="authority-not-base64",
        ),
        pytest.param(
            config(cluster={"server": "https://lab", "certificate-authority-data": NO_PEM}),
            "",
            "the certificate authority of the API server is not a PEM certificate",
            "certificate-authority-data",
            id="authority-not-pem",
        ),
        pytest.param(
            config(
                cluster={"server": "https://lab"},
                user={"client-certificate-data": ENCODED, "client-key-data": OTHER_KEY},
            ),
            "",
            "the client certificate and its key cannot be used together",
            "same pair",
            id="key-of-another-certificate",
        ),
        pytest.param(
            config(cluster={"server": "https://lab"}, user={"client-certificate-data": ENCODED}),
            "",
            "has half of a client certificate",
            "go together",
            id="certificate-without-key",
        ),
        pytest.param(
            config(user={"token": "t0", "as-groups": ["system:masters"]}),
            "",
            "context `lab` impersonates groups, a uid or extra without a user",
            "set `as` to the user",
            id="impersonated-groups-of-nobody",
        ),
        pytest.param(
            config(cluster={"proxy-url": "socks5://proxy"}),
            "",
            "proxy `socks5://proxy` of context `lab` cannot be used",
            "http and https",
            id="socks-proxy",
        ),
        pytest.param(
            config(user={"exec": {"apiVersion": "v1", "command": "no-such-plugin"}}),
            "",
            "credential plugin `no-such-plugin` is not installed",
            "context `lab`",
            id="plugin-not-installed",
        ),
        pytest.param(
            config(user={"auth-provider": {"name": "gcp-like"}}),
            "",
            "auth-provider `gcp-like` of context `lab` gave no token",
            "log in again",
            id="auth-provider-of-old",
        ),
    ],
)
def test_errors_are_reported(write, content, context, message, hint):
    with pytest.raises(ConfigurationError, match=message) as caught:
        connect(write(content), context=context)

    assert (hint or "") in (caught.value.hint or "")


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"kubeconfig `.*nothing` does not exist"):
        connect(str(tmp_path / "nothing"))


PLUGIN = """
import json, pathlib, sys
calls = pathlib.Path(sys.argv[1])
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
number = len(calls.read_text())
status = {status}
if status is None:
    sys.exit("session over")
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": status}}))
"""


@pytest.fixture
def plugin(write, tmp_path):
    """Return the user of a kubeconfig whose plugin answers with a Python expression's value."""

    def plugin(status, **more):
        script = write(textwrap.dedent(PLUGIN).format(status=status), "plugin.py")
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [script, str(tmp_path / "calls")],
                **more,
            }
        }

    return plugin


@pytest.mark.anyio
async def test_a_plugin_is_asked_again_shortly_before_its_token_expires(write, plugin):
    clock = FakeClock(start=datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    status = (
        '{"token": f"t{number}", '
        '"expirationTimestamp": f"2030-01-01T00:0{number}:40Z" if number < 2 else None}'
    )
    connection = connect(write(config(user=plugin(status))), clock=clock)

    first = [await header(connection)]
    await clock.advance(79)
    first.append(await header(connection))
    await clock.advance(2)
    second = await header(connection)

    assert first == ["Bearer t1", "Bearer t1"]
    assert second == "Bearer t2"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param("None", "failed: exec: process returned 1. session over", id="exit-code"),
        pytest.param("{}", "answered with no credential", id="nothing-in-it"),
        pytest.param('{"token": 7}', "failed: Expected `str`", id="not-a-token"),
    ],
)
def test_a_failing_plugin_is_an_error_and_not_an_anonymous_request(write, plugin, status, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        connect(write(config(user=plugin(status, installHint="get it at the desk"))))

    assert caught.value.hint == "get it at the desk"


@pytest.mark.anyio
async def test_a_plugin_that_fails_later_fails_the_request_and_is_asked_again(write, plugin):
    status = '{"token": f"t{number}"} if number != 2 else None'
    connection = connect(write(config(user=plugin(status))))
    connection.credentials.forget()

    with pytest.raises(CredentialsError, match="session over"):
        await header(connection)

    assert await header(connection) == "Bearer t3"


@pytest.mark.anyio
async def test_a_token_that_the_server_refuses_is_renewed_once(write, plugin):
    async with serving() as server:
        user = plugin('{"token": f"t{number}"}')
        connection = connect(write(config(cluster={"server": server.url}, user=user)))
        server.faults.append(Answer(401))

        async with HttpClient(connection) as client:
            await client.fetch("/version", into=dict)

    sent = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert sent == ["Bearer t1", "Bearer t2"]


@pytest.mark.anyio
async def test_a_token_that_cannot_be_renewed_is_unauthorized(write):
    async with serving() as server:
        connection = connect(write(config(cluster={"server": server.url}, user={"token": "t"})))
        server.faults.append(Answer(401))

        async with HttpClient(connection) as client:
            with pytest.raises(UnauthorizedError) as caught:
                await client.fetch("/version", into=dict)

    assert "log in again" in caught.value.hint
    assert len(server.requests) == 1


@pytest.mark.anyio
async def test_a_plugin_can_answer_with_a_certificate(write, plugin):
    status = json.dumps(
        {"clientCertificateData": CERTIFICATE.decode(), "clientKeyData": KEY.decode()}
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_certificate, server_key = pair()
    chain = write((server_certificate + server_key).decode(), "server.pem")
    context.load_cert_chain(chain)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=CERTIFICATE.decode())
    async with serving(ssl_context=context) as server:
        cluster = {
            "server": server.url,
            "certificate-authority-data": base64.b64encode(server_certificate).decode(),
            "tls-server-name": "localhost",
        }
        connection = connect(write(config(cluster=cluster, user=plugin(status))))

        async with HttpClient(connection, limits=ONCE) as client:
            version = await client.fetch("/version", into=dict)

    assert version == {"gitVersion": "v1.37.0"}


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        pytest.param(
            {"certificate-authority-data": ENCODED}, "is not trusted: self.signed", id="unknown"
        ),
        pytest.param({"tls-server-name": "other"}, "is not trusted: hostname mismatch", id="name"),
    ],
)
@pytest.mark.anyio
async def test_a_server_that_is_not_trusted_is_not_talked_to(write, cluster, message):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = pair()
    context.load_cert_chain(write((certificate + key).decode(), "server.pem"))
    own = {"certificate-authority-data": base64.b64encode(certificate).decode()}
    async with serving(ssl_context=context) as server:
        connection = connect(write(config(cluster={"server": server.url} | own | cluster)))

        async with HttpClient(connection, limits=ONCE) as client:
            with pytest.raises(UnreachableError, match=f"(?i){message}"):
                await client.fetch("/version", into=dict)

    assert server.requests == []


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        pytest.param("https://api:6443", {}, None, id="none"),
        pytest.param("https://api:6443", {"https_proxy": "http://p"}, "http://p", id="https"),
        pytest.param("https://api", {"HTTPS_PROXY": "http://p"}, "http://p", id="upper-case"),
        pytest.param("https://api", {"HTTP_PROXY": "http://p"}, None, id="of-another-scheme"),
        pytest.param("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p"}, None, id="this-machine"),
        pytest.param(
            "https://api.lab", {"HTTPS_PROXY": "http://p", "NO_PROXY": "lab"}, None, id="below"
        ),
        pytest.param(
            "https://api.lab", {"HTTPS_PROXY": "http://p", "NO_PROXY": ".lab"}, None, id="dotted"
        ),
        pytest.param(
            "https://apilab",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": "lab"},
            "http://p",
            id="ends-so",
        ),
        pytest.param(
            "https://10.1.2.3",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": "a, 10.0.0.0/8"},
            None,
            id="network",
        ),
        pytest.param(
            "https://api", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, None, id="everything"
        ),
    ],
)
def test_proxies_of_the_environment(write, server, environ, expected):
    path = write(config(cluster={"server": server}))

    assert connection_from(environ, kubeconfig=path).proxy == expected


@pytest.mark.anyio
async def test_requests_go_by_the_proxy(write):
    async with serving() as proxy:
        cluster = {"server": "http://api.lab", "proxy-url": proxy.url}
        pace = Pace(sleep=FakeClock().skip)

        async with HttpClient(connect(write(config(cluster=cluster))), pace=pace) as client:
            await client.fetch("/version", into=dict)

    assert proxy.requests[0][2]["Host"] == "api.lab"
