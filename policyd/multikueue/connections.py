"""Connections to workers: which kubeconfigs are safe, when to try again, what the status says.

A kubeconfig must carry its credentials: one that names a program or a file would have the
controller run the program or read the file with its own rights. The credentials for a
ClusterProfile come from a program that the Configuration names; the profile only says which.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import yaml
from msgspec.structs import replace

from policyd.alloc.value import Value
from policyd.api.configuration.kinds import AccessProvider, ExecConfig
from policyd.api.kueue.multikueue import MultiKueueCluster
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import Condition, Json, cut, find_condition, rfc3339, timestamp
from policyd.api.names import SUBDOMAIN
from policyd.api.yaml_texts import plain_yaml
from policyd.multikueue.settings import KUBECONFIG_FOLDER

KUBECONFIG_KEY: Final = "kubeconfig"
"""The key of a Secret under which the kubeconfig is."""

RETRY_SECONDS: Final = 5.0
MOST_DOUBLINGS: Final = 6
ESTABLISH_SECONDS: Final = 60.0
LONGEST_ESTABLISH_SECONDS: Final = 600.0
LONGEST_MESSAGE: Final = 32_768
"""Of a condition, by the API server's rules."""

BAD_KUBECONFIG: Final = "BadKubeConfig"
INSECURE_KUBECONFIG: Final = "InsecureKubeConfig"
BAD_PROFILE: Final = "BadClusterProfile"
BAD_REST_CONFIG: Final = "BadRestConfig"
PROFILES_OFF: Final = "MultiKueueClusterProfileFeatureDisabled"
NOT_CONNECTED: Final = "ClientConnectionFailed"

