"""Write `podSecurity` in CEL: the controls of the Pod Security Standards, with exclusions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policyd.api.meta import Json
from policyd.migrate.cel_values import CelTerm, Untranslatable, all_of, member, wildcard
from policyd.migrate.kyverno.context import Named
from policyd.migrate.kyverno.patterns import negated

_CAPABILITIES: Final = (
    "['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD',"
    " 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT']"
)
_SYSCTLS: Final = (
    "['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range',"
    " 'net.ipv4.ip_local_reserved_ports', 'net.ipv4.ip_unprivileged_port_start',"
    " 'net.ipv4.ping_group_range', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl',"
    " 'net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_rmem',"
    " 'net.ipv4.tcp_slow_start_after_idle', 'net.ipv4.tcp_syncookies', 'net.ipv4.tcp_wmem']"
)
_VOLUMES: Final = (
    "['configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image', 'name',"
    " 'persistentVolumeClaim', 'projected', 'secret']"
)
_PROFILES: Final = "['RuntimeDefault', 'Localhost']"
_SELINUX_TYPES: Final = (
    "['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']"
)
_SECCOMP: Final = "?seccompProfile.?type"


@dataclass(frozen=True)
class Control:
    """A control of the standards.

    Attributes:
        level: The level from which on it is asked.
        pod: The condition on the pod, empty for none.
        container: The condition on each container `c`, empty for none.
        until: The level from which on another one of the name takes its place.
    """

    level: str
    pod: str = ""
    container: str = ""
    until: str = ""


def _of_contexts(level: str, condition: str, until: str = "") -> Control:
    """Return a control of the security contexts, which `{}` stands for."""
    return Control(
        level,
        condition.replace("{}", "variables.context"),
        condition.replace("{}", "c.?securityContext"),
        until,
    )


_WINDOWS: Final = "variables.spec.?os.?name.orValue('') == 'windows' || "
_ESCALATION: Final = "c.?securityContext.?allowPrivilegeEscalation"
_APPARMOR: Final = "'container.apparmor.security.beta.kubernetes.io/'"
_HOOKS: Final = (
    "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart,"
    " c.?lifecycle.?preStop]"
)
_ADDED: Final = "c.?securityContext.?capabilities.?add.orValue([])"

CONTROLS: Final[tuple[tuple[str, Control], ...]] = (
    (
        "HostProcess",
        _of_contexts("baseline", "!{}.?windowsOptions.?hostProcess.orValue(false)"),
    ),
    (
        "Host Namespaces",
        Control(
            "baseline",
            "!variables.spec.?hostNetwork.orValue(false) && !variables.spec.?hostPID.orValue(false)"
            " && !variables.spec.?hostIPC.orValue(false)",
        ),
    ),
    (
        "Privileged Containers",
        Control("baseline", container="!c.?securityContext.?privileged.orValue(false)"),
    ),
    (
        "Capabilities",
        Control("baseline", container=f"{_ADDED}.all(a, a in {_CAPABILITIES})", until="restricted"),
    ),
    (
        "HostPath Volumes",
        Control("baseline", "!variables.spec.?volumes.orValue([]).exists(v, has(v.hostPath))"),
    ),
    (
        "Host Ports",
        Control("baseline", container="c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0)"),
    ),
    (
        "AppArmor",
        Control(
            "baseline",
            f"variables.context.?appArmorProfile.?type.orValue('RuntimeDefault') in {_PROFILES}"
            f" && variables.annotations.all(key, !key.startsWith({_APPARMOR})"
            " || variables.annotations[key] in ['', 'runtime/default']"
            " || variables.annotations[key].startsWith('localhost/'))",
            f"c.?securityContext.?appArmorProfile.?type.orValue('RuntimeDefault') in {_PROFILES}",
        ),
    ),
    (
        "Host Probes / Lifecycle Hooks",
        Control(
            "baseline",
            container=f"{_HOOKS}.all(hook, hook.?httpGet.?host.orValue('') == ''"
            " && hook.?tcpSocket.?host.orValue('') == '')",
        ),
    ),
    (
        "SELinux",
        _of_contexts(
            "baseline",
            f"{{}}.?seLinuxOptions.?type.orValue('') in {_SELINUX_TYPES}"
            " && {}.?seLinuxOptions.?user.orValue('') == ''"
            " && {}.?seLinuxOptions.?role.orValue('') == ''",
        ),
    ),
    (
        "/proc Mount Type",
        Control(
            "baseline", container="c.?securityContext.?procMount.orValue('Default') == 'Default'"
        ),
    ),
    (
        "Seccomp",
        _of_contexts(
            "baseline", f"{{}}.{_SECCOMP}.orValue('RuntimeDefault') in {_PROFILES}", "restricted"
        ),
    ),
    (
        "Sysctls",
        Control(
            "baseline",
            f"variables.context.?sysctls.orValue([]).all(s, s.?name.orValue('') in {_SYSCTLS})",
        ),
    ),
    (
        "Volume Types",
        Control(
            "restricted",
            f"variables.spec.?volumes.orValue([]).all(v, v.all(field, field in {_VOLUMES}))",
        ),
    ),
    (
        "Privilege Escalation",
        Control(
            "restricted",
            container=f"{_WINDOWS}{_ESCALATION}.orValue(true) == false",
        ),
    ),
    (
        "Running as Non-root",
        Control(
            "restricted",
            "variables.context.?runAsNonRoot.orValue(true) == true",
            "c.?securityContext.?runAsNonRoot.or(variables.context.?runAsNonRoot).orValue(false)"
            " == true",
        ),
    ),
    (
        "Running as Non-root user",
        _of_contexts("restricted", "{}.?runAsUser.orValue(1) != 0"),
    ),
    (
        "Seccomp",
        Control(
            "restricted",
            f"{_WINDOWS}variables.context.{_SECCOMP}.orValue('RuntimeDefault') in {_PROFILES}",
            f"{_WINDOWS}c.?securityContext.{_SECCOMP}.or(variables.context.{_SECCOMP}).orValue('')"
            f" in {_PROFILES}",
        ),
    ),
    (
        "Capabilities",
        Control(
            "restricted",
            container=f"{_WINDOWS}('ALL' in c.?securityContext.?capabilities.?drop.orValue([])"
            f" && {_ADDED}.all(a, a == 'NET_BIND_SERVICE'))",
        ),
    ),
)
"""The controls by their names, as `exclude` has them."""


def pod_security(given: Json, subject: CelTerm) -> tuple[list[Named], list[tuple[str, str]]]:
    """Return the variables of `podSecurity`, and its conditions by the names of controls.

    Args:
        given: The block of the rule.
        subject: The pod.

    Raises:
        Untranslatable: If it asks what has no counterpart.
    """
    if not isinstance(given, Mapping) or given.get("level") not in ("baseline", "restricted"):
        raise Untranslatable("`podSecurity` needs the `level` baseline or restricted")
    if given.get("version", "latest") != "latest":
        raise Untranslatable(f"policyd knows the newest standard only, not {given['version']}")
    excluded = _exclusions(given.get("exclude") or ())
    conditions = []
    for name, control in CONTROLS:
        if control.level == "restricted" and given["level"] == "baseline":
            continue
        if control.until == given["level"]:
            continue
        condition = all_of(_conditions(control, excluded.get(name)))
        if condition:
            conditions.append((name, condition))
    spec = member(subject, "spec").otherwise("{}")
    listed = (f"variables.spec.?{name}.orValue([])" for name in _LISTS)
    variables = [
        Named("spec", spec),
        Named("containers", " + ".join(listed)),
        Named("context", "variables.spec.?securityContext"),
        Named("annotations", f"{subject.text}.?metadata.?annotations.orValue({{}})"),
    ]
    return variables, conditions


_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")


def _exclusions(given: Json) -> dict[str, list[str]]:
    """Return the patterns of images that controls do not concern; none for the whole control."""
    excluded: dict[str, list[str]] = {}
    known = {name for name, _ in CONTROLS}
    for each in given:
        name = each.get("controlName")
        if name not in known:
            raise Untranslatable(f"the standards have no control `{name}`")
        if each.get("restrictedField") or each.get("values"):
            raise Untranslatable(f"the exclusion of `{name}` is of values of one field")
        excluded.setdefault(name, []).extend(each.get("images") or ())
    return excluded


def _conditions(control: Control, images: list[str] | None) -> Iterator[str]:
    if control.pod and (images is None or control.container):
        yield control.pod
    if control.container and (images is None or images):
        yield f"{_containers(images)}.all(c, {control.container})"


def _containers(images: list[str] | None) -> str:
    if not images:
        return "variables.containers"
    ways = [wildcard("c.image", image) for image in images]
    return f"variables.containers.filter(c, {negated(' || '.join(ways))})"
