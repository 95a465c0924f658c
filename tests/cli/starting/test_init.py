"""A new repository of policies: it is complete, and all that it runs passes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from policyd.api.meta import Json
from policyd.cli import main
from policyd.cli.starting.contents import for_argo_cd, for_flux
from policyd.jobs.kinds.registry import KINDS
from policyd.patch.draft import Draft

PROJECT = Path(__file__).parents[3]
COMMANDS = Path(sys.executable).parent


def init(*words, text=None):
    return CliRunner().invoke(main, ["init", *map(str, words)], input=text)


def documents(file) -> list[Json]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository with everything."""
    folder = tmp_path_factory.mktemp("made") / "repository"
    result = init(folder, "--no-ask", "--url", "https://git.example/own.git")
    assert result.exit_code == 0, result.output
    return folder


def run_by(made):
    """What CI and the hook run, except for what installs and uploads."""
    workflow = documents(made / ".github/workflows/policies.yaml")[0]
    yield from (step["run"] for step in workflow["jobs"]["policies"]["steps"] if "run" in step)
    job = documents(made / ".gitlab-ci.yml")[0]["policies"]
    yield from (*job["script"], *job["after_script"])
    hooks = documents(made / ".pre-commit-config.yaml")[0]["repos"][0]["hooks"]
    yield from (hook["entry"] for hook in hooks)


def test_all_that_ci_and_the_hook_run_passes(made):
    commands = {each for each in run_by(made) if not each.startswith("pip ")}
    assert len(commands) == 4
    path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"

    for each in commands:
        done = subprocess.run(
            each, shell=True, cwd=made, capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, (each, done.stdout, done.stderr)


def test_a_broken_policy_fails_in_ci(made, tmp_path):
    folder = tmp_path / "broken"
    assert init(folder, "--no-ask", "--policy", "cap-gpus-per-pod").exit_code == 0
    file = folder / "policies/cap-gpus-per-pod/policy.yaml"
    file.write_text(file.read_text().replace("<= variables.most", "< variables.most"))

    path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"

    def code(command):
        env = {**os.environ, "PATH": path}
        return subprocess.run(command, shell=True, cwd=folder, env=env, check=False).returncode

    job = documents(folder / ".gitlab-ci.yml")[0]["policies"]
    steps = documents(folder / ".github/workflows/policies.yaml")[0]["jobs"]["policies"]["steps"]
    assert [code(each) for each in job["script"][1:]] == [0, 1]
    assert [code(each) for each in job["after_script"]] == [1]
    assert [code(each["run"]) for each in steps if each.get("if") and "run" in each] == [1]
    for report in ("policyd.xml", "policyd.sarif"):
        assert "eight GPUs are a whole node: unexpected denial" in (folder / report).read_text()


def test_each_file_is_valid(made):
    files = [each for each in made.rglob("*") if each.suffix in {".yaml", ".yml"}]
    assert len(files) > 20

    for file in files:
        assert all(isinstance(each, dict) for each in documents(file)), file
    done = subprocess.run(
        [COMMANDS / "pre-commit", "validate-config", made / ".pre-commit-config.yaml"], check=False
    )
    assert done.returncode == 0
    schema = json.loads((PROJECT / "charts/policyd/values.schema.json").read_text())
    (values,) = documents(made / "deploy/values.yaml")
    jsonschema.validate(values, {**schema, "required": []})


def test_the_kustomization_has_the_policies_and_their_enforcement(made):
    (found,) = documents(made / "policies/kustomization.yaml")

    for each in found["resources"]:
        assert documents(made / "policies" / each)[0]["kind"] == "Policy"
    (patch,) = found["patches"]
    assert yaml.safe_load(patch["patch"])[0]["value"] == "Warn"
    assert patch["target"]["kind"] == "Policy"


def test_tools_of_gitops_get_the_address_and_the_fields_to_ignore(made):
    chart, policies = documents(made / "deploy/argocd.yaml")
    flux = {
        f"{each['kind']} {each['metadata']['name']}": each
        for each in documents(made / "deploy/flux.yaml")
    }

    assert policies["spec"]["source"]["repoURL"] == "https://git.example/own.git"
    assert flux["GitRepository policies"]["spec"]["url"] == "https://git.example/own.git"
    assert chart["spec"]["ignoreDifferences"] == for_argo_cd(of_chart=True)
    assert "RespectIgnoreDifferences=true" in policies["spec"]["syncPolicy"]["syncOptions"]
    assert flux["HelmRelease policyd"]["spec"]["driftDetection"]["ignore"] == for_flux()


def test_tools_leave_definitions_alone_into_which_the_webhooks_write_v1beta1(tmp_path):
    assert init(tmp_path, "--no-ask", "--policy", "job-ttl", "--serve-v1beta1").exit_code == 0

    argo_cd, _ = documents(tmp_path / "deploy/argocd.yaml")
    (release,) = (
        each["spec"]
        for each in documents(tmp_path / "deploy/flux.yaml")
        if each["kind"] == "HelmRelease"
    )
    (values,) = documents(tmp_path / "deploy/values.yaml")
    assert argo_cd["spec"]["sources"][0]["helm"]["skipCrds"] is True
    assert release["install"]["crds"] == release["upgrade"]["crds"] == "Create"
    assert release["values"] == values
    assert values["webhooks"]["serveV1beta1"] is True
    assert "`policyd crds |" in (tmp_path / "README.md").read_text()


def test_the_rules_name_each_lease_and_record_of_the_chart():
    texts = [path.read_text() for path in (PROJECT / "charts/policyd/templates").rglob("*.yaml")]
    written = {
        (kind, name.replace('{{ include "policyd.', "policyd-").replace('" . }}', ""))
        for kind, name in re.findall(
            r"^kind: (Lease|ConfigMap)\nmetadata:\n  name: (.+)$", "\n".join(texts), re.MULTILINE
        )
        if "dashboard" not in name  # its content is the chart's, as is the configuration
    } - {("ConfigMap", "policyd-controller")}

    assert written == {
        (each["kind"], each["name"])
        for each in for_argo_cd(of_chart=True)
        if each["kind"] in {"Lease", "ConfigMap"}
    }


def test_the_rules_name_where_each_kind_of_job_is_suspended():
    rules = {each["kind"]: each["jsonPointers"] for each in for_argo_cd(of_chart=False)}

    for kind in KINDS:
        draft = Draft({})
        kind.suspend(draft)
        (pointer,) = rules[kind.kind]
        assert draft.get(tuple(pointer.split("/")[1:])) is True


@pytest.mark.parametrize(
    ("words", "has", "has_not"),
    [
        pytest.param(["--ci", "github"], ".github", ".gitlab-ci.yml", id="github"),
        pytest.param(["--ci", "gitlab"], ".gitlab-ci.yml", ".github", id="gitlab"),
        pytest.param(["--ci", "none"], "deploy", ".github", id="no-ci"),
        pytest.param(["--gitops", "flux"], "deploy/flux.yaml", "deploy/argocd.yaml", id="flux"),
        pytest.param(["--gitops", "flux"], "README.md", "deploy/values.yaml", id="values-of-flux"),
        pytest.param(["--gitops", "none"], ".github", "deploy", id="no-gitops"),
        pytest.param(["--no-hook"], ".github", ".pre-commit-config.yaml", id="no-hook"),
    ],
)
def test_options_choose_what_is_made(tmp_path, words, has, has_not):
    assert init(tmp_path, "--no-ask", "--policy", "job-ttl", *words).exit_code == 0

    assert (tmp_path / has).exists()
    assert not (tmp_path / has_not).exists()
    assert [each.name for each in (tmp_path / "policies").iterdir() if each.is_dir()] == ["job-ttl"]


def test_it_asks_for_what_no_option_says(tmp_path):
    url = "https://git.example/asked.git"
    answers = f"job-tll\njob-ttl, gpu-sizes\ndeny\nn\ny\ny\nn\nn\n{url}\n"

    result = init(tmp_path, "--ask", text=answers)

    assert result.exit_code == 0, result.output
    assert "did you mean `job-ttl`" in result.output
    assert url in (tmp_path / "deploy/argocd.yaml").read_text()
    made = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()}
    assert {"policies/job-ttl/policy.yaml", "policies/gpu-sizes/cases.yaml"} <= made
    assert {".gitlab-ci.yml", "deploy/argocd.yaml"} <= made
    assert made.isdisjoint(
        {".github/workflows/policies.yaml", "deploy/flux.yaml", ".pre-commit-config.yaml"}
    )
    assert "patches" not in documents(tmp_path / "policies/kustomization.yaml")[0]


