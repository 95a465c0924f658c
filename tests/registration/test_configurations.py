"""The webhook configurations: what is sent to the webhooks, and how they are kept up."""

import base64
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from structlog.testing import capture_logs

from policyd.cel import Budget, admission_environment, compile_expression
from policyd.certificates import Authority
from policyd.jobs.integrations import EVERYTHING
from policyd.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from policyd.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from policyd.registration.configurations import (
    FORMER_NAME,
    NAME,
    Registration,
    ServiceEndpoint,
    UrlEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import WebhookRules, derive_webhook_rules
from policyd.testing import FakeClient
from tests.webhooks.policies import policy, rule
from webhooks.certificate.publication import FORMER_HINT, Publication

SERVICE = ServiceEndpoint(namespace="queue", name="webhooks", port=8443)


def test_only_what_names_a_queue_is_sent_for_the_sake_of_jobs():
    wanted = registration(rules=derive_webhook_rules([], queue=EVERYTHING))

    held, mutating, updated, of_sets, prepared = mutating_configuration(wanted)["webhooks"]
    queues, validating, changed, *_ = validating_configuration(wanted)["webhooks"]

    selector = {"matchExpressions": [{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}]}
    assert mutating["objectSelector"] == validating["objectSelector"] == selector
    assert updated["objectSelector"] == changed["objectSelector"] == selector
    assert [each["name"] for each in (held, mutating, updated, of_sets, prepared)] == [
        "mutate-fail.admission.policyd.io",
        "mutate-fail-2.admission.policyd.io",
        "mutate-fail-3.admission.policyd.io",
        "mutate-fail-4.admission.policyd.io",
        "mutate-ignore.admission.policyd.io",
    ]
    assert held["rules"][0]["resources"] == ["clusterqueues", "resourceflavors", "topologies"]
    assert {group for rule in queues["rules"] for group in rule["apiGroups"]} == {"kueue.x-k8s.io"}


def test_objects_of_other_kinds_that_name_a_queue_are_sent_for_a_warning():
    wanted = registration(rules=derive_webhook_rules([], queue=EVERYTHING))

    *_, hidden = validating_configuration(wanted)["webhooks"]

    assert hidden["rules"] == [
        {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["*"],
            "scope": "Namespaced",
        }
    ]
    assert hidden["failurePolicy"] == "Ignore"
    assert hidden["objectSelector"]["matchExpressions"] == [
        {"key": "kueue.x-k8s.io/managed", "operator": "DoesNotExist"},
        {"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"},
    ]
    assert "'batch/jobs'" in hidden["matchConditions"][1]["expression"]


def registration(**changes):
    rules = derive_webhook_rules(
        [
            policy(rule(), inject=True, validations=True),
            policy(rule("secrets"), validations=True, failure="Ignore"),
        ],
        queue=None,
    )
    base = Registration(
        endpoint=SERVICE, rules=rules, own_namespace="queue", timeout_seconds=3, ca_bundle_pem=b"ca"
    )
    return replace(base, **changes)


class Restricted(FakeClient):
    """An API server that takes no webhooks for Secrets, as by the chart's policies."""

    async def create(self, resource, obj, **options):
        if any("secrets" in rule["resources"] for w in obj["webhooks"] for rule in w["rules"]):
            raise InvalidError("not for Secrets")
        return await super().create(resource, obj, **options)


async def wanted(ca_bundle_pem, **changes):
    return registration(ca_bundle_pem=ca_bundle_pem, **changes)


def test_the_mutating_configuration():
    assert mutating_configuration(registration()) == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "policyd"}},
        "webhooks": [
            {
                "name": "mutate-fail.admission.policyd.io",
                "clientConfig": {
                    "service": {
                        "namespace": "queue",
                        "name": "webhooks",
                        "port": 8443,
                        "path": "/mutate",
                    },
                    "caBundle": base64.b64encode(b"ca").decode(),
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "*",
                    }
                ],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": ["kube-node-lease", "kube-public", "kube-system", "queue"],
                        }
                    ]
                },
                "objectSelector": {},
                "sideEffects": "None",
                "timeoutSeconds": 3,
                "admissionReviewVersions": ["v1"],
                "reinvocationPolicy": "IfNeeded",
            }
        ],
    }


