"""Packages that only some commands need, and that are installed as extras of policyd."""

from importlib import import_module
from typing import Any

from policyd.errors import PolicydError


def extra(module: str, name: str, what: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module of an extra.

    Args:
        module: The module.
        name: Of the extra in pyproject.toml.
        what: What needs it, in the plural.

    Raises:
        PolicydError: If the extra is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise PolicydError(
            f"{what} need the extra `{name}`: pip install 'policyd[{name}]'"
        ) from error
