"""YAML that is read as a whole: configurations, kubeconfigs, and texts in other objects."""

from typing import Any

import yaml


def plain_yaml(text: str | bytes) -> Any:  # noqa: ANN401 - whatever is written there
    """Return the value of a text in YAML.

    Raises:
        yaml.YAMLError: If it is not YAML, nested too deep, or has a value that none can be.
    """
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except ValueError as error:  # a text that is no UTF-8, or a date, or number, that is none
        raise yaml.YAMLError(str(error)) from error
