"""Settings: flags, variables, defaults, and what is no setting."""

import pytest

from policyd.cli.configuring import configured as of_the_controller
from policyd.config import Settings, configured
from policyd.controller.settings import ControllerSettings
from policyd.errors import ConfigurationError


def test_a_flag_wins_over_its_variable_and_that_over_the_default():
    variables = {"POLICYD_PORT": "1111", "POLICYD_HOST": "10.0.0.1"}

    settings = Settings.load(variables, {"port": 2222, "host": None, "policies": ()})

    assert (settings.port, settings.host, settings.drain_seconds) == (2222, "10.0.0.1", 5.0)


def test_variables_are_read_as_what_their_fields_are():
    variables = {
        "POLICYD_POLICIES": "/etc/policies:/extra",
        "POLICYD_READS": "v1/configmaps:apps/v1/deployments",
        "POLICYD_REGISTER": "true",
        "POLICYD_DRAIN_SECONDS": "0.5",
        "POLICYD_LOG_FORMAT": "json",
        "HOME": "/root",
    }

    settings = Settings.load(variables, {})

    assert settings.policies == ("/etc/policies", "/extra")
    assert settings.reads == ("v1/configmaps", "apps/v1/deployments")
    assert (settings.register, settings.drain_seconds, settings.log_format) == (True, 0.5, "json")


def test_service_variables_of_kubernetes_are_not_settings():
    variables = {
        "POLICYD_SERVICE_HOST": "10.96.0.7",
        "POLICYD_SERVICE_PORT": "443",
        "POLICYD_PORT": "tcp://10.96.0.7:443",
        "POLICYD_PORT_443_TCP_ADDR": "10.96.0.7",
        "POLICYD_WEBHOOKS_SERVICE_PORT_HTTPS": "443",
        "POLICYD_WEBHOOKS_PORT": "tcp://10.96.0.8:443",
    }

    assert Settings.load(variables, {}) == Settings()


def test_a_switch_is_true_or_false():
    with pytest.raises(ConfigurationError, match="`queue`: expected `bool`") as caught:
        Settings.load({"POLICYD_QUEUE": "off"}, {})

    assert caught.value.hint == "write `true` or `false`"


@pytest.mark.parametrize(
    ("variables", "flags", "message"),
    [
        pytest.param(
            {"POLICYD_PORT": "many"},
            {},
            "invalid setting: `port`: expected `int`, got `str`",
            id="no-number",
        ),
        pytest.param(
            {},
            {"port": 99999},
            "invalid setting: `port`: expected `int` <= 65535",
            id="number-too-large",
        ),
        pytest.param(
            {},
            {"timeout_seconds": 31},
            "invalid setting: `timeout_seconds`: expected `int` <= 30",
            id="longer-than-the-api-server-waits",
        ),
        pytest.param(
            {"POLICYD_LOG_FORMAT": "xml"},
            {},
            "invalid setting: `log_format`: invalid enum value 'xml'",
            id="not-one-of-the-words",
        ),
        pytest.param(
            {"POLICYD_PROT": "1"},
            {},
            "unknown setting `POLICYD_PROT` in the environment",
            id="unknown-variable",
        ),
    ],
)
def test_unfit_values_are_named_with_a_hint(variables, flags, message):
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(variables, flags)

    assert str(caught.value) == message
    assert caught.value.hint


@pytest.mark.parametrize("frameworks", ["", "[batch/job, sparkoperator.k8s.io/sparkapplication]"])
def test_both_processes_have_the_same_kinds_by_feature_gates(tmp_path, frameworks):
    path = ""
    if frameworks:
        file = tmp_path / "configuration.yaml"
        head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        file.write_text(f"{head}integrations: {{frameworks: {frameworks}}}\n")
        path = str(file)

    webhooks, _, _ = configured(path, gates="SparkApplicationIntegration=true")

    controller = of_the_controller(
        ControllerSettings(), path=path, gates="SparkApplicationIntegration=true"
    )
    assert webhooks == controller.integrations
    assert "SparkApplicationIntegration" in webhooks.on
