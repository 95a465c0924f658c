"""Which devices are charged to which resource: rules for `resources.deviceClassMappings`."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from policyd.api.configuration.kinds import (
    DeviceClassMapping,
    DeviceClassSource,
    DeviceSource,
    ResourcesConfiguration,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.names import (
    LABEL,
    LABEL_RULE,
    LONGEST_LABEL,
    SUBDOMAIN_RULE,
    is_subdomain,
    label_key_problems,
)

_MOST_MAPPINGS: Final = 16
_MOST_CLASSES: Final = 8
_LONGEST_NAME: Final = 253
_LONGEST_DOMAIN: Final = 63
_LONGEST_IDENTIFIER: Final = 32
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"

Errors = Iterator[FieldError]

RESERVED: Final = "is reserved: the queue itself counts the pods of each pod set under this name"


def reserved_names(gates: Mapping[str, bool]) -> frozenset[str]:
    """Return the resources that a Configuration must not give an amount."""
    return frozenset({"pods"} if gates["ReservedResourceNameValidation"] else ())


def validate_mappings(
    resources: ResourcesConfiguration | None, gates: Mapping[str, bool]
) -> list[FieldError]:
    """Return the errors in the mappings of device classes to resources."""
    mappings = resources.device_class_mappings if resources else ()
    path = "resources.deviceClassMappings"
    errors = list(_too_many(path, len(mappings), _MOST_MAPPINGS))
    names: set[str] = set()
    owners: dict[str, tuple[str, set[str]]] = {}
    for index, mapping in enumerate(mappings):
        where = f"{path}[{index}]"
        errors += _name(f"{where}.name", mapping.name)
        if gates["KueueDRAIntegration"] and mapping.name in reserved_names(gates):
            errors.append(FieldError(f"{where}.name", mapping.name, RESERVED))
        if mapping.name in names:
            errors.append(FieldError(f"{where}.name", mapping.name, "is there twice", "Duplicate"))
        names.add(mapping.name)
        errors += _classes(f"{where}.deviceClassNames", mapping, owners)
        errors += _sources(f"{where}.sources", mapping.sources, gates)
    return errors


def _too_many(path: str, count: int, most: int) -> Errors:
    if count > most:
        yield FieldError(path, count, f"must have at most {most} items", "TooMany")


def _name(path: str, name: str) -> Errors:
    problems = label_key_problems(name)
    if problems:
        yield FieldError(path, name, "; ".join(problems))
    if len(name) > _LONGEST_NAME:
        yield FieldError(path, name, f"must not exceed {_LONGEST_NAME} characters")


def _classes(
    path: str, mapping: DeviceClassMapping, owners: dict[str, tuple[str, set[str]]]
) -> Errors:
    """Check the classes of one mapping; `owners` are resource and counters of those before."""
    classes = mapping.device_class_names
    if not classes:
        message = "at least one device class name is required"
        yield FieldError(path, "", message, "Required")
    yield from _too_many(path, len(classes), _MOST_CLASSES)
    first = mapping.sources[0].counter if mapping.sources else None
    counter = first.name if first else ""
    for index, name in enumerate(classes):
        where = f"{path}[{index}]"
        yield from _name(where, name)
        if name in classes[:index]:
            yield FieldError(where, name, "is there twice", "Duplicate")
        owner, counters = owners.setdefault(name, (mapping.name, {counter} - {""}))
        if owner == mapping.name:
            continue
        if not counter or not counters:
            message = f"device class already mapped to resource {owner}"
            yield FieldError(where, name, message)
        elif counter in counters:
            message = f'device class already has a counter source for counter "{counter}"'
            yield FieldError(where, name, message)
        counters.add(counter)


def _sources(
    path: str, sources: tuple[DeviceClassSource, ...], gates: Mapping[str, bool]
) -> Errors:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        if source.counter is None and source.capacity is None:
            message = "exactly one source type must be set per entry"
            yield FieldError(where, None, message, "Required")
        elif source.counter is not None and source.capacity is not None:
            message = "exactly one source type must be set per entry"
            yield FieldError(where, "counter+capacity", message)
        elif source.counter is not None:
            yield from _counter(f"{where}.counter", source.counter, gates)
        elif source.capacity is not None:
            yield from _capacity(f"{where}.capacity", source.capacity, gates)
    counters = sum(source.counter is not None for source in sources)
    if counters and any(source.capacity is not None for source in sources):
        message = "cannot mix counter and capacity sources in the same mapping"
        yield FieldError(path, len(sources), message)


def _counter(path: str, counter: DeviceSource, gates: Mapping[str, bool]) -> Errors:
    gate = "KueueDRAIntegrationPartitionableDevices"
    if not gates[gate]:
        yield FieldError(path, True, f"counter sources require {gate} to be enabled")  # noqa: FBT003
        return
    if not counter.name:
        yield FieldError(f"{path}.name", "", "", "Required")
    elif len(counter.name) > LONGEST_LABEL or not re.fullmatch(LABEL, counter.name):
        yield FieldError(f"{path}.name", counter.name, LABEL_RULE)
    yield from _source(path, counter)


def _capacity(path: str, capacity: DeviceSource, gates: Mapping[str, bool]) -> Errors:
    gate = "KueueDRAIntegrationConsumableCapacity"
    if not gates[gate]:
        yield FieldError(path, True, f"capacity sources require {gate} to be enabled")  # noqa: FBT003
        return
    yield from _qualified(f"{path}.name", capacity.name)
    yield from _source(path, capacity)


def _qualified(path: str, name: str) -> Errors:
    """Check `identifier` or `domain/identifier`."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not domain:
        yield FieldError(path, "", "the domain must not be empty")
    elif slash:
        if len(domain) > _LONGEST_DOMAIN:
            yield _too_long(path, _LONGEST_DOMAIN)
        if not is_subdomain(domain.lower()):
            yield FieldError(path, domain, SUBDOMAIN_RULE)
    if slash and not identifier:
        yield FieldError(path, "", "the name must not be empty")
        return
    if len(identifier) > _LONGEST_IDENTIFIER:
        yield _too_long(path, _LONGEST_IDENTIFIER)
    if not re.fullmatch(_IDENTIFIER, identifier):
        yield FieldError(path, identifier, f"must match {_IDENTIFIER}, as an identifier of C does")


def _too_long(path: str, most: int) -> FieldError:
    return FieldError(path, "<value omitted>", f"may not be more than {most} bytes", "TooLong")


def _source(path: str, source: DeviceSource) -> Errors:
    driver = source.driver
    if not driver:
        yield FieldError(f"{path}.driver", "", "", "Required")
    elif len(driver) > _LONGEST_DOMAIN:
        message = f"must not exceed {_LONGEST_DOMAIN} characters"
        yield FieldError(f"{path}.driver", driver, message)
    elif not is_subdomain(driver):
        yield FieldError(f"{path}.driver", driver, SUBDOMAIN_RULE)
    cel = source.device_selector.cel
    if cel is None or not cel.expression:
        yield FieldError(f"{path}.deviceSelector.cel.expression", "", "", "Required")
