"""Kubeconfigs of workers: safe ones are used, and nothing in one makes policyd fail."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.kueue.multikueue import MultiKueueCluster
from policyd.api.meta import ObjectMeta
from policyd.multikueue.connections import (
    LONGEST_MESSAGE,
    NOT_CONNECTED,
    ConnectionConfig,
    connected_condition,
    establish_seconds,
    path_problem,
    read_kubeconfig,
    retry_seconds,
)


def kubeconfig(cluster=(), user=()):
    whole = {"server": "https://worker.example:6443", "certificate-authority-data": "LS0t"}
    return {
        "clusters": [{"name": "c", "cluster": whole | dict(cluster)}],
        "users": [{"name": "u", "user": dict(user) or {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def read(config):
    return read_kubeconfig(yaml.safe_dump(config).encode())


def test_a_kubeconfig_that_carries_its_credentials_is_used():
    found = read(kubeconfig())

    assert isinstance(found, ConnectionConfig)
    assert (found.host, found.token, found.authority) == (
        "https://worker.example:6443",
        "secret",
        b"---",
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (kubeconfig(user={"exec": {"command": "steal"}}), "exec plugins"),
        (kubeconfig(user={"auth-provider": {"name": "gcp"}}), "auth providers"),
        (kubeconfig(user={"tokenFile": "/var/run/token"}), "tokenFile"),
        (kubeconfig(user={"client-key": "/etc/key"}), "client-key-data"),
        (kubeconfig(user={"username": "a", "password": "b"}), "basic auth"),
        (kubeconfig(cluster={"insecure-skip-tls-verify": True}), "insecure TLS"),
        (kubeconfig(cluster={"certificate-authority": "/etc/ca"}), "file paths"),
        (kubeconfig(cluster={"server": ""}), "server URL is required"),
        (kubeconfig(cluster={"server": "https://a b"}), "untrusted server"),
        (kubeconfig(cluster={"certificate-authority-data": "?"}), "base64"),
        ({**kubeconfig(), "current-context": "y"}, "context was not found"),
        ({}, "no context"),
        ([], "not an object"),
    ],
)
def test_one_that_would_use_the_rights_of_policyd_is_refused(config, words):
    assert words in read(config)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_make_it_fail(content):
    assert read_kubeconfig(content) is not None


@pytest.mark.parametrize("key", ["clusters", "users", "contexts", "current-context"])
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "user", "cluster", "server"]), inner)
        ),
        max_leaves=6,
    )
)
def test_no_shape_makes_it_fail(key, value):
    assert read({**kubeconfig(), key: value}) is not None


@pytest.mark.parametrize(
    ("path", "resolved", "ok"),
    [
        ("/etc/multikueue/kubeconfigs/a", "/etc/multikueue/kubeconfigs/a", True),
        ("/etc/multikueue/kubeconfigs/../token", "/etc/multikueue/token", False),
        ("/etc/multikueue/kubeconfigs-b/a", "/etc/multikueue/kubeconfigs-b/a", False),
        ("relative", "/etc/multikueue/kubeconfigs/relative", False),
        ("", "", False),
    ],
)
def test_only_files_of_one_folder_are_read(path, resolved, ok):
    assert (path_problem(path, resolved) == "") is ok


def test_tries_become_rarer_up_to_a_bound():
    assert [retry_seconds(n) for n in (0, 1, 2, 3, 7, 50)] == [0, 5, 10, 20, 320, 320]
    assert [establish_seconds(n) for n in (0, 3, 4, 10_000)] == [60, 480, 600, 600]


def test_a_long_message_of_a_worker_is_cut_to_what_a_condition_may_have():
    cluster = MultiKueueCluster(metadata=ObjectMeta(name="east"))

    condition = connected_condition(cluster, (NOT_CONNECTED, "x" * 100_000), now=0.0)

    assert condition is not None
    assert len(condition.message.encode()) == LONGEST_MESSAGE
