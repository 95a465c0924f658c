"""The TLS socket: rotation without a dropped connection, and what cannot be served."""

import asyncio
import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from policyd.api.configuration.tls import TlsRules
from policyd.certificates import CertificatePair
from policyd.connections import Listening
from policyd.errors import ConfigurationError
from policyd.serving import listen, server_context
from tests.kube.test_connection import pair
from tests.webhooks.conftest import RunningServer, app_for, issue, running_server
from webhooks.certificate.files import fingerprint, follow
from webhooks.certificate.tls import CertificateFiles, LiveContext, serve
from webhooks.protocol import ReviewProtocol

pytestmark = pytest.mark.anyio


async def echo(body: bytes, _out_of_time) -> bytes:
    return body


async def test_it_speaks_http_1_over_tls_1_3_without_tickets():
    async with running_server(echo) as server, server.connection() as connection:
        assert await connection.post(b"{}") == (200, b"{}")

        assert connection.tls.version() == "TLSv1.3"
        assert connection.tls.selected_alpn_protocol() == "http/1.1"
        assert connection.tls.session.has_ticket is False


async def test_tls_1_2_is_accepted():
    settings = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    async with running_server(echo) as server, server.connection(**settings) as connection:
        assert (await connection.post(b"{}"))[0] == 200
        assert connection.tls.session.has_ticket is False


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_tls_1_1_is_not():
    settings = {
        "minimum_version": ssl.TLSVersion.TLSv1_1,
        "maximum_version": ssl.TLSVersion.TLSv1_1,
    }
    async with running_server(echo) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with server.connection(**settings):
                raise AssertionError("connected")


async def test_tls_1_2_is_refused_where_1_3_is_the_least():
    settings = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    async with running_server(echo, rules=TlsRules(newest_only=True)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with server.connection(**settings):
                raise AssertionError("connected")
        async with server.connection() as connection:
            assert connection.tls.version() == "TLSv1.3"


async def test_only_named_suites_are_negotiated_also_after_a_new_certificate():
    settings = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    suite = "ECDHE-ECDSA-AES256-GCM-SHA384"
    async with running_server(echo, rules=TlsRules(ciphers=(suite,))) as server:
        async with server.connection(**settings) as connection:
            assert connection.tls.cipher()[0] == suite
        server.context.replace(issue("second"))
        async with server.connection(**settings) as connection:
            assert connection.tls.cipher()[0] == suite


def test_suites_that_the_tls_library_does_not_have_are_refused():
    with pytest.raises(ConfigurationError, match=r"none of the suites.*NO-SUCH-SUITE"):
        server_context(None, rules=TlsRules(ciphers=("NO-SUCH-SUITE",)))


async def test_a_new_certificate_meets_new_connections_and_old_ones_go_on():
    async with running_server(echo) as server, server.connection() as old:
        assert await old.post(b"1") == (200, b"1")

        server.context.replace(issue("second"))

        async with server.connection() as new:
            assert (old.certificate_names, new.certificate_names) == ({"first"}, {"second"})
            assert await old.post(b"2") == (200, b"2")
            assert await new.post(b"3") == (200, b"3")


async def test_the_kind_of_key_may_change_with_the_certificate():
    rsa_pair = self_signed_rsa()
    async with running_server(echo) as server:
        server.context.replace(rsa_pair)

        trust = {"check_hostname": False, "verify_mode": ssl.CERT_NONE}
        async with server.connection(**trust) as connection:
            met = connection.tls.getpeercert(binary_form=True)

    assert met == x509.load_pem_x509_certificate(rsa_pair.certificate_pem).public_bytes(
        serialization.Encoding.DER
    )


def self_signed_rsa():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment(time.time() - 60))
        .not_valid_after(moment(time.time() + 3600))
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
    )


def moment(seconds):
    return datetime.fromtimestamp(seconds, tz=UTC)


async def test_requests_in_flight_finish_when_it_stops():
    async def answer(body, _out_of_time):
        stop()
        return body

    async with running_server(answer) as server, server.connection() as connection:
        stop = server.stop.set

        assert await connection.post(b"last") == (200, b"last")
        assert await connection.ended()


async def test_a_body_on_its_way_when_it_stops_is_still_answered():
    async with running_server(echo) as server, server.connection() as connection:
        await connection.send_head(4)
        server.stop.set()
        await asyncio.sleep(0)
        await connection.write(b"body")

        assert await connection.receive() == (200, b"body")


async def test_a_server_that_is_cancelled_leaves_neither_socket_nor_connection():
    listener = listen("127.0.0.1", 0)
    serving = asyncio.create_task(
        serve(
            app_for(echo),
            listener,
            listening=Listening(tls=LiveContext(issue()).front),
            stop=asyncio.Event(),
        )
    )
    server = RunningServer(listener.getsockname()[1])
    async with server.connection() as connection:
        assert (await connection.post(b"{}"))[0] == 200

        serving.cancel()
        await asyncio.wait([serving])

        assert await connection.ended()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", server.port)


async def test_garbage_on_the_socket_harms_no_other_connection():
    async with running_server(echo) as server, server.connection() as good:
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        async with server.connection() as bad:
            await bad.write(b"\x00\xff garbage\r\n\r\n")
            assert b"400" in await bad.line()

        assert await good.post(b"{}") == (200, b"{}")


def write(folder: Path, pair: CertificatePair) -> CertificateFiles:
    files = CertificateFiles(certificate=folder / "tls.crt", key=folder / "tls.key")
    files.certificate.write_bytes(pair.certificate_pem)
    files.key.write_bytes(pair.key_pem)
    return files