@pytest.mark.parametrize(
    ("groups", "sent"),
    [
        pytest.param(["system:authenticated"], True, id="somebody"),
        pytest.param(None, True, id="somebody-in-no-group"),
        pytest.param(["system:nodes", "system:authenticated"], False, id="a-node"),
        pytest.param(
            ["system:serviceaccounts", "system:serviceaccounts:queue"], False, id="policyd-itself"
        ),
        pytest.param(["system:serviceaccounts:team-a"], True, id="another-service-account"),
    ],
)
def test_nodes_and_policyd_itself_are_not_held_up(groups, sent):
    rules = derive_webhook_rules([policy(rule(operations="UPDATE"), inject=True)], queue=None)
    [webhook] = mutating_configuration(registration(rules=rules))["webhooks"]
    user = {"username": "alice"} if groups is None else {"username": "alice", "groups": groups}
    variables = {"request": {"userInfo": user}}

    holds = [
        compile_expression(
            condition["expression"], admission_environment(params=False), wants="bool"
        ).evaluate(variables, Budget())
        for condition in webhook["matchConditions"]
    ]

    assert all(holds) is sent


@pytest.mark.parametrize(
    ("rules", "asking", "not_asking"),
    [
        pytest.param([rule()], [], ["CREATE pods"], id="pods-are-created"),
        pytest.param([rule(operations="UPDATE")], ["UPDATE pods"], [], id="pods-are-changed"),
        pytest.param(
            [rule(operations="CREATE,UPDATE"), rule("secrets")],
            ["UPDATE pods", "CREATE secrets"],
            ["CREATE pods"],
            id="each-to-its-own",
        ),
        pytest.param([rule("pods/status")], ["CREATE pods/status"], [], id="a-part-of-a-pod"),
        pytest.param([rule("jobs", groups="batch")], [], ["CREATE jobs"], id="what-makes-pods"),
        pytest.param(
            [rule(), rule("*", groups="*", scope="Namespaced")],
            ["CREATE pods", "CREATE *"],
            [],
            id="never-both",
        ),
    ],
)
def test_new_pods_are_not_filtered_by_user(rules, asking, not_asking):
    wanted = registration(
        rules=derive_webhook_rules([policy(*rules, validations=True)], queue=None)
    )

    found = {True: [], False: []}
    for webhook in validating_configuration(wanted)["webhooks"]:
        found["matchConditions" in webhook] += [
            f"{'+'.join(r['operations'])} {'+'.join(r['resources'])}" for r in webhook["rules"]
        ]

    assert found == {True: asking, False: not_asking}


def test_a_condition_of_a_policy_is_asked_beside_who_asks():
    conditional = policy(rule(), validations=True, conditions=["request.operation == 'CREATE'"])
    wanted = registration(rules=derive_webhook_rules([conditional], queue=None))

    [webhook] = validating_configuration(wanted)["webhooks"]

    assert [condition["name"] for condition in webhook["matchConditions"]] == [
        "neither-a-node-nor-policyd",
        "some-policy-may-match",
    ]


def test_validation_fails_closed_only_for_the_policies_that_say_so():
    webhooks = validating_configuration(registration())["webhooks"]

    assert [(w["name"], w["failurePolicy"], w["rules"][0]["resources"]) for w in webhooks] == [
        ("validate-fail.admission.policyd.io", "Fail", ["pods"]),
        ("validate-ignore.admission.policyd.io", "Ignore", ["secrets"]),
    ]


def test_no_policy_means_no_webhook():
    nothing = registration(rules=WebhookRules())

    assert mutating_configuration(nothing)["webhooks"] == []
    assert validating_configuration(nothing)["webhooks"] == []


def test_the_name_comes_before_kueues():
    assert NAME < "kueue-mutating-webhook-configuration"


