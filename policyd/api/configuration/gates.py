"""Kueue's feature gates: their defaults, which need which, and how they are given."""

from collections.abc import Mapping
from typing import Final

import msgspec

from policyd.api.data import kueue_gates
from policyd.api.kueue.validation import FieldError


class _Gate(msgspec.Struct, frozen=True, kw_only=True):
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()
    """The gates without which it does nothing."""


_GATES: Final = kueue_gates(dict[str, _Gate])

DEFAULTS: Final[Mapping[str, bool]] = {name: gate.default for name, gate in _GATES.items()}
"""Every gate, and whether it is on by default."""

LOCKED: Final = frozenset(name for name, gate in _GATES.items() if gate.locked)
"""Gates that can no longer be set to anything but their default."""


def all_gates(given: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate, as `given` or else by default."""
    return {**DEFAULTS, **given}


def validate_gates(
    text: str, given: Mapping[str, bool] | None
) -> tuple[dict[str, bool], list[FieldError]]:
    """Return the values of gates, and the errors in them.

    Args:
        text: Gates from the command line: `A=true,B=false`.
        given: Gates from the Configuration; None if it says none.
    """
    path = "featureGates"
    if text and given is not None:
        message = "feature gates for CLI and configuration cannot both specified"
        return {}, [FieldError(path, dict(given), message)]
    chosen, wrong = _parse(text) if text else (dict(given or {}), [])
    wrong += [f"unrecognized feature gate: {name}" for name in chosen if name not in DEFAULTS]
    wrong += [
        f"cannot set feature gate {name} to {_word(chosen[name])}, feature is locked to "
        f"{_word(DEFAULTS[name])}"
        for name in sorted(LOCKED & chosen.keys())
        if chosen[name] != DEFAULTS[name]
    ]
    wrong = wrong or _unmet(all_gates(chosen))
    if not wrong:
        return chosen, []
    message = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
    return chosen, [FieldError(path, text or chosen, message)]


def _parse(text: str) -> tuple[dict[str, bool], list[str]]:
    chosen: dict[str, bool] = {}
    wrong = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            wrong.append(f"missing bool value for {name}")
        elif value.lower() not in {"true", "false"}:
            wrong.append(f"invalid value of {name}={value}")
        else:
            chosen[name.strip()] = value.lower() == "true"
    return chosen, wrong


def _unmet(gates: Mapping[str, bool]) -> list[str]:
    wrong = []
    for name, gate in _GATES.items():
        off = " ".join(other for other in gate.needs if not gates[other])
        if gates[name] and off:
            wrong.append(f"{name} is enabled, but depends on features that are disabled: [{off}]")
    return wrong


def _word(value: bool) -> str:  # noqa: FBT001 - it writes a boolean
    return "true" if value else "false"
