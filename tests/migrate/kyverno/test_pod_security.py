"""`podSecurity` asks what the Pod Security Standards ask, without what is excluded."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import decide, in_template, pod, validating

STRICT = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}


def container(image="nginx:1", **context):
    return {"name": "c", "image": image, "securityContext": context}


def violated(level, of, exclude=()):
    policy = validating(podSecurity={"level": level, "version": "latest", "exclude": [*exclude]})
    found = {denial.validation for denial in decide(policy, of)[0].denials}
    assert found == {denial.validation for denial in decide(policy, in_template(of))[0].denials}
    return found


@pytest.mark.parametrize(
    ("of", "control"),
    [
        pytest.param(pod(hostPID=True), "host-namespaces", id="host"),
        pytest.param(pod(container(privileged=True)), "privileged-containers", id="privileged"),
        pytest.param(
            pod(container(capabilities={"add": ["SYS_ADMIN"]})), "capabilities", id="capability"
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "hostpath-volumes", id="path"
        ),
        pytest.param(
            pod({"name": "c", "image": "a", "ports": [{"hostPort": 80}]}), "host-ports", id="port"
        ),
        pytest.param(
            pod(securityContext={"seccompProfile": {"type": "Unconfined"}}), "seccomp", id="seccomp"
        ),
        pytest.param(pod(container(seLinuxOptions={"user": "u"})), "selinux", id="selinux"),
        pytest.param(
            pod(securityContext={"sysctls": [{"name": "kernel.msgmax"}]}), "sysctls", id="sysctl"
        ),
        pytest.param(pod(container(procMount="Unmasked")), "proc-mount-type", id="proc"),
        pytest.param(
            pod(container(windowsOptions={"hostProcess": True})), "hostprocess", id="windows"
        ),
        pytest.param(
            pod(container(appArmorProfile={"type": "Unconfined"})), "apparmor", id="apparmor"
        ),
    ],
)
def test_a_violation_of_the_baseline_is_named(of, control):
    assert violated("baseline", of) == {control}
    assert violated("baseline", pod()) == set()


def test_the_restricted_level_asks_more():
    assert violated("restricted", pod(container(**STRICT))) == set()
    assert violated("restricted", pod()) == {
        "privilege-escalation",
        "running-as-non-root",
        "seccomp",
        "capabilities",
    }


def test_images_can_be_excluded_from_a_control():
    exclude = [{"controlName": "Capabilities", "images": ["redis*"]}]
    context = {**STRICT, "capabilities": {"add": ["SYS_ADMIN"]}}

    assert violated("restricted", pod(container("redis:1", **context)), exclude) == set()
    assert violated("restricted", pod(container("nginx", **context)), exclude) == {"capabilities"}
    whole = [{"controlName": "Host Namespaces"}]
    assert violated("baseline", pod(hostPID=True), whole) == set()


@pytest.mark.parametrize(
    "given",
    [
        {"level": "odd"},
        {"level": "baseline", "version": "v1.24"},
        {"level": "baseline", "exclude": [{"controlName": "Odd"}]},
        {"level": "baseline", "exclude": [{"controlName": "Sysctls", "values": ["a"]}]},
    ],
    ids=str,
)
def test_what_is_not_known_is_refused(given):
    (part,) = convert(validating(podSecurity=given)).refusals

    assert part.path == ("spec", "rules", 0, "validate", "podSecurity")