async def test_changed_files_are_served_and_a_bad_pair_is_refused_with_a_log_line(tmp_path, capsys):
    files = write(tmp_path, issue("first"))
    looked = asyncio.Event()

    def load():
        looked.set()
        context.replace(files.read(now=time.time())[0])

    async with running_server(echo) as server:
        context, since = server.context, fingerprint(files.paths)
        follower = asyncio.create_task(follow(files.paths, since=since, changed=load, every=0.01))

        write(tmp_path, issue("second"))
        await asyncio.wait_for(looked.wait(), 5)
        async with server.connection() as connection:
            assert connection.certificate_names == {"second"}

        looked.clear()
        files.key.write_bytes(issue("third").key_pem)
        await asyncio.wait_for(looked.wait(), 5)
        async with server.connection() as connection:
            assert connection.certificate_names == {"second"}
        follower.cancel()

    output = capsys.readouterr()
    assert "change_refused" in output.out + output.err
    assert "does not match key" in output.out + output.err


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    files = write(tmp_path, issue())
    files.key.unlink()

    with pytest.raises(ConfigurationError, match="no such file or directory") as caught:
        files.read(now=time.time())

    assert str(files.key) in str(caught.value)
    assert caught.value.hint


def test_a_certificate_that_openssl_will_not_have_is_refused():
    with pytest.raises(ConfigurationError, match="the certificate cannot be used"):
        LiveContext(CertificatePair(certificate_pem=b"", key_pem=b""))


def test_a_taken_port_is_named_with_a_hint():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ConfigurationError) as caught:
            listen("127.0.0.1", port)

    assert str(caught.value) == f"port `{port}` on `127.0.0.1` is taken"
    assert "--port" in caught.value.hint


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("192.0.2.1", id="address-of-another-machine"),
        pytest.param("no such host", id="no-address-at-all"),
    ],
)
def test_an_address_that_is_not_ours_is_named(host):
    with pytest.raises(ConfigurationError, match=f"cannot listen on `{host}`"):
        listen(host, 0)


CALLER, OTHER = pair("kube-apiserver", hosts=["api"]), pair("kubelet", hosts=["node"])


def caller(folder, shown=CALLER):
    """TLS settings of a client that shows a certificate."""
    paths = folder / "caller.crt", folder / "caller.key"
    for path, text in zip(paths, shown, strict=True):
        path.write_bytes(text)
    return {"shown": paths}


async def answered(server, **settings):
    """Tell whether a review is answered."""
    try:
        async with server.connection(**settings) as connection:
            return await connection.post(b"{}") == (200, b"{}")
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_without_a_certificate_is_not_answered(tmp_path, version):
    versions = {"maximum_version": version}
    async with running_server(echo, callers_pem=CALLER[0]) as server:
        assert await answered(server, **versions, **caller(tmp_path))
        assert not await answered(server, **versions)
        assert not await answered(server, **versions, **caller(tmp_path, OTHER))
        assert await answered(server, **versions, **caller(tmp_path))

    assert server.ended["handshake_failed"] == 2
    assert server.reviews == 2


@pytest.mark.parametrize("names", [{"kube-apiserver", "a"}, {"api"}], ids=["common", "alternative"])
async def test_of_those_that_show_one_some_names_may_be_answered(tmp_path, names):
    settings = {"callers_pem": CALLER[0] + OTHER[0], "names": names}
    async with running_server(echo, **settings) as server:
        assert await answered(server, **caller(tmp_path))
        assert not await answered(server, **caller(tmp_path, OTHER))

    assert (server.ended["caller_unknown"], server.reviews) == (1, 1)


async def test_certificates_are_asked_for_through_changes_of_either_side(tmp_path):
    async with running_server(echo, callers_pem=CALLER[0]) as server:
        server.context.replace(issue("second"))
        assert not await answered(server)
        assert await answered(server, **caller(tmp_path))

        server.context.trust(OTHER[0])
        assert not await answered(server, **caller(tmp_path))
        assert await answered(server, **caller(tmp_path, OTHER))

        server.context.replace(issue("third"))
        assert not await answered(server, **caller(tmp_path))
        assert await answered(server, **caller(tmp_path, OTHER))


@pytest.mark.parametrize("pem", [b"nonsense", b"\xff"], ids=["no-pem", "no-text"])
async def test_an_authority_that_cannot_be_used_is_refused_and_the_last_one_stays(tmp_path, pem):
    async with running_server(echo, callers_pem=CALLER[0]) as server:
        with pytest.raises(ConfigurationError, match="authority of the callers"):
            server.context.trust(pem)

        assert await answered(server, **caller(tmp_path))
        assert not await answered(server)


@pytest.mark.parametrize("http", [ReviewProtocol, "httptools", "h11"])
async def test_bounds_hold_whoever_reads_http(http):
    async with running_server(echo, http=http) as server:
        async with server.connection() as connection:
            await connection.write(b"POST /mutate HTTP/1.1\r\na: " + b"x" * 70_000)
            assert (await connection.line()).startswith(b"HTTP/1.1 431 ")
            assert b"content-length: 0" in await connection.line()
        async with server.connection() as connection:
            assert await connection.post(b"{}") == (200, b"{}")

    assert server.ended["head_too_large"] == 1


async def test_a_client_without_tls_is_not_answered():
    async with running_server(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /mutate HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        assert b"200" not in await reader.read()
        writer.close()

    assert (server.ended["handshake_failed"], server.reviews) == (1, 0)
