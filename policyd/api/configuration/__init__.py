"""Kueue's Configuration: the administrator's settings for all queues, as Kueue reads them.

Imports `api` and `errors`. Start with `kinds` (its fields) and `validation`.
"""

import re

import msgspec

from policyd.api.configuration.defaults import with_defaults
from policyd.api.configuration.duration import duration_seconds
from policyd.api.configuration.gates import all_gates, validate_gates
from policyd.api.configuration.kinds import (
    API_VERSION,
    GROUP,
    OLD_API_VERSION,
    Configuration,
)
from policyd.api.configuration.v1beta1 import upgraded
from policyd.api.configuration.validation import pods_ready_awaited, validate_configuration
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.errors import ConfigurationError, did_you_mean

__all__ = [
    "API_VERSION",
    "GROUP",
    "OLD_API_VERSION",
    "Configuration",
    "all_gates",
    "check_configuration",
    "chosen_gates",
    "decode_configuration",
    "duration_seconds",
    "pods_ready_awaited",
    "validate_configuration",
    "validate_gates",
]


def decode_configuration(document: Json) -> Configuration:
    """Read a Configuration of either version, with defaults filled in.

    Args:
        document: Decoded JSON or YAML; None, as of an empty file, sets nothing.

    Raises:
        ConfigurationError: If it is not a Configuration, or a field is unknown or mistyped.
    """
    if document is None:
        document = {"apiVersion": API_VERSION, "kind": "Configuration"}
    if not isinstance(document, dict) or document.get("kind") != "Configuration":
        raise ConfigurationError("a configuration must be a YAML map of kind `Configuration`")
    version = document.get("apiVersion")
    if version not in (API_VERSION, OLD_API_VERSION):
        raise ConfigurationError(
            f"unsupported Configuration version `{version}`", hint=f"write `{API_VERSION}`"
        )
    try:
        return msgspec.convert(_filled(document), Configuration, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"invalid Configuration: {_words(str(error))}") from error


def _filled(document: dict[str, Json]) -> Json:
    """Return a Configuration as version v1beta2 has it, with defaults filled in.

    One with a value of another type than it may have is left as it is, which names that value when
    it is read.

    Raises:
        ConfigurationError: If it could be read all the same.
    """
    try:
        return upgraded(with_defaults(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msgspec.convert(document, Configuration, strict=True)
        raise ConfigurationError("the Configuration has a value of a wrong type") from error


def check_configuration(
    configuration: Configuration, *, gates: str = ""
) -> tuple[dict[str, bool], list[FieldError]]:
    """Return the feature gates that are set, and everything that is wrong.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.
    """
    chosen, errors = validate_gates(gates, configuration.feature_gates)
    known = {name: on for name, on in chosen.items() if name in all_gates({})}
    return known, [*errors, *validate_configuration(configuration, known)]


def chosen_gates(configuration: Configuration, *, gates: str = "") -> dict[str, bool]:
    """Return the feature gates that are set.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If something in the Configuration, or in these gates, is wrong.
    """
    chosen, errors = check_configuration(configuration, gates=gates)
    if errors:
        listed = "; ".join(str(error) for error in errors)
        given, _ = validate_gates(gates, configuration.feature_gates)
        known = all_gates({})
        unknown = next((name for name in given if name not in known), "")
        hint = did_you_mean(unknown, known) or "docs/reference/feature-gates.md lists the gates"
        raise ConfigurationError(f"invalid Configuration: {listed}", hint=hint if unknown else None)
    return chosen


def _words(error: str) -> str:
    """Turn the decoder's `… unknown field `x` - at `$.y`` into `unknown field `x` at `y``."""
    found = re.fullmatch(r"Object contains unknown field `([^`]*)`( - at `\$\.(.*)`)?", error)
    if found is None:
        return error[:1].lower() + error[1:].replace("`$.", "`")
    return f"unknown field `{found[1]}`" + (f" at `{found[3]}`" if found[3] else "")
