"""What is installed of policyd: sdist, wheel, types, and the recipe of the image."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from policyd import __version__
from tests.docs.pages import PROJECT
from tests.docs.test_job_kind import block

RECIPE = PROJECT / "charts" / "policyd" / "image" / "Dockerfile"
COMMANDS = Path(sys.executable).parent


def build(folder, into, *what):
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", into, *what, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and a wheel that was made from it, as `python -m build` leaves them."""
    folder = tmp_path_factory.mktemp("dist")
    build(PROJECT, folder)
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel, as an installer leaves it, away from every checkout."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(installed, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "policyd", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_sdist_has_what_the_wheel_is_made_from(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}

    assert {"pyproject.toml", "policies/kustomization.yaml", "docs/examples/pod.yaml"} <= names
    assert "policyd/api/data/kubernetes.json" in names


def test_the_wheel_has_the_library_the_examples_its_types_and_tables(installed):
    policies = {path.name for path in (installed / "policyd/_shipped/policies").glob("*/*")}

    assert policies == {path.name for path in (PROJECT / "policies").glob("*/*")}
    assert (installed / "policyd/_shipped/docs/examples/first.yaml").exists()
    assert (installed / "policyd/py.typed").exists()
    assert (installed / "webhooks/py.typed").exists()
    assert (installed / "policyd/api/data/kubernetes.json").exists()


def test_the_wheel_has_the_templates_and_files_of_the_page(built):
    (wheel,) = built.glob("*.whl")
    here = PROJECT / "policyd/dashboard"
    files = [*here.glob("templates/*"), *here.glob("static/*")]

    assert len(files) > 9
    with zipfile.ZipFile(wheel) as found:
        assert {str(file.relative_to(PROJECT)) for file in files} <= set(found.namelist())


def test_policies_are_there_without_a_checkout(installed, tmp_path):
    listed = run(installed, "library", "list", cwd=tmp_path)
    copied = run(installed, "library", "copy", "cap-gpus-per-pod", cwd=tmp_path)
    tested = run(installed, "test", "policies", cwd=tmp_path)

    assert "\nmax-run-time " in listed.stdout
    assert (copied.returncode, tested.returncode) == (0, 0)
    assert "cases passed" in tested.stdout


def test_a_version_is_there_without_a_checkout(installed, tmp_path):
    assert run(installed, "--version", cwd=tmp_path).stdout == f"policyd, version {__version__}\n"


def test_a_checkout_without_tags_has_a_version(tmp_path):
    for name in ("policyd", "pyproject.toml"):
        (tmp_path / name).symlink_to(PROJECT / name)

    shown = subprocess.run(
        [sys.executable, "-m", "policyd", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert shown.stdout == f"policyd, version {__version__}\n"


def test_the_module_of_the_guide_has_types(tmp_path):
    (tmp_path / "render.py").write_text(block("python"))

    checked = subprocess.run(
        [COMMANDS / "mypy", "--strict", "--config-file=", "render.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout


def test_the_recipe_of_the_image_has_no_finding():
    done = subprocess.run(
        [COMMANDS / "hadolint", RECIPE], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_files_that_the_recipe_copies_are_sent_and_make_the_wheel(tmp_path):
    """The image is made of what is copied, and of that what `.dockerignore` leaves."""
    sent = re.findall(r"^!(\S+)$", (PROJECT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", RECIPE.read_text(), re.MULTILINE)
    names = " ".join(copied).split()
    assert set(names) == set(sent)
    for name in names:
        source, target = PROJECT / name, tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    build(tmp_path / "source", tmp_path / "dist", "--wheel")

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert "policyd/_shipped/policies/kustomization.yaml" in zipfile.ZipFile(wheel).namelist()
