"""Deletion: finalizers, grace, dependents, collections, namespaces."""

from tests.e2e.likeness.asking import Ask, create, find, patch, path_of, read, remove
from tests.e2e.likeness.objects import config_map, job, make, pod

HELD = {"finalizers": ["example.com/hold"]}


def gone(body):
    return body.get("code") == 404


def owned(name, kind="ConfigMap", **more):
    """Build a config map that the last answer's object owns."""

    def body(owner):
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **more}
        reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        return config_map(name, metadata={"ownerReferences": [reference]})

    return Ask(method="POST", path=path_of(kind), body=body)


def tale(policy):
    return [
        create(config_map("owner")),
        owned("dependent"),
        remove("ConfigMap", "owner", propagationPolicy=policy),
        read("ConfigMap", "owner", until=gone),
    ]


STORIES = {
    "finalizers": [
        create(config_map(metadata=HELD)),
        remove("ConfigMap", "web"),
        remove("ConfigMap", "web"),
        read("ConfigMap", "web"),
        patch("ConfigMap", "web", {"data": {"still": "here"}}),
        patch("ConfigMap", "web", {"metadata": {"finalizers": ["example.com/more"]}}),
        patch("ConfigMap", "web", {"metadata": {"finalizers": None}}),
        read("ConfigMap", "web"),
        create(config_map(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})),
    ],
    "pods": [
        create(pod("waiting")),
        create(pod("placed", nodeName="n1")),
        create(pod("held", metadata=HELD)),
        create(pod("ended", nodeName="n1")),
        patch("Pod", "ended", {"status": {"phase": "Succeeded"}}, part="status"),
        remove("Pod", "waiting"),
        remove("Pod", "placed"),
        remove("Pod", "placed", gracePeriodSeconds="5"),
        remove("Pod", "placed", gracePeriodSeconds="50"),
        remove("Pod", "held"),
        remove("Pod", "ended"),
        find("Pod"),
        remove("Pod", "placed", gracePeriodSeconds="0"),
        patch("Pod", "held", {"metadata": {"finalizers": None}}),
        find("Pod"),
    ],
    "collections": [
        create(config_map("a", metadata={"labels": {"x": "y"}})),
        create(config_map("b")),
        remove("ConfigMap", labelSelector="x=y"),
        find("ConfigMap"),
        remove("ConfigMap", labelSelector="x in"),
        remove("ConfigMap"),
        find("ConfigMap"),
        remove("Pod"),
    ],
    "jobs": [
        create(job()),
        remove("Job", "web"),
        read("Job", "web", until=gone),
        create(job()),
        remove("Job", "web", propagationPolicy="Foreground"),
        read("Job", "web", until=gone),
    ],
    "background": [*tale("Background"), read("ConfigMap", "dependent", until=gone)],
    "foreground": [*tale("Foreground"), read("ConfigMap", "dependent")],
    "orphan": [*tale("Orphan"), read("ConfigMap", "dependent")],
    "foreground-blocked": [
        create(config_map("owner")),
        Ask(
            method="POST",
            path=path_of("ConfigMap"),
            body=lambda owner: {
                **owned("held", blockOwnerDeletion=True).body(owner),
                "metadata": {
                    **owned("held", blockOwnerDeletion=True).body(owner)["metadata"],
                    **HELD,
                },
            },
        ),
        remove("ConfigMap", "owner", propagationPolicy="Foreground"),
        read("ConfigMap", "held", until=lambda body: "deletionTimestamp" in body["metadata"]),
        read("ConfigMap", "owner"),
        patch("ConfigMap", "held", {"metadata": {"finalizers": None}}),
        read("ConfigMap", "owner", until=gone),
    ],
    "owner-that-is-not-there": [
        create(config_map("owner")),
        remove("ConfigMap", "owner"),
        create(
            config_map(
                "dependent",
                metadata={
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "ConfigMap",
                            "name": "owner",
                            "uid": "00000000-0000-0000-0000-000000000000",
                        }
                    ]
                },
            )
        ),
        read("ConfigMap", "dependent", until=gone),
    ],
    "namespace": [
        create(make("Namespace", "likeness-doomed")),
        Ask(
            method="POST",
            path="/api/v1/namespaces/likeness-doomed/configmaps",
            body=config_map(metadata=HELD),
        ),
        Ask(method="POST", path="/api/v1/namespaces/likeness-doomed/pods", body=pod()),
        remove("Namespace", "likeness-doomed"),
        Ask(
            method="POST",
            path="/api/v1/namespaces/likeness-doomed/configmaps",
            body=config_map("late"),
        ),
        Ask(
            method="GET",
            path="/api/v1/namespaces/likeness-doomed",
            until=lambda body: body.get("status", {}).get("phase") == "Terminating",
        ),
        remove("Namespace", "likeness-doomed"),
        Ask(
            method="GET",
            path="/api/v1/namespaces/likeness-doomed/configmaps/web",
            until=lambda body: "deletionTimestamp" in body["metadata"],
        ),
        Ask(
            method="PATCH",
            path="/api/v1/namespaces/likeness-doomed/configmaps/web",
            content="application/merge-patch+json",
            body={"metadata": {"finalizers": None}},
        ),
        Ask(method="GET", path="/api/v1/namespaces/likeness-doomed", until=gone),
        Ask(method="GET", path="/api/v1/namespaces/likeness-doomed/pods"),
    ],
}