def test_the_readme_names_what_is_to_be_set(made, tmp_path):
    text = (made / "README.md").read_text()
    assert "| Purpose |" in text
    assert "Limit the GPUs of a pod" in text

    command = next(line for line in text.splitlines() if "grep -rn" in line).split("`")[1]
    found = subprocess.run(
        command, shell=True, cwd=made, capture_output=True, text=True, check=False
    )
    files = {line.partition(":")[0] for line in found.stdout.splitlines()}
    assert files == {
        "requirements.txt", "deploy/values.yaml", "deploy/argocd.yaml", "deploy/flux.yaml",
    }  # fmt: skip


def test_a_copied_policy_that_is_not_applied_is_mentioned(tmp_path, monkeypatch):
    assert init(tmp_path, "--no-ask", "--policy", "job-ttl").exit_code == 0
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(main, ["library", "copy", "gpu-sizes"])

    assert "hint: name gpu-sizes/policy.yaml in policies/kustomization.yaml" in result.output


def test_nothing_is_overwritten_without_force(tmp_path):
    own = tmp_path / "README.md"
    own.write_text("mine\n")

    refused = init(tmp_path, "--no-ask")
    left = list(tmp_path.iterdir())
    forced = init(tmp_path, "--no-ask", "--force")
    again = init(tmp_path, "--no-ask", "-o", "json")

    assert refused.exit_code == 2
    assert "README.md` already exists" in refused.output
    assert left == [own]
    assert forced.exit_code == 0
    assert own.read_text().startswith("# Policies")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["written"] == []


def test_a_dry_run_writes_nothing(tmp_path):
    result = init(tmp_path / "new", "--no-ask", "--dry-run", "-o", "json")

    assert json.loads(result.stdout)["dryRun"] is True
    assert not (tmp_path / "new").exists()


def test_no_link_leads_out_of_the_folder(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "policies").symlink_to(outside)

    result = init(folder, "--no-ask", "--force")

    assert result.exit_code == 2
    assert "by a link" in result.output
    assert list(outside.iterdir()) == []


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "deploy").write_text("a file\n")

    result = init(tmp_path, "--no-ask")

    assert result.exit_code == 2
    assert "cannot" in result.output
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["deploy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--policy", "job-tll"], "did you mean `job-ttl`", id="unknown"),
        pytest.param(["--ci", "none", "--ci", "github"], "excludes the others", id="none-and-one"),
    ],
)
def test_mistakes_end_with_2(tmp_path, words, message):
    result = init(tmp_path, "--no-ask", *words)

    assert result.exit_code == 2
    assert message in result.output
    assert list(tmp_path.iterdir()) == []
