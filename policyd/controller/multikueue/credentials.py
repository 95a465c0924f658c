"""Connections to workers, and the programs of the Configuration that get credentials for them.

A program is run as the administrator wrote it in the Configuration. A ClusterProfile adds data,
and neither arguments nor variables. What the program answers is checked: it is bounded in time and
length, and text that is no token would change the requests that it is sent with.
"""

import base64
import os
import re
import selectors
import signal
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from policyd.api.configuration.kinds import ExecConfig
from policyd.api.meta import Json
from policyd.clock import Clock
from policyd.errors import ConfigurationError
from policyd.kube.auth import FetchedHeader, moment
from policyd.kube.connection import ApiConnection, connection_of
from policyd.kube.kubeconfig import KubeconfigCluster, KubeconfigUser, SelectedContext
from policyd.kube.plugins import Credential
from policyd.kube.tls import load_certificate
from policyd.multikueue.connections import ConnectionConfig

log = structlog.get_logger()

PROGRAM_SECONDS = 30.0
"""How long a program may take to answer."""
LONGEST_ANSWER: Final = 262_144
"""Bytes of each output of a program."""
SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where a program finds others. It gets no variable of the controller's own environment."""
_TOKEN: Final = re.compile(r"[!-~]*")


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    """An ExecCredential."""

    api_version: str = ""
    kind: str = ""
    status: Credential = Credential()


def connection_to(config: ConnectionConfig, clock: Clock) -> ApiConnection:
    """Return how to reach a worker. A program is run at the first request, and not before.

    Args:
        config: The connection, which is safe.
        clock: The clock by which credentials expire.

    Raises:
        ConfigurationError: If it cannot be used as it is.
    """
    connection = connection_of(_selected(config), clock)
    if config.program is None:
        return connection
    program, tls = config.program, connection.tls
    information = _information(config, program)

    def fetch() -> tuple[str, float | None]:
        return _ask(program, information, tls, clock)

    return replace(connection, credentials=FetchedHeader(fetch, clock=clock))


def _selected(config: ConnectionConfig) -> SelectedContext:
    return SelectedContext(
        files=(),
        context="worker",
        namespace="default",
        cluster=KubeconfigCluster(
            server=config.host,
            certificate_authority_data=_encoded(config.authority),
            tls_server_name=config.server_name or None,
            proxy_url=config.proxy or None,
        ),
        cluster_folder=Path(),
        user=KubeconfigUser(
            token=config.token or None,
            client_certificate_data=_encoded(config.certificate),
            client_key_data=_encoded(config.key),
        ),
        user_folder=Path(),
    )


def _encoded(data: bytes) -> str | None:
    return base64.b64encode(data).decode() if data else None


def _information(config: ConnectionConfig, program: ExecConfig) -> Mapping[str, Json]:
    """Return what the program is asked for, as `KUBERNETES_EXEC_INFO` has it."""
    spec: dict[str, Any] = {"interactive": False}
    if program.provide_cluster_info:
        cluster = {
            "server": config.host,
            "certificate-authority-data": _encoded(config.authority),
            "tls-server-name": config.server_name,
            "proxy-url": config.proxy,
            "config": config.program_config,
        }
        spec["cluster"] = {name: value for name, value in cluster.items() if value}
    return {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}


def _ask(
    program: ExecConfig, information: Mapping[str, Json], tls: ssl.SSLContext | None, clock: Clock
) -> tuple[str, float | None]:
    """Return the header that a program answers with, and when it expires.

    Raises:
        ConfigurationError: If it fails, or its answer cannot be used.
    """
    answer = _run(program, information, clock)
    problem = "its answer is not an ExecCredential"
    try:
        found = msgspec.json.decode(answer, type=_Answer)
        expiry = found.status.expiration_timestamp
        expires_at = moment(expiry) if expiry else None
    except ValueError as error:  # the answer itself may have a secret
        raise _failure(program, problem) from error
    credential = found.status
    if (found.kind, found.api_version) != ("ExecCredential", program.api_version):
        raise _failure(program, f"{problem} of {program.api_version}")
    if not _TOKEN.fullmatch(credential.token):
        raise _failure(program, "its token has characters that a header cannot have")
    if credential.client_certificate_data and tls is not None:
        pair = credential.client_certificate_data, credential.client_key_data
        load_certificate(tls, *(text.encode() for text in pair))
    elif not credential.token:
        raise _failure(program, "it answered with no credential")
    return f"Bearer {credential.token}" if credential.token else "", expires_at


def _run(program: ExecConfig, information: Mapping[str, Json], clock: Clock) -> bytes:
    """Run a program, and return what it wrote; whatever it started ends with it."""
    variables = {each.name: each.value for each in program.env or ()}
    about = msgspec.json.encode(information).decode()
    try:
        process = subprocess.Popen(  # noqa: S603 - an absolute path of the Configuration
            [program.command, *program.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": SEARCH_PATH, **variables, "KUBERNETES_EXEC_INFO": about},
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _failure(program, f"it cannot be run: {reason}") from error
    with process:
        try:
            outputs = _read(process, program, clock.monotonic() + PROGRAM_SECONDS, clock)
            code = process.wait(timeout=PROGRAM_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise _failure(program, f"it ran for {PROGRAM_SECONDS:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        complaint = outputs[1][:1000].decode(errors="replace")
        log.warning("credentials_refused", command=program.command, code=code, error=complaint)
        raise _failure(program, f"it ended with code {code}")
    return outputs[0]


def _read(
    process: subprocess.Popen[bytes], program: ExecConfig, until: float, clock: Clock
) -> tuple[bytes, bytes]:
    """Return what a program wrote to its outputs until both were closed."""
    found = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None, "both outputs are pipes"
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map():
            ready = selector.select(until - clock.monotonic())
            if not ready:
                raise _failure(program, f"it did not answer within {PROGRAM_SECONDS:g} s")
            for key, _ in ready:
                part = os.read(key.fd, 65_536)
                found[key.data] += part
                if not part:
                    selector.unregister(key.fileobj)
                if len(found[key.data]) > LONGEST_ANSWER:
                    raise _failure(program, f"it wrote more than {LONGEST_ANSWER} bytes")
    return found[process.stdout], found[process.stderr]


def _failure(program: ExecConfig, problem: str) -> ConfigurationError:
    message = f"credential program `{program.command}` failed: {problem}"
    hint = program.install_hint.strip() or "run it by hand, with the same arguments and variables"
    return ConfigurationError(message, hint=hint)
