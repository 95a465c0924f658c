"""Kueue's Configuration, for the commands that run the controller."""

from dataclasses import replace

import click
import structlog

from policyd.api.configuration import Configuration
from policyd.api.configuration.fixed_gates import ineffective_gates
from policyd.api.configuration.tls import tls_rules
from policyd.config import kinds_that_queue, load_configuration
from policyd.controller.queues.queue_settings import (
    copied_keys,
    deciding_fields,
    ineffective_fields,
    metrics_settings,
    multi_kueue_settings,
    other_teams,
    queue_settings,
    time_limits,
)
from policyd.controller.settings import ControllerSettings
from policyd.jobs.integrations import Integrations
from policyd.standard_input import STORED_FILE

log = structlog.get_logger()

CONFIG = click.option(
    "--config",
    default="",
    type=STORED_FILE,
    metavar="FILE",
    help="Kueue's Configuration: how all queues decide.  [its defaults]",
)


def configured(settings: ControllerSettings, *, path: str, gates: str = "") -> ControllerSettings:
    """Return settings with those of a Configuration added, and warn of ineffective fields.

    Args:
        settings: The settings from other sources.
        path: Of the Configuration's file; empty for its defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If the file cannot be read, or something in it is wrong.
    """
    configuration = load_configuration(path, gates=gates)
    queueing = queue_settings(configuration, gates=gates)
    for sentence in ineffective_gates(gates, configuration.feature_gates):
        log.warning("feature_gate_left_out", why=sentence)
    if fields := ineffective_fields(configuration):
        log.warning("configuration_not_heeded", fields=fields)
    return replace(
        settings,
        queueing=queueing,
        configuration=deciding_fields(configuration, gates=gates, all_kinds=not path),
        limits=time_limits(configuration, gates=gates),
        copied=copied_keys(configuration),
        multi_kueue=multi_kueue_settings(configuration, gates=gates),
        metrics=metrics_settings(configuration, gates=gates),
        other_teams=other_teams(configuration),
        resources=configuration.resources,
        tls=tls_rules(configuration),
        pprof_bind_address=configuration.pprof_bind_address,
        integrations=_integrations(configuration, path, gates),
    )


def _integrations(configuration: Configuration, path: str, gates: str) -> Integrations:
    """Return which kinds queue, and name those that others queue."""
    found = kinds_that_queue(configuration, path, gates=gates)
    for group, kind in sorted(found.external):
        why = "its own controller queues it and its children"
        log.info("framework_external", kind=kind, group=group, why=why)
    return found
