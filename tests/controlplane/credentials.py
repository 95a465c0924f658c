"""Who may call a test's API server: keys, static tokens and the kubeconfig."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.controlplane.programs import Site

ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who may call the API server, for tests of RBAC."""

    name: str
    groups: tuple[str, ...] = ()


def write_service_account_key(site: Site) -> None:
    """Write the key that service accounts' tokens are signed with."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    site.service_account_key.write_bytes(pem)


def write_tokens(site: Site, users: Sequence[User], tokens: Mapping[str, str]) -> None:
    """Write the API server's file of static tokens; the administrator needs no RBAC."""
    everyone = (User(name=ADMIN, groups=("system:masters",)), *users)
    rows = (
        f'{tokens[user.name]},{user.name},{user.name},"{",".join(user.groups)}"\n'
        for user in everyone
    )
    site.tokens.write_text("".join(rows))


def write_kubeconfig(site: Site, tokens: Mapping[str, str]) -> None:
    """Write a kubeconfig file with a context for each user, the administrator's chosen."""
    cluster = {"server": site.server, "certificate-authority": str(site.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
        "contexts": [
            {"name": name, "context": {"cluster": "test", "user": name}} for name in tokens
        ],
        "current-context": ADMIN,
    }
    site.kubeconfig.write_text(json.dumps(config, indent=2))