_PROGRAM_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is passed to the program."""

_FILES: Final = (
    "client-certificate and client-key file paths are not allowed, use client-certificate-data"
    " and client-key-data"
)

DEPRECATED_PATH: Final = "DeprecatedPathUsage"
DEPRECATED_PATH_MESSAGE: Final = (
    "Using locationType=Path without MultiKueueKubeConfigPathValidation feature gate is deprecated"
    " and will be removed in a future release. Enable the MultiKueueKubeConfigPathValidation"
    f" feature gate and place kubeconfig files under {KUBECONFIG_FOLDER}."
)


class ConnectionConfig(Value, frozen=True):
    """How to reach one API server, with credentials that it carries itself.

    Attributes:
        host: URL of the server.
        authority: PEM of its certificate authority; empty for the system's.
        server_name: Name in its certificate, if another than in the URL.
        proxy: URL of the proxy to reach it through; empty for none.
        token: A bearer token.
        certificate: PEM of a client certificate.
        key: PEM of its key.
        token_file: Name of a file with a token, which is refused.
        username: Name for basic authentication, which is refused.
        password: Password for it.
        runs: Whether a program gets the credentials.
        asks: Whether an authentication provider gets them.
        reads: Whether files have them.
        program: The program of the Configuration that gets them; None if none does.
        program_config: What a ClusterProfile passes to it.
    """

    host: str = ""
    authority: bytes = b""
    server_name: str = ""
    proxy: str = ""
    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    token_file: str = ""
    username: str = ""
    password: str = ""
    runs: bool = False
    asks: bool = False
    reads: bool = False
    program: ExecConfig | None = None
    program_config: Json = None


class ConnectionProblem(NamedTuple):
    """Why a cluster cannot be reached as its object says.

    Attributes:
        reason: Of the condition.
        message: A sentence.
        absent: Whether an object is missing: its creation is the time to try again.
    """

    reason: str
    message: str
    absent: bool = False


def read_kubeconfig(content: bytes) -> ConnectionConfig | str:
    """Return the connection of a kubeconfig's current context; a message if it is not safe.

    Args:
        content: YAML or JSON.
    """
    try:
        file = plain_yaml(content)
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0] if str(error) else "it is not YAML"
        return f"failed to parse kubeconfig(apiconfig): {reason}"
    if not isinstance(file, dict):
        return "failed to parse kubeconfig(apiconfig): it is not an object"
    users, clusters = _named(file, "users", "user"), _named(file, "clusters", "cluster")
    if any(user.get("tokenFile") for user in users.values()):
        return "tokenFile is not allowed"
    problems = (_cluster_problem(name, cluster) for name, cluster in clusters.items())
    problem = next(filter(None, problems), "")
    chosen = problem or _chosen(file, users, clusters)
    return chosen if isinstance(chosen, str) else validate_connection(chosen) or chosen


def _chosen(
    file: Mapping[str, Json],
    users: Mapping[str, Mapping[str, Json]],
    clusters: Mapping[str, Mapping[str, Json]],
) -> ConnectionConfig | str:
    """Return the connection of the current context; a message if there is none."""
    contexts = _named(file, "contexts", "context")
    current = str(file.get("current-context") or "")
    if current not in contexts:
        known = "no context is chosen" if not current else f'context was not found: "{current}"'
        return f"invalid configuration: {known}"
    context = contexts[current]
    cluster = clusters.get(str(context.get("cluster")))
    if cluster is None:
        return f'invalid configuration: cluster "{context.get("cluster")}" was not found'
    try:
        return _config(cluster, users.get(str(context.get("user")), {}))
    except (binascii.Error, ValueError):
        return "invalid configuration: data is not base64"


def _named(file: Mapping[str, Json], section: str, field: str) -> dict[str, dict[str, Json]]:
    """Return the entries of a section by name; what is not an entry is left out."""
    found = file.get(section)
    entries = [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
    return {
        str(entry.get("name")): entry[field]
        for entry in entries
        if isinstance(entry.get(field), dict)
    }


def _cluster_problem(name: str, cluster: Mapping[str, Json]) -> str:
    if cluster.get("insecure-skip-tls-verify"):
        return f"insecure TLS verification is not allowed for cluster {name}"
    if cluster.get("certificate-authority"):
        return (
            "certificate-authority file paths are not allowed, use certificate-authority-data for"
            f" cluster {name}"
        )
    return "" if cluster.get("server") else f"server URL is required for cluster {name}"


def _config(cluster: Mapping[str, Json], user: Mapping[str, Json]) -> ConnectionConfig:
    def data(section: Mapping[str, Json], field: str) -> bytes:
        return base64.b64decode(str(section.get(field) or ""), validate=True)

    return ConnectionConfig(
        host=str(cluster["server"]),
        authority=data(cluster, "certificate-authority-data"),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        token=str(user.get("token") or ""),
        certificate=data(user, "client-certificate-data"),
        key=data(user, "client-key-data"),
        token_file=str(user.get("tokenFile") or ""),
        username=str(user.get("username") or ""),
        password=str(user.get("password") or ""),
        runs=bool(user.get("exec")),
        asks=bool(user.get("auth-provider")),
        reads=any(user.get(field) for field in ("client-certificate", "client-key")),
    )


def read_profile(
    profile: Mapping[str, Json], providers: Sequence[AccessProvider]
) -> ConnectionConfig | str:
    """Return the connection of a ClusterProfile; a message if there is none.

    The first provider of the Configuration that the profile knows, too, is used. All that decides
    what is run is in the Configuration: the profile has the address, and data for the program.

    Args:
        profile: The ClusterProfile.
        providers: Those of the Configuration.
    """
    if not providers:
        return "no access provider configured"
    status = profile.get("status")
    status = status if isinstance(status, dict) else {}
    known = {
        **_named(status, "credentialProviders", "cluster"),
        **_named(status, "accessProviders", "cluster"),
    }
    provider = next((each for each in providers if each.name in known), None)
    if provider is None:
        name = (profile.get("metadata") or {}).get("name", "")
        return f'no matching cluster accessor found for cluster profile "{name}"'
    program, cluster = provider.exec_config, known[provider.name]
    if not program.command.startswith("/"):
        return (
            f'command "{program.command}" of access provider "{provider.name}" in the Configuration'
            " is not an absolute path"
        )
    problem = _cluster_problem(provider.name, cluster)
    if problem:
        return problem
    try:
        config = _config(cluster, {})
    except (binascii.Error, ValueError):
        return "invalid configuration: data is not base64"
    extensions = _named(cluster, "extensions", "extension")
    passed = extensions.get(_PROGRAM_EXTENSION)
    return replace(config, runs=True, program=program, program_config=passed)


def validate_connection(config: ConnectionConfig, *, may_run: bool = False) -> str:
    """Return why a connection is not safe; empty if it is.

    Args:
        config: The connection.
        may_run: Whether a program may get its credentials, as for ClusterProfiles.
    """
    mistakes = (
        (config.token_file, "bearerTokenFile is not allowed"),
        (not _is_host(config.host), "untrusted server endpoint"),
        (config.username or config.password, "basic auth is not allowed"),
        (config.runs and not may_run, "exec plugins are not allowed"),
        (config.asks, "auth providers are not allowed"),
        (config.reads, _FILES),
    )
    return next((message for wrong, message in mistakes if wrong), "")


def _is_host(server: str) -> bool:
    """Tell whether a URL has an IP address or a DNS name."""
    try:
        parts = urlsplit(server.lower() if "//" in server else f"//{server.lower()}")
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return re.fullmatch(SUBDOMAIN, host) is not None and len(host) <= 253
    return True


def path_problem(path: str, resolved: str, folder: str = KUBECONFIG_FOLDER) -> str:
    """Return why a file must not be read as a kubeconfig; empty if it may.

    Args:
        path: As it was given.
        resolved: The same without links and `..`.
        folder: Where it must be, resolved too.
    """
    if not path:
        return "kubeconfig path must not be empty"
    root = folder.rstrip("/")
    if not path.startswith("/"):
        return f'kubeconfig path must be absolute: "{path}"'
    if not resolved.startswith(f"{root}/"):
        return (
            f'kubeconfig path is not under the allowed prefix: "{resolved}" is not under "{root}"'
        )
    return ""


class ConnectionState(NamedTuple):
    """Whether a worker is connected.

    Attributes:
        lost_at: Since when it is not, in seconds since the epoch; None while it is.
    """

    lost_at: float | None = None

    @property
    def connected(self) -> bool:
        """Whether the worker can be asked."""
        return self.lost_at is None

    def lost(self, now: float) -> "ConnectionState":
        """Return the state after a loss: the first one counts."""
        return self if self.lost_at is not None else ConnectionState(now)


def retry_seconds(failures: int) -> float:
    """Return how long to wait after so many failures in a row to connect: 5 s, 10 s, 20 s ..."""
    if failures < 1:
        return 0.0
    return RETRY_SECONDS * 2.0 ** min(failures - 1, MOST_DOUBLINGS)


def establish_seconds(failures: int) -> float:
    """Return how long a worker may take to answer, after so many failures in a row."""
    if failures > 10:
        return LONGEST_ESTABLISH_SECONDS
    return min(ESTABLISH_SECONDS * 2.0**failures, LONGEST_ESTABLISH_SECONDS)


def failure_message(problem: str, failures: int, next_at: float | None) -> str:
    """Return the message of a worker that cannot be reached.

    Args:
        problem: The error of the last attempt.
        failures: Attempts in a row that failed.
        next_at: When the next one is, in seconds since the epoch.
    """
    following = "" if next_at is None else f", next connection attempt: {rfc3339(next_at)}"
    return f"{problem}; connection attempts: {failures}{following}"


def connected_condition(
    cluster: MultiKueueCluster, problem: tuple[str, str] | None, *, now: float
) -> Condition | None:
    """Return the condition that says whether a cluster is connected; None if it says so already.

    Args:
        cluster: The cluster.
        problem: Reason and message, if it is not connected.
        now: Seconds since the epoch.
    """
    reason, message = problem or (ACTIVE, "Connected")
    new = Condition(
        type=ACTIVE,
        status="False" if problem else "True",
        reason=reason,
        message=cut(message, LONGEST_MESSAGE, end=" ..."),
        last_transition_time=timestamp(now),
        observed_generation=cluster.metadata.generation,
    )
    return None if same_state(find_condition(cluster.status.conditions, ACTIVE), new) else new


def same_state(old: Condition | None, new: Condition) -> bool:
    """Tell whether two conditions say the same."""
    content = (new.status, new.reason, new.message)
    return old is not None and (old.status, old.reason, old.message) == content
