"""`policyd replay` of audit logs: what would be refused and changed, and what cannot be read."""

import gzip
import json
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.policies import audit_files, judging
from tests.engine.audit_events import created, event, lines, obj, pod

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: versions}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [pods]}
  inject: {priorityClassName: research}
  validations:
  - name: pinned
    expression: object.spec.containers.all(c, !c.image.endsWith(':latest'))
    message: an image has no version
"""
BAD = "registry.example/a:latest"


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def replay(policy, *arguments):
    return CliRunner().invoke(main, ["replay", "-p", str(policy), *map(str, arguments)])


def summary(policy, *arguments):
    result = replay(policy, "-o", "json", *arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return json.loads(result.stdout), result


def write(folder, events, name="audit.log"):
    path = folder / name
    path.write_text(lines(events))
    return path


def test_the_answer_is_a_sentence_and_tables(policy, tmp_path):
    made = [created("pods", pod(f"web-{n}", BAD, owner=("ReplicaSet", "web"))) for n in range(3)]
    made.append(created("pods", pod("b", BAD, namespace="team-b")))
    made.append(created("pods", pod("c")))
    log = write(
        tmp_path, [*made, event("delete", "pods", "web-0", answer=made[0]["requestObject"])]
    )

    result = replay(policy, log)

    assert result.exit_code == 1
    first, *rest = result.stdout.splitlines()
    assert first == (
        "Would refuse 4 pods of 2 teams, 3 that run now, 3 of a controller that keeps retrying;"
        " would change 1 object: Pod spec.priorityClassName"
    )
    assert [line.split() for line in rest[1:4]] == [
        ["TEAM", "REFUSED", "RUNNING", "RETRYING", "WARNED", "CHANGED"],
        ["team-a", "3", "2", "3", "-", "1"],
        ["team-b", "1", "1", "-", "-", "-"],
    ]
    assert "team-a: ReplicaSet web" in result.stdout
    assert rest[-1] == "5 requests judged of 6 events"


def test_nothing_to_refuse_is_fine(policy, tmp_path):
    log = write(tmp_path, [created("configmaps", obj("configmaps", "a"))])

    result = replay(policy, log)

    assert result.exit_code == 0
    assert result.stdout.startswith("Would refuse and change nothing of 0 requests\n")
    assert "CREATE configmaps team-a/a" in result.stderr
    assert "no policy concerns any of 1 write, this one first" in result.stderr
    assert "versions: no rule matches it: it is for resources `pods`, not" in result.stderr


def test_a_log_without_writes_says_so(policy, tmp_path):
    log = write(tmp_path, [event("get", "pods", "a", answer=pod("a"))])

    result = replay(policy, log)

    assert result.exit_code == 0
    assert "none of 1 event is a write that is answered" in result.stderr


def test_a_field_that_is_set_already_is_not_a_change(policy, tmp_path):
    stored = pod("a")
    stored["spec"]["priorityClassName"] = "research"
    log = write(tmp_path, [event("create", "pods", "a", sent=pod("a"), answer=stored)])

    answer, _ = summary(policy, log)

    assert (answer["judged"], answer["changed"]) == (1, 0)


def test_requests_that_were_refused_or_dry_count_apart(policy, tmp_path):
    status = {"kind": "Status", "apiVersion": "v1"}
    refused = created("pods", pod("a", BAD)) | {"responseObject": status}
    dry = created("pods", pod("b", BAD)) | {"requestURI": "/api/v1/pods?dryRun=All"}
    log = write(tmp_path, [refused | {"responseStatus": {"code": 403}}, dry])

    answer, result = summary(policy, log)

    assert (answer["refused"], answer["refusedThen"], answer["refusedAgain"]) == (0, 1, 1)
    assert (answer["dryRuns"], result.exit_code) == (1, 0)


def test_what_only_warns_is_no_refusal(policy, tmp_path):
    policy.write_text(
        POLICY.replace("  inject: {priorityClassName: research}\n", "") + "  enforcement: Audit\n"
    )
    log = write(tmp_path, [created("pods", pod("a", BAD))])

    answer, result = summary(policy, log)

    (rule,) = answer["rules"]
    assert (answer["refused"], answer["warned"], result.exit_code) == (0, 1, 0)
    assert (rule["rule"], rule["enforcement"], rule["first"]) == (
        "pinned",
        "Audit",
        ["Pod team-a/a"],
    )


def test_only_what_the_old_policies_allowed_counts(policy, tmp_path):
    log = write(tmp_path, [created("pods", pod("a", BAD)), created("pods", pod("b"))])

    answer, result = summary(policy, log, "--against", policy)

    assert (answer["judged"], answer["refused"], answer["changed"]) == (2, 0, 0)
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("key", "teams"),
    [
        pytest.param("namespace", ["team-a"], id="namespace"),
        pytest.param("queue", ["lq"], id="queue"),
        pytest.param("org", ["vision"], id="label"),
    ],
)
def test_teams(policy, tmp_path, key, teams):
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    namespace = obj("namespaces", "team-a", labels={"org": "vision"})
    log = write(
        tmp_path, [created("namespaces", namespace), created("pods", pod("a", BAD, labels=labels))]
    )

    answer, _ = summary(policy, log, "--team", key)

    assert [each["name"] for each in answer["teams"]] == teams


def test_namespaces_have_their_labels_of_then(policy, tmp_path):
    selector = "    namespaceSelector: {matchLabels: {tier: prod}}\n"
    policy.write_text(POLICY.replace("  inject", f"{selector}  inject"))
    events = []
    for number, tier in enumerate(["test", "prod", "test"]):
        labelled = obj("namespaces", "team-a", labels={"tier": tier})
        events.append(event("patch", "namespaces", "team-a", answer=labelled))
        events.append(created("pods", pod(f"p{number}", BAD)))

    answer, result = summary(policy, write(tmp_path, events))

    assert [each["name"] for each in answer["refusedObjects"]] == ["p1"]
    assert "unknown" not in result.stderr


def test_unknown_namespaces_are_reported(policy, tmp_path):
    selector = "    namespaceSelector: {matchLabels: {tier: prod}}\n"
    policy.write_text(POLICY.replace("  inject", f"{selector}  inject"))

    result = replay(policy, write(tmp_path, [created("pods", pod("a", BAD))]))

    assert result.exit_code == 1
    assert "whether `versions` applies is unknown: it selects by label `tier`" in result.stderr


def test_a_log_without_objects_is_an_error(policy, tmp_path):
    log = write(
        tmp_path, [created("pods", pod("a", BAD), level="Metadata") | {"requestObject": None}]
    )

    result = replay(policy, log)

    assert result.exit_code == 2
    assert (
        "error: 1 request cannot be judged, this one first: logged without their" in result.stderr
    )
    assert "hint: log these resources at level RequestResponse" in result.stderr


def test_rotated_and_compressed_files_are_read_in_the_order_of_time(policy, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    made = created("pods", pod("a", BAD))
    deleted = event("delete", "pods", "a", answer={"kind": "Status"})
    again = created("pods", pod("a", BAD))
    write(folder, [again], "audit.log")
    write(folder, [deleted], "audit-2026-01-02T00-00-00.000.log")
    oldest = lines([made]).encode()
    (folder / "audit-2026-01-01T00-00-00.000.log.gz").write_bytes(gzip.compress(oldest))
    for number, (name, one) in enumerate(
        [("audit.log", again), ("audit-2026-01-02T00-00-00.000.log", deleted)], start=1
    ):
        time = f"2026-02-0{3 - number}T00:00:00.000000Z"
        write(folder, [one | {"requestReceivedTimestamp": time}], name)
    (folder / "notes.log").write_text("not a log\n")

    answer, result = summary(policy, folder)

    assert answer["log"]["events"] == 3
    assert (answer["refused"], answer["running"]) == (1, 1)
    assert answer["refusedObjects"][0]["operations"] == {"CREATE": 2}
    assert "notes.log is not read: it is not an audit log" in result.stderr


def test_standard_input_and_pipes_are_read(policy, tmp_path):
    text = lines([created("pods", pod("a", BAD))])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(text.encode()),))
    writer.start()
    piped, _ = summary(policy, pipe)
    writer.join()

    result = CliRunner().invoke(main, ["replay", "-p", str(policy), "-", "-o", "json"], input=text)

    assert piped["refused"] == json.loads(result.stdout)["refused"] == 1


BROKEN = {
    "cut-at-the-end": (lambda text: text[:-40], {"cut": 1}, 1),
    "cut-and-gone-on": (lambda text: text[: len(text) // 3] + text, {"cut": 1}, 2),
    "no-json": (lambda text: f"{text}hello\n", {"unreadable": 1}, 2),
    "blank-lines": (lambda text: f"\n{text}\n\n", {}, 2),
    "binary": (lambda text: f"{text}\0\x01\n", {"unreadable": 1}, 2),
}


@pytest.mark.parametrize(("change", "problems", "judged"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_cannot_be_read_is_counted(policy, tmp_path, change, problems, judged):
    events = [created("pods", pod("a", BAD)), created("pods", pod("b", BAD))]
    log = tmp_path / "audit.log"
    log.write_text(change(lines(events)))

    answer, result = summary(policy, log)

    assert answer["log"]["problems"] == problems
    assert answer["judged"] == judged
    assert ("warning: 1 line" in result.stderr) is bool(problems)


@pytest.mark.parametrize("kept", [8, 200, -6], ids=["head", "middle", "checksum"])
def test_a_compressed_file_that_is_cut_is_read_as_far_as_possible(policy, tmp_path, kept):
    events = [created("pods", pod(f"p{number}", BAD)) for number in range(50)]
    (tmp_path / "audit-1.log.gz").write_bytes(gzip.compress(lines(events).encode())[:kept])
    write(tmp_path, [created("pods", pod("last", BAD))])

    answer, result = summary(policy, tmp_path)

    assert answer["log"]["problems"]["damaged"] == 1
    assert "last" in {each["name"] for each in answer["refusedObjects"]}
    assert "1 compressed file damaged or cut: read as far as possible" in result.stderr


@pytest.mark.parametrize("useless", ["\n", "{}\n", '{"kind":"Event"\n'], ids=repr)
def test_a_file_is_not_read_on_after_many_lines_without_an_event(policy, tmp_path, useless):
    read = []
    each = audit_files.LogFile._each

    def counted(file, raw):
        for numbered in each(file, raw):
            read.append(numbered[0])
            yield numbered

    events = lines([created("pods", pod("first", BAD))])
    text = events + useless * 3_000_000 + events.replace("first", "last")
    (tmp_path / "audit-1.log.gz").write_bytes(gzip.compress(text.encode(), 1))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_files.LogFile, "_each", counted)
        patched.setattr(audit_files, "MOST_LINES_WITHOUT_EVENT", 1000)
        answer, result = summary(policy, tmp_path / "audit-1.log.gz")

    assert {each["name"] for each in answer["refusedObjects"]} == {"first"}
    assert answer["log"]["problems"]["empty"] == 1
    assert "1 file not read to its end" in result.stderr
    assert len(read) < 1100


def test_a_line_that_is_too_long_is_left_out(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(audit_files, "MOST_LINE_BYTES", 2000)
    long = created("pods", pod("a", BAD, labels={"x": "y" * 5000}))
    log = write(tmp_path, [long, created("pods", pod("b", BAD))])

    answer, _ = summary(policy, log)

    assert (answer["log"]["problems"], answer["refused"]) == ({"long": 1}, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "no AdmissionReview in", id="empty"),
        pytest.param("hello\n", "no JSON", id="text"),
        pytest.param(
            '{"kind":"Event","apiVersion":"audit.k8s.io/v1beta1"}\n',
            "no audit event or AdmissionReview in",
            id="older-version",
        ),
    ],
)
def test_a_file_without_events_is_an_error(policy, tmp_path, content, message):
    log = tmp_path / "audit.log"
    log.write_text(content)

    result = replay(policy, log)

    assert result.exit_code == 2
    if message != "no JSON":
        assert message in result.stderr
    assert "Traceback" not in result.output


def test_patches_without_the_object_are_counted_and_named(policy, tmp_path):
    sent = {"spec": {"containers": [{"name": "main", "image": BAD}]}}
    patches = [event("patch", "pods", f"p{n}", sent=sent, level="Request") for n in range(3)]
    log = write(tmp_path, [created("pods", pod("a", BAD), level="Request"), *patches])

    answer, result = summary(policy, log)

    assert (answer["judged"], answer["refused"], result.exit_code) == (1, 1, 1)
    assert answer["log"]["unjudged"] == {"patch": 3}
    assert (
        "audit log: patch pods team-a/p0: warning: 3 requests cannot be judged, this one first:"
        " patches without the resulting object (level Request)"
    ) in result.stderr
    assert "3 that cannot be judged" in replay(policy, log).stdout


def test_a_log_of_nothing_but_such_patches_is_no_answer(policy, tmp_path):
    patch = event("patch", "pods", "a", sent={"spec": {}}, level="Request")

    result = replay(policy, write(tmp_path, [patch]))

    assert result.exit_code == 2
    assert "1 request cannot be judged" in result.stderr


def test_a_namespace_whose_labels_were_patched_unseen_is_unknown(policy, tmp_path):
    selector = "    namespaceSelector: {matchLabels: {team: x}}\n  inject:"
    policy.write_text(POLICY.replace("  inject:", selector))
    labels = {"metadata": {"labels": {"team": "x"}}}
    log = write(
        tmp_path,
        [
            created("namespaces", obj("namespaces", "team-a", labels={"team": "y"})),
            event("patch", "namespaces", "team-a", namespace="", sent=labels, level="Request"),
            created("pods", pod("a", BAD)),
        ],
    )

    _, result = summary(policy, log)

    assert result.exit_code == 1
    assert "whether `versions` applies is unknown: it selects by label `team`" in result.stderr


def test_a_process_that_judges_leaves_ctrl_c_to_the_one_that_started_it():
    setup = judging.Setup(
        policies=(("policy.yaml", POLICY.encode()),),
        given={"namespace_labels": (), "assume_labels": None},
    )
    with ProcessPoolExecutor(1, get_context("spawn"), judging._begin, (setup,)) as pool:
        assert pool.submit(signal.raise_signal, signal.SIGINT).result() is None


def test_many_requests_are_judged_by_processes_with_the_same_result(policy, tmp_path, monkeypatch):
    events = [created("pods", pod(f"p{n}", BAD if n % 3 else "a:1")) for n in range(450)]
    log = write(tmp_path, events)
    alone, _ = summary(policy, log, "--workers", "1")
    monkeypatch.setattr(judging, "ALONE_SECONDS", -1.0)

    together, _ = summary(policy, log, "--workers", "2")

    assert together == alone
    assert Counter(each["running"] for each in alone["refusedObjects"]) == {True: 300}


def test_reviews_are_summed_up_if_asked_for(policy, tmp_path):
    request = {
        "uid": "1",
        "operation": "CREATE",
        "name": "a",
        "namespace": "team-a",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod("a", BAD),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    refused = review | {"response": {"uid": "1", "allowed": False}}
    path = tmp_path / "reviews.jsonl"
    path.write_text(f"{json.dumps(review)}\n{json.dumps(refused)}\n")

    answer, _ = summary(policy, path, "--summary")

    assert (answer["refused"], answer["refusedThen"]) == (1, 1)
    assert answer["refusedObjects"][0]["owner"] == "Pod a"


HOSTILE = "a|b <img src=x> `x` @all \\x1b[31m https://example.com"


def formatted(policy, tmp_path, output):
    text = POLICY.replace("message: an image has no version", f'message: "{HOSTILE}"')
    policy.write_text(text)
    log = write(tmp_path, [created("pods", pod("a", BAD)), created("pods", pod("b"))])
    result = replay(policy, "-o", output, log)
    assert result.exit_code == 1
    return result.stdout


def test_markdown_has_no_markup_of_messages(policy, tmp_path):
    comment = formatted(policy, tmp_path, "markdown")

    assert comment.startswith("### Impact of these policies\n\n**Would refuse 1 pod of 1 team")
    assert "| Team | Refused | Running | Retrying | Warned | Changed |\n|---|---:|" in comment
    (row,) = [line for line in comment.splitlines() if "pinned" in line]
    assert row.count("|") - row.count("\\|") == 6
    assert "<img" not in row
    assert "@" not in row
    assert "://" not in row
    assert "\x1b" not in comment


def test_text_has_no_control_characters_of_messages(policy, tmp_path):
    assert "\x1b" not in formatted(policy, tmp_path, "text")


def test_sarif_has_a_result_for_each_rule_at_its_policy(policy, tmp_path):
    (run,) = json.loads(formatted(policy, tmp_path, "sarif"))["runs"]

    refusal, change = run["results"]
    place = refusal["locations"][0]["physicalLocation"]
    assert (refusal["ruleId"], refusal["level"], change["level"]) == (
        "versions",
        "error",
        "warning",
    )
    assert place["artifactLocation"]["uri"].endswith("policy.yaml")
    assert place["region"]["startLine"] == 1
    assert (
        "versions: pinned would refuse 1 object, 1 that exist now, such as"
        in refusal["message"]["text"]
    )
    assert "would change 1 object: spec.priorityClassName" in change["message"]["text"]


def test_reports_name_the_objects(policy, tmp_path):
    (written,) = yaml.safe_load_all(formatted(policy, tmp_path, "policyreport"))

    (result,) = written["results"]
    assert (written["kind"], written["metadata"]["namespace"]) == ("PolicyReport", "team-a")
    assert (result["policy"], result["rule"], result["result"]) == ("versions", "pinned", "fail")
    assert result["resources"] == [
        {"apiVersion": "v1", "kind": "Pod", "namespace": "team-a", "name": "a"}
    ]


def report(policy, objects, tmp_path, *arguments):
    path = tmp_path / "objects.yaml"
    path.write_text("---\n".join(f"{json.dumps(each)}\n" for each in objects))
    command = ["report", "-p", str(policy), "-f", str(path), *arguments]
    return CliRunner().invoke(main, command)


def test_existing_objects_are_summed_up_alike(policy, tmp_path):
    objects = [
        obj("replicasets", "web-1", owner=("Deployment", "web"), spec={}),
        pod("web-1-a", BAD, owner=("ReplicaSet", "web-1")),
        pod("done", BAD, status={"phase": "Failed"}),
        pod("b"),
    ]

    result = report(policy, objects, tmp_path, "--summary", "-o", "json")

    answer = json.loads(result.stdout)
    refused = {each["name"]: each for each in answer["refusedObjects"]}
    assert result.exit_code == 1
    assert refused["web-1-a"]["owner"] == "Deployment web"
    assert (refused["web-1-a"]["running"], refused["done"]["running"]) == (True, False)
    assert [each["field"] for each in answer["fields"]] == ["spec.priorityClassName"]


def test_policies_for_updates_see_existing_objects_unchanged(policy, tmp_path):
    policy.write_text(POLICY.replace("[CREATE, UPDATE]", "[UPDATE]"))

    result = report(policy, [pod("a", BAD)], tmp_path, "-o", "markdown")

    assert "**Would refuse 1 pod of 1 team, 1 that runs now" in result.stdout


def test_a_policy_that_reads_the_user_has_no_impact_on_existing_objects(policy, tmp_path):
    expression = "object.spec.containers.all(c, !c.image.endsWith(':latest'))"
    text = POLICY.replace("  inject: {priorityClassName: research}\n", "")
    policy.write_text(text.replace(expression, "request.userInfo.username == 'ada'"))

    result = report(policy, [pod("a", BAD)], tmp_path, "--summary")

    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0,
        "Would refuse and change nothing of 0 requests",
    )


def test_reports_are_not_summed_up(policy, tmp_path):
    result = report(policy, [pod("a")], tmp_path, "--summary", "-o", "yaml")

    assert result.exit_code == 2
    assert "-o yaml writes reports, and --summary sums them up" in result.stderr


def test_a_file_that_is_no_log_is_not_kept_in_memory_to_find_that_out(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_files, "MOST_LINE_BYTES", 2000)
    file = tmp_path / "other.log.gz"
    file.write_bytes(gzip.compress((b" " * 1500 + b"\n") * 20))
    kept = []
    each = audit_files.LogFile._each

    def counted(self, raw):
        for numbered in each(self, raw):
            kept.append(len(numbered[1]))
            yield numbered

    monkeypatch.setattr(audit_files.LogFile, "_each", counted)

    assert audit_files.log_files([str(file)]) == []
    assert sum(kept) < 2 * 2000
