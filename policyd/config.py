"""Settings from flags, the environment and Kueue's Configuration, read once.

How a process runs, its flags say; how all queues decide, the Configuration that Kueue's users have
already.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
import yaml

from policyd.api.configuration import Configuration, chosen_gates, decode_configuration
from policyd.api.configuration.tls import TlsRules, tls_rules
from policyd.api.makers import Makers, makers_of
from policyd.api.yaml_texts import plain_yaml
from policyd.errors import ConfigurationError, did_you_mean, system_reason
from policyd.jobs.frameworks import gated_frameworks, integrations_of
from policyd.jobs.integrations import EVERYTHING, Integrations

PREFIX = "POLICYD_"
"""Every variable of ours begins with it: `POLICYD_PORT` is the field `port`."""

_LISTS = {
    **dict.fromkeys(("policies", "reads"), os.pathsep),
    **dict.fromkeys(
        ("client_names", "exceptions", "http", "leave_out", "registries", "starters"), ","
    ),
    "makers": " ",
}
"""Settings that take several values, and the separator of these in a variable."""

SERVICE_LINKS = ("_PORT", "_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP", "_ADDR", "_PROTO")
"""The variables that Kubernetes sets for each Service; a Service may be named policyd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a long-running policyd process.

    A flag wins over its variable, the variable over the default.
    """

    policies: tuple[str, ...] = ()
    """Files and folders of policies, reloaded when they change. In the variable: parted by `:`."""

    from_cluster: bool = False
    """Whether Policy objects of the API server apply too. Off, so that it works without one."""

    kyverno: bool = False
    """Whether Kyverno's policies of the API server apply too, for a cluster that Kyverno has left:
    ValidatingPolicies and MutatingPolicies, also those of namespaces, and ClusterPolicies by CEL.
    GlobalContextEntries of the API server count, too."""

    exceptions: tuple[str, ...] = ()
    """Namespaces whose PolicyExceptions of Kyverno count, with `kyverno`. A user who may write one
    there may lift any policy. Empty: exceptions are read from files alone. In the variable: parted
    by `,`."""

    reads: tuple[str, ...] = ()
    """Resources that Kyverno's policies may read from the API server by `resource.Get` and
    `resource.List`, and by `globalContext.Get` if GlobalContextEntries are among the policies:
    `v1/configmaps`, `apps/v1/deployments`. They are watched, so that no review waits. In the
    variable: parted by `:`."""

    http: tuple[str, ...] = ()
    """Which addresses, with all below them, Kyverno's policies may ask by `http.Get` and its like,
    and GlobalContextEntries by `apiCall`: `https://inventory.example/api`. Answers count for 5 s,
    or as long as the entry says. In the variable: parted by `,`."""

    registries: tuple[str, ...] = ()
    """Whose images Kyverno's policies may ask for by `image.GetMetadata`: `ghcr.io`, `docker.io`,
    `http://registry.example:5000`. Answers count for 60 s. In the variable: parted by `,`."""

    registry_credentials: str = ""
    """Path of a file with the passwords of these registries, as `docker login` makes it and a
    Secret keeps it in `.dockerconfigjson`; reloaded when it changes. Sent by HTTPS alone."""

    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: `KUBECONFIG`, `~/.kube/config`, or the pod's own account."""

    host: str = "0.0.0.0"  # noqa: S104
    """Address to listen on. All of them, since the API server calls from outside the pod."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9443
    """TCP port to listen on. The one that controller-runtime's webhooks made usual; needs no root;
    0 lets the system choose."""

    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """TCP port of `/livez`, `/readyz` and `/metrics`, by HTTP without TLS; 0 lets the system
    choose. Empty: the one after `port`, or any other where that is taken."""

    client_ca: str = ""
    """Path of the authority of the callers' certificates, PEM; reloaded when it changes. The
    handshake of other callers fails. Empty: all callers that reach the port get answers."""

    client_names: tuple[str, ...] = ()
    """Names in these certificates, common or alternative; only callers with one of them get
    answers. Empty: all that `client_ca` signs for. In the variable: parted by `,`."""

    plain_http: bool = False
    """Whether to use uvicorn's HTTP only. Reviews then take about twice as long; it is for versions
    of uvicorn that the faster implementation was not written for."""

    certificate: str = ""
    """Path of the server certificate, PEM, its chain after it; reloaded when it changes."""

    key: str = ""
    """Path of the certificate's private key, PEM."""

    authority: str = ""
    """Path of the authority that signed the certificate, PEM; goes into the configurations of
    `register`. Empty: the API server's machine trusts it already."""

    secret: str = ""
    """`namespace/name` of the Secret that keeps an authority of our own instead."""

    service: str = ""
    """`namespace/name` or `namespace/name:port` of the Service the API server calls.
    Empty: `policyd-webhooks` in our own namespace, port 443."""

    url: str = ""
    """Address the API server calls instead of a Service: `https://host:port`."""

    namespace: str = "policyd"
    """Our own namespace: never sent through the webhooks, so that they can start at all."""

    queue: bool = True
    """Whether jobs that name a queue are held until policyd's controller starts them. Turn it off
    where Kueue does that."""

    queue_snapshots: bool = True
    """Whether to read snapshots of the queues, which the controller serves through the API server.
    Without them, new jobs get no warning about their queue."""

    verdicts: bool = True
    """Whether a new job in a queue gets a warning that says if it would start now, or why not, also
    with `kubectl create --dry-run=server`. It takes `queue_snapshots`."""

    starters: tuple[str, ...] = ()
    """Users and groups that may take pending jobs and pods out of their queue, as controllers that
    remove gates of pods or resume jobs do, besides the accounts of policyd's namespace and its own.
    `system:authenticated` allows it for all users, as Kueue does. In the variable: parted by
    `,`."""

    config: str = ""
    """Path of Kueue's Configuration: which kinds of jobs queue, and where. The same that the
    controller is given. Empty: all kinds that are known, everywhere, if they name a queue."""

    feature_gates: str = ""
    """Kueue's feature gates, `A=true,B=false`, if the Configuration has none. The same that the
    controller is given."""

    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """How the API server treats jobs that queue, and queues, while no replica answers: `Fail`
    denies them, `Ignore` lets jobs start at once, outside of any quota. Objects that name no queue
    pass either way, unless all jobs queue. Policies have a `failurePolicy` of their own."""
    owner_references: Literal["verify", "trust"] = "verify"
    """Whether an owner reference, by which an object queues with its owner, must be written by the
    owner's controller. `trust` accepts all, as Kueue does: then every user who may create pods can
    use all GPUs. The same as the controller's."""

    makers: tuple[str, ...] = ()
    """The accounts that create the children of an API group's objects, each `GROUP=ACCOUNT`, commas
    between several: `ray.io=system:serviceaccount:ray:kuberay-operator`. Instead of the accounts
    that the group's operator has as its project installs it. In the variable: parted by spaces."""

    register: bool = False
    """Whether to create the webhook configurations. Off: the installation contains them."""

    leave_out: tuple[Literal["secrets", "roles"], ...] = ()
    """Resources that the API server does not send, whichever policy names them: `secrets`, and
    `roles` and their bindings where policies change objects. The chart's policies for policyd's
    account require both, so that an attacker who takes over this process cannot read or write them.
    """

    serve_v1beta1: bool = False
    """Whether the API server is to serve version v1beta1 of Kueue's kinds too, which `register`
    sees to. Off, since it converts every change of every object for it, read or not."""

    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=30)] = 5
    """How long the API server waits for an answer, 1 to 30. Half its default, since mutating
    webhooks add up; a thousand times as long as a review takes."""

    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    """Time between failing readiness and closing, in seconds, so that a Service removes us first.
    As long as kube-proxy usually takes to notice."""

    reload_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """How often files are looked at for changes, in seconds. A kubelet takes a minute anyway."""

    remember: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 256
    """How many decisions on new pods are remembered, for pods that are the same to the policies.
    One takes as much memory as the fields of a pod that policies read, some kilobytes. 0: each pod
    is decided on anew."""

    reports: bool = False
    """Whether to count requests that are allowed with a warning or an audit annotation in the
    PolicyReports of their namespace, which `policyd controller --reports` keeps. It takes the right
    to write them."""

    traces: str = ""
    """Address of an OpenTelemetry collector that gets a span for each review, by OTLP over HTTP:
    `http://collector:4318/v1/traces`. Needs the extra `policyd[tracing]`. OpenTelemetry's own
    variables set headers, certificates and sampling. Empty: no traces."""

    log_format: Literal["json", "lines", "auto"] = "auto"
    """JSON for machines, lines for people. `auto`: lines if stderr is a terminal."""

    @property
    def trusted_makers(self) -> Makers:
        """The accounts that create the children of other objects.

        Raises:
            ConfigurationError: If an entry of `makers` is none.
        """
        return makers_of(self.makers, trusted=self.owner_references == "trust")

    @classmethod
    def load(cls, variables: Mapping[str, str], flags: Mapping[str, object]) -> Self:
        """Take each field from `flags` if it is set and not None, else from `variables`.

        Raises:
            ConfigurationError: If a value does not fit, or a `POLICYD_` variable is unknown.
        """
        known = {f.name for f in fields(cls)}
        values = {name: _split(name, text) for name, text in _own(variables, known).items()}
        values |= {name: value for name, value in flags.items() if value not in (None, ())}
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            hint = "see `--help` for what each setting takes"
            if "`bool`" in str(error):
                hint = "write `true` or `false`"
            raise ConfigurationError(
                f"invalid setting: {_in_words(str(error))}", hint=hint
            ) from error