def test_a_url_stands_for_a_service():
    wanted = registration(endpoint=UrlEndpoint(url="https://10.0.0.1:9443/"), ca_bundle_pem=b"")

    [webhook] = mutating_configuration(wanted)["webhooks"]

    assert webhook["clientConfig"] == {"url": "https://10.0.0.1:9443/mutate"}


@pytest.mark.anyio
class TestPublication:
    async def test_configurations_are_created_once_and_restored_after_changes(self):
        client = FakeClient()
        publication = Publication(client, wanted)
        authority = Authority.create(now=1_800_000_000.0).certificate_pem

        assert await publication.publish(authority) == {authority}
        await publication.publish(authority)
        assert [write.verb for write in client.writes] == ["create", "create"]

        await client.patch(VALIDATING_WEBHOOK_CONFIGURATIONS, NAME, {"webhooks": []}, into=dict)
        await publication.publish(authority)

        mended = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        assert len(mended["webhooks"]) == 2

    @pytest.mark.parametrize(
        ("error", "verb"),
        [
            pytest.param(AlreadyExistsError("taken"), "create", id="made-meanwhile"),
            pytest.param(ConflictError("changed"), "patch", id="changed-meanwhile"),
        ],
    )
    async def test_another_replica_may_be_faster(self, error, verb):
        client = FakeClient()
        publication = Publication(client, wanted)
        if verb == "patch":
            await publication.publish(b"")
            await client.patch(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, {"webhooks": []}, into=dict)
        client.fail(error, verb=verb)

        await publication.publish(b"")
        await publication.publish(b"")

        made = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        assert made["webhooks"]

    async def test_those_that_are_gone_and_not_ours_to_make_are_named_until_they_are_back(self):
        client = FakeClient()
        publication = Publication(client, wanted)
        client.fail(ForbiddenError("cannot create"), verb="create", times=3)

        await publication.publish(b"")
        assert publication.missing == (
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        )
        empty = {"metadata": {"name": NAME}}
        client.store.create(MUTATING_WEBHOOK_CONFIGURATIONS, empty)
        await publication.publish(b"")
        assert publication.missing == ("ValidatingWebhookConfiguration",)

        client.store.create(VALIDATING_WEBHOOK_CONFIGURATIONS, empty)
        await publication.publish(b"")
        assert publication.missing == ()
        made = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        assert made["webhooks"]

    async def test_conditions_that_the_api_server_does_not_know_are_left_out(self):
        client = FakeClient()
        conditional = policy(rule(), validations=True, conditions=["request.operation == 'CREATE'"])
        rules = derive_webhook_rules([conditional], queue=None)
        publication = Publication(client, partial(wanted, rules=rules))
        client.fail(InvalidError("no such function"), verb="create")

        await publication.publish(b"")

        made = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        [webhook] = made["webhooks"]
        assert "matchConditions" not in webhook

    async def test_resources_that_the_api_server_forbids_keep_no_others_from_their_calls(self):
        client = Restricted()
        publication = Publication(client, wanted)

        with capture_logs() as logs:
            await publication.publish(b"")

        made = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        assert {n for w in made["webhooks"] for r in w["rules"] for n in r["resources"]} == {"pods"}
        (logged,) = [line for line in logs if line["event"] == "registered_in_part"]
        assert logged["reason"] == "not for Secrets"
        assert "--leave-out" in logged["hint"]

    async def test_what_the_api_server_refuses_in_any_case_is_an_error(self):
        client = FakeClient()
        client.fail(InvalidError("no such URL"), verb="create", times=20)

        with pytest.raises(InvalidError, match="no such URL"):
            await Publication(client, wanted).publish(b"")

    async def test_a_bundle_of_others_is_not_trust_in_our_authority(self):
        client = FakeClient()
        authority = Authority.create(now=1_800_000_000.0).certificate_pem
        await Publication(client, wanted).publish(authority)
        current = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
        current["webhooks"][0]["clientConfig"]["caBundle"] = "bm9uc2Vuc2U="
        await client.replace(MUTATING_WEBHOOK_CONFIGURATIONS, current, into=dict)
        client.fail(ConflictError("changed"), verb="patch")

        assert await Publication(client, None).publish(authority) == frozenset()


