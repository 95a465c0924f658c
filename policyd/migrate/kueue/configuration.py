"""Kueue's Configuration as a cluster has it, which may be of a newer Kueue than policyd knows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from policyd.api.configuration import Configuration, check_configuration, decode_configuration
from policyd.api.configuration.gates import DEFAULTS, validate_gates
from policyd.api.yaml_texts import plain_yaml
from policyd.errors import ConfigurationError

_UNKNOWN: Final = re.compile(r"invalid Configuration: unknown field `([^`]+)`(?: at `([^`]+)`)?")
_MOST: Final = 50
"""Unknown fields that are left out; one with more is no Configuration of Kueue's."""
_BYTES: Final = 1 << 20
"""What the API server stores of a ConfigMap."""


@dataclass(frozen=True, slots=True)
class KueueSettings:
    """Kueue's settings.

    Attributes:
        document: The Configuration as written, without what policyd does not know, and with the
            gates of the command line.
        configuration: The same with defaults.
        unknown_fields: What was left out, as paths.
        unknown_gates: Likewise, names of feature gates.
        gates: The gates that are set, without those.
    """

    document: dict[str, Any]
    configuration: Configuration
    unknown_fields: tuple[str, ...] = ()
    unknown_gates: tuple[str, ...] = ()
    gates: Mapping[str, bool] | None = None


def read_settings(text: str, gates: str) -> KueueSettings:
    """Read Kueue's Configuration and the gates of its command line.

    Raises:
        ConfigurationError: If it is not a Configuration, or something else in it is wrong.
    """
    document = _parse(text)
    unknown: list[str] = []
    while True:
        try:
            decode_configuration(document)
            break
        except ConfigurationError as error:
            found = _UNKNOWN.match(str(error))
            if found is None or len(unknown) == _MOST or not _remove(document, found):
                raise
            unknown.append(f"{found[2]}.{found[1]}" if found[2] else found[1])
    given = document.get("featureGates")
    chosen = dict(given) if isinstance(given, dict) else {}
    if gates:
        from_line, errors = validate_gates(gates, None)
        chosen |= from_line
        if any("missing bool" in str(e) or "invalid value" in str(e) for e in errors):
            raise ConfigurationError(
                f"the feature gates of Kueue's command line are wrong: {gates}"
            )
    unknown_gates = tuple(sorted(chosen.keys() - DEFAULTS.keys()))
    known = {name: on for name, on in chosen.items() if name in DEFAULTS}
    document = {name: value for name, value in document.items() if name != "featureGates"}
    document |= {"featureGates": known} if known else {}
    configuration = decode_configuration(document)
    _, wrong = check_configuration(configuration)
    if wrong:
        raise ConfigurationError(f"Kueue's Configuration is wrong: {'; '.join(map(str, wrong))}")
    return KueueSettings(document, configuration, tuple(unknown), unknown_gates, known)


def _parse(text: str) -> dict[str, Any]:
    if len(text) > _BYTES:
        raise ConfigurationError("Kueue's Configuration is larger than a ConfigMap may be")
    try:
        document = plain_yaml(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"Kueue's Configuration is not YAML: {problem}") from error
    if not isinstance(document, dict):
        raise ConfigurationError("Kueue's Configuration is not a map")
    return document


def _remove(document: Any, found: re.Match[str]) -> bool:  # noqa: ANN401 - a YAML document
    """Remove a field that is not known; tell whether it was there."""
    place = document
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]", found[2] or ""):
        if part.startswith("["):
            # The place of an element may be unknown: the first that has the field.
            items = place if isinstance(place, list) else list(place.values())
            place = next((x for x in items if isinstance(x, dict) and found[1] in x), None)
        else:
            place = place.get(part) if isinstance(place, dict) else None
        if place is None:
            return False
    return isinstance(place, dict) and place.pop(found[1], None) is not None