def load_configuration(path: str, *, gates: str = "") -> Configuration:
    """Read the file of a Kueue Configuration that all processes run by, with defaults filled in.

    The controller and the webhooks read it here, so that one never runs by what the other refuses.

    Args:
        path: The file; empty for the defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If it cannot be read, is not a Configuration, or something in it is
            wrong.
    """
    try:
        text = Path(path).read_bytes() if path else b""
    except OSError as error:
        raise ConfigurationError(
            f"the configuration `{path}` cannot be read: {system_reason(error)}"
        ) from error
    try:
        configuration = parse_configuration(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}", hint=error.hint) from error
    chosen_gates(configuration, gates=gates)
    tls_rules(configuration)
    for name, gate in gated_frameworks(configuration, gates=gates):
        raise ConfigurationError(
            f"`integrations.frameworks` has `{name}`, but the feature gate `{gate}` is off",
            hint=f"set the feature gate `{gate}` to true, or leave the framework out",
        )
    return configuration


def configured(path: str, *, gates: str = "") -> tuple[Integrations, TlsRules, str]:
    """Return what the webhooks take from a Kueue Configuration.

    That is which kinds of jobs queue, the restrictions of TLS, and the address of profiles.

    Args:
        path: The file; empty if there is none: all kinds queue then.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: As in `load_configuration`.
    """
    configuration = load_configuration(path, gates=gates)
    kinds = kinds_that_queue(configuration, path, gates=gates)
    return kinds, tls_rules(configuration), configuration.pprof_bind_address


