"""How jobs go to other clusters: rules for the part `multiKueue`."""

from collections.abc import Iterator

import msgspec

from policyd.api.configuration.defaults import INCREMENTAL_DISPATCHER
from policyd.api.configuration.frameworks import KINDS, kind_of
from policyd.api.configuration.kinds import AccessProvider, ClusterProfile, MultiKueue
from policyd.api.configuration.problems import UNSAID, length_errors, unsupported
from policyd.api.kueue.validation import FieldError
from policyd.api.names import LABEL_VALUE_RULE, is_label_value

Errors = Iterator[FieldError]


def validate_multi_kueue(multi: MultiKueue | None) -> Errors:
    """Yield what is wrong with the part `multiKueue`."""
    path = "multiKueue"
    if multi is None:
        return
    yield from length_errors(f"{path}.gcInterval", multi.gc_interval)
    yield from length_errors(f"{path}.workerLostTimeout", multi.worker_lost_timeout)
    if multi.origin is not None and not is_label_value(multi.origin):
        yield FieldError(f"{path}.origin", multi.origin, LABEL_VALUE_RULE)
    yield from _external_frameworks(multi)
    if multi.cluster_profile is not None:
        yield from _profile(f"{path}.clusterProfile", multi.cluster_profile)
    yield from _steps(f"{path}.incrementalDispatcherConfig", multi)


def _profile(path: str, profile: ClusterProfile) -> Errors:
    if profile.access_providers and profile.credentials_providers:
        message = "must not be specified when accessProviders is specified"
        yield FieldError(f"{path}.credentialsProviders", None, message, "Forbidden")
    name = "accessProviders" if profile.access_providers else "credentialsProviders"
    for provider in profile.providers:
        yield from _provider(f"{path}.{name}", provider)


def _steps(path: str, multi: MultiKueue) -> Errors:
    steps = multi.incremental_dispatcher_config
    if steps is None:
        return
    if multi.dispatcher_name != INCREMENTAL_DISPATCHER:
        message = f"needs dispatcherName to be {INCREMENTAL_DISPATCHER}"
        yield FieldError(path, msgspec.to_builtins(steps), message)
    if steps.step_size is not None and steps.step_size < 1:
        message = "must be greater than or equal to 1"
        yield FieldError(f"{path}.stepSize", steps.step_size, message)


def _external_frameworks(multi: MultiKueue) -> Errors:
    seen = set()
    for index, framework in enumerate(multi.external_frameworks):
        path, kind = f"multiKueue.externalFrameworks[{index}].name", kind_of(framework.name)
        if kind is None:
            yield FieldError(path, framework.name, "must be in 'kind.version.group' format")
            continue
        if kind in seen:
            yield FieldError(path, framework.name, "is there twice", "Duplicate")
        seen.add(kind)
        if kind in KINDS.values():
            message = "conflicts with a built-in MultiKueue adapter"
            yield FieldError(path, framework.name, message)


def _provider(path: str, provider: AccessProvider) -> Errors:
    program = provider.exec_config
    for where, text in (
        ("name", provider.name),
        ("execConfig.command", program.command),
        ("execConfig.apiVersion", program.api_version),
        *(("execConfig.env.name", variable.name) for variable in program.env or ()),
        ("execConfig.interactiveMode", program.interactive_mode),
    ):
        if not text:
            yield FieldError(f"{path}.{where}", text, UNSAID, "Required")
    modes = ("Never", "IfAvailable", "Always")
    if program.interactive_mode and program.interactive_mode not in modes:
        where = f"{path}.execConfig.interactiveMode"
        yield unsupported(where, program.interactive_mode, modes)
