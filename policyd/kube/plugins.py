"""Credentials that a plugin provides, by way of the official client.

Importing it costs a third of a second, so it happens when a kubeconfig needs it, and not before.
"""

import base64
import ssl
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from policyd.clock import Clock
from policyd.errors import ConfigurationError
from policyd.kube.auth import READ_AGAIN_SECONDS, moment
from policyd.kube.kubeconfig import SelectedContext, content
from policyd.kube.tls import load_certificate


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


def ask_plugin(
    chosen: SelectedContext, tls: ssl.SSLContext | None
) -> Callable[[], tuple[str, float | None]]:
    """Return how to ask the context's credential plugin for a header and its expiry.

    A certificate that it answers with is loaded into `tls`, for connections from then on.
    """
    command = str((chosen.user.exec or {}).get("command", ""))

    def fetch() -> tuple[str, float | None]:
        credential = _run(chosen, command)
        if credential.client_certificate_data and tls is not None:
            load_certificate(
                tls,
                credential.client_certificate_data.encode(),
                credential.client_key_data.encode(),
            )
        elif not credential.token:
            raise _failure(chosen, f"credential plugin `{command}` answered with no credential")
        header = f"Bearer {credential.token}" if credential.token else ""
        expiry = credential.expiration_timestamp
        return header, moment(expiry) if expiry else None

    return fetch


def _run(chosen: SelectedContext, command: str) -> Credential:
    exec_provider = import_module("kubernetes.config.exec_provider")
    node = import_module("kubernetes.config.kube_config").ConfigNode
    try:
        provider = exec_provider.ExecProvider(
            node("exec", chosen.user.exec),
            str(chosen.user_folder),
            node("cluster", _cluster_for_plugin(chosen)),
        )
        return msgspec.convert(provider.run(), Credential)
    except FileNotFoundError as error:
        raise _failure(chosen, f"credential plugin `{command}` is not installed") from error
    except (exec_provider.ConfigException, OSError, msgspec.ValidationError) as error:
        message = f"credential plugin `{command}` failed: {str(error).strip()}"
        raise _failure(chosen, message) from error
    except (AttributeError, KeyError, TypeError) as error:
        # With a terminal the official client trips over the plugin's failure itself.
        raise _failure(chosen, f"credential plugin `{command}` failed") from error


def _failure(chosen: SelectedContext, message: str) -> ConfigurationError:
    install = (chosen.user.exec or {}).get("installHint")
    hint = str(install).strip() if install else f"run it as context `{chosen.context}` would"
    return ConfigurationError(message, hint=hint)


def _cluster_for_plugin(chosen: SelectedContext) -> dict[str, Any]:
    """Return the cluster as a plugin wants it: with the authority itself, not its file's name."""
    cluster = {key: value for key, value in msgspec.to_builtins(chosen.cluster).items() if value}
    authority = content(
        chosen.cluster.certificate_authority_data,
        chosen.cluster.certificate_authority,
        chosen.cluster_folder,
        what="certificate-authority",
    )
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return cluster


def ask_provider(chosen: SelectedContext, clock: Clock) -> Callable[[], tuple[str, float | None]]:
    """Return how to ask the official client for the token of an `auth-provider` (OIDC).

    It refreshes an expired token, and writes the new one into the kubeconfig, as kubectl does.
    """

    def fetch() -> tuple[str, float | None]:
        configuration = import_module("kubernetes.client").Configuration()
        try:
            import_module("kubernetes.config").load_kube_config(
                config_file=":".join(str(path) for path in chosen.files),
                context=chosen.context,
                client_configuration=configuration,
            )
        except Exception as error:  # of four libraries, each with its own
            raise _provider_failure(chosen) from error
        header = configuration.api_key.get("BearerToken")
        if not header:
            raise _provider_failure(chosen)
        return str(header), clock.now() + READ_AGAIN_SECONDS

    return fetch


def _provider_failure(chosen: SelectedContext) -> ConfigurationError:
    name = (chosen.user.auth_provider or {}).get("name", "")
    return ConfigurationError(
        f"auth-provider `{name}` of context `{chosen.context}` gave no token",
        hint="log in again; of the providers that kubectl once had, only `oidc` is left",
    )