def kinds_that_queue(configuration: Configuration, path: str, *, gates: str) -> Integrations:
    """Return which kinds of jobs queue: all, if no file chooses some.

    Args:
        configuration: What is in the file.
        path: The file; empty if there is none.
        gates: Feature gates from the command line: `A=true,B=false`.
    """
    found = integrations_of(configuration, gates=gates)
    return found if path else replace(EVERYTHING, off=found.off, on=found.on)


def parse_configuration(text: bytes) -> Configuration:
    """Read a Kueue Configuration from YAML or JSON, with defaults filled in.

    Raises:
        ConfigurationError: If it is not a Configuration, or a field is unknown.
    """
    try:
        document = plain_yaml(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"the configuration is not YAML: {problem}") from error
    return decode_configuration(document)


def _own(variables: Mapping[str, str], known: set[str]) -> dict[str, str]:
    own: dict[str, str] = {}
    for variable, text in variables.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if _service_link(variable, text):
            continue
        if name not in known:
            near = did_you_mean(variable, (PREFIX + k.upper() for k in known))
            raise ConfigurationError(f"unknown setting `{variable}` in the environment", hint=near)
        own[name] = text
    return own


def _service_link(variable: str, text: str) -> bool:
    """Tell whether Kubernetes made the variable: of a Service `policyd`, or `policyd-…`."""
    if variable in (f"{PREFIX}PORT", f"{PREFIX}METRICS_PORT"):
        return text.startswith("tcp://")
    return any(end in variable.removeprefix(PREFIX[:-1]) for end in SERVICE_LINKS)


def _split(name: str, text: str) -> object:
    return tuple(filter(None, text.split(_LISTS[name]))) if name in _LISTS else text


def _in_words(error: str) -> str:
    """Turn the decoder's `… - at $.port` into `port: …`."""
    what, _, where = error.partition(" - at `$")
    name = where.strip("`.")
    return f"`{name}`: {what[:1].lower()}{what[1:]}" if name else what