async def former(client):
    """Return the kinds that are registered under the former name."""
    found = []
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        with suppress(NotFoundError):
            await client.get(resource, FORMER_NAME, into=dict)
            found.append(resource)
    return found


def with_former(client, ca_bundle_pem=b""):
    """Register the webhooks under the former name, as the release before did."""
    registered = registration(ca_bundle_pem=ca_bundle_pem)
    for resource, configuration in (
        (MUTATING_WEBHOOK_CONFIGURATIONS, mutating_configuration(registered)),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, validating_configuration(registered)),
    ):
        client.store.create(resource, configuration | {"metadata": {"name": FORMER_NAME}})


@pytest.mark.anyio
class TestFormerName:
    async def test_each_is_deleted_after_its_successor_is_registered(self):
        client = FakeClient()
        with_former(client)

        await Publication(client, wanted).publish(b"")

        assert await former(client) == []
        assert [(w.verb, w.resource.kind, w.name) for w in client.writes] == [
            ("create", "MutatingWebhookConfiguration", NAME),
            ("create", "ValidatingWebhookConfiguration", NAME),
            ("delete", "MutatingWebhookConfiguration", FORMER_NAME),
            ("delete", "ValidatingWebhookConfiguration", FORMER_NAME),
        ]

    @pytest.mark.parametrize(
        ("error", "verb"),
        [
            pytest.param(ForbiddenError("cannot create"), "create", id="not-ours-to-make"),
            pytest.param(ConflictError("changed"), "patch", id="changed-meanwhile"),
        ],
    )
    async def test_it_stays_and_is_trusted_until_its_successor_is_as_wanted(self, error, verb):
        client = FakeClient()
        authority = Authority.create(now=1_800_000_000.0).certificate_pem
        publication = Publication(client, wanted)
        with_former(client, authority)
        if verb == "patch":
            client.store.create(MUTATING_WEBHOOK_CONFIGURATIONS, {"metadata": {"name": NAME}})
        client.fail(error, verb=verb)

        await publication.publish(authority)
        assert await former(client) == [MUTATING_WEBHOOK_CONFIGURATIONS]

        renewed = Authority.create(now=1_800_000_000.0).certificate_pem
        client.fail(error, verb=verb)
        assert await publication.publish(renewed) == {renewed}
        if verb == "create":
            kept = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, FORMER_NAME, into=dict)
            bundles = {w["clientConfig"]["caBundle"] for w in kept["webhooks"]}
            assert bundles == {base64.b64encode(renewed).decode()}

    async def test_a_process_without_the_right_to_delete_logs_the_command_once(self):
        client = FakeClient()
        with_former(client)
        publication = Publication(client, wanted)
        client.fail(ForbiddenError("cannot delete"), verb="delete", times=4)

        with capture_logs() as logs:
            await publication.publish(b"")
            await publication.publish(b"")

        logged = [line for line in logs if line["event"] == "former_configuration_kept"]
        assert [line["hint"] for line in logged] == [FORMER_HINT]
        assert len(await former(client)) == 2

    async def test_a_process_without_the_right_to_read_registers_nevertheless(self):
        class Limited(FakeClient):
            async def get(self, resource, name, **options):
                if name == FORMER_NAME:
                    raise ForbiddenError("cannot get")
                return await super().get(resource, name, **options)

        client = Limited()
        authority = Authority.create(now=1_800_000_000.0).certificate_pem

        assert await Publication(client, wanted).publish(authority) == {authority}

    async def test_where_others_make_the_configurations_it_stays_and_trusts_us(self):
        client = FakeClient()
        with_former(client)
        authority = Authority.create(now=1_800_000_000.0).certificate_pem

        assert await Publication(client, None).publish(authority) == {authority}

        assert len(await former(client)) == 2
