"""A known hole in what we depend on stops `make check`, and says what to do."""

import json
import re
import urllib.error

import pytest
from packaging.version import Version

from tests.audit import __main__ as audit
from tests.audit import renew
from tests.audit.advisories import (
    CONSTRAINTS,
    FILE,
    Package,
    concerns,
    matches,
    pinned,
    read_advisories,
)


def part(*events, name="planted", versions=()):
    ranges = [{"type": "ECOSYSTEM", "events": [dict([event]) for event in events]}]
    package = {"ecosystem": "PyPI", "name": name}
    return {"package": package, "ranges": ranges if events else [], "versions": list(versions)}


def advisory(*parts, **more):
    return {"id": "TEST-1", "summary": "it is planted", "affected": list(parts), **more}


def kept(folder, *advisories):
    file = folder / "advisories.json"
    file.write_text(json.dumps({"renewed": "2026-01-01", "advisories": advisories}))
    return file


def constraints(folder, *lines):
    file = folder / "constraints.txt"
    file.write_text("\n".join(["# a remark", *lines]))
    return file


FROM_2 = ("introduced", "2.0")


@pytest.mark.parametrize(
    ("given", "version", "concerned"),
    [
        pytest.param(part(("introduced", "0"), ("fixed", "2.0")), "1.9", True, id="before"),
        pytest.param(part(("introduced", "0"), ("fixed", "2.0")), "2.0", False, id="fixed"),
        pytest.param(part(FROM_2), "1.0", False, id="not-yet"),
        pytest.param(part(FROM_2), "9.0", True, id="never-fixed"),
        pytest.param(part(FROM_2, ("last_affected", "2.1")), "2.1", True, id="last"),
        pytest.param(part(FROM_2, ("last_affected", "2.1")), "2.1.1", False, id="after-the-last"),
        pytest.param(part(("fixed", "2.1"), FROM_2), "2.0.5", True, id="in-any-order"),
        pytest.param(
            part(("introduced", "1"), ("fixed", "1.5"), FROM_2, ("fixed", "2.5")),
            "1.7",
            False,
            id="between-two-ranges",
        ),
        pytest.param(part(versions=["1.0", "1.2"]), "1.2.0", True, id="listed"),
        pytest.param(part(versions=["1.0"]), "1.1", False, id="not-listed"),
        pytest.param(part(("introduced", "0"), ("fixed", "2.0")), "2.0rc1", True, id="candidate"),
        pytest.param(part(("introduced", "0"), ("fixed", "1.10")), "1.9", True, id="as-numbers"),
    ],
)
def test_an_advisory_concerns_a_version(given, version, concerned):
    assert concerns(given, Version(version)) is concerned


def test_a_planted_advisory_fails_the_audit_and_says_what_to_do(tmp_path, capsys):
    planted = advisory(part(("introduced", "0"), ("fixed", "2.0"), name="Plan_Ted"))
    file, pins = kept(tmp_path, planted), constraints(tmp_path, "plan-ted==1.5  # why")

    assert audit.main(file, pins) == 1

    output = capsys.readouterr().err
    assert output == "audit: plan-ted 1.5: TEST-1: it is planted; fixed in 2.0\n"


def test_installed_packages_count_without_a_pin(tmp_path):
    planted = advisory(part(("introduced", "0"), name="pytest"))

    assert audit.main(kept(tmp_path, planted), constraints(tmp_path)) == 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(advisory(part(("introduced", "0"), name="other")), id="another-package"),
        pytest.param(advisory(part(("introduced", "2"))), id="another-version"),
        pytest.param(advisory(part(("introduced", "0")), withdrawn="2026"), id="withdrawn"),
        pytest.param(
            advisory(
                part(("introduced", "0")) | {"package": {"ecosystem": "Go", "name": "planted"}}
            ),
            id="another-ecosystem",
        ),
    ],
)
def test_an_advisory_about_another_package_has_no_effect(given):
    assert matches([given], [Package("planted", Version("1.0"))]) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"renewed": 1, "advisories": []}'])
def test_a_file_that_cannot_be_read_is_reported_on_one_line(tmp_path, capsys, text):
    file = tmp_path / "advisories.json"
    file.write_text(text)

    assert audit.main(file, constraints(tmp_path)) == 0

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("audit: could not look: `advisories.json` cannot be read")


def test_the_file_is_in_order_and_says_what_each_advisory_is():
    known = read_advisories(FILE)

    ids = [each["id"] for each in known["advisories"]]
    assert ids == sorted(set(ids))
    assert len(ids) >= 20
    assert [
        i for i in ids if not re.fullmatch(r"(CVE-\d{4}-\d+|GHSA(-\w{4}){3}|PYSEC-.+)", i)
    ] == []
    assert all(each["summary"] and each["affected"] for each in known["advisories"])


def test_each_advisory_of_the_file_would_be_found():
    known = read_advisories(FILE)
    old = [
        Package(part["package"]["name"], Version(event["introduced"]))
        for each in known["advisories"]
        for part in each["affected"]
        for event in part["ranges"][0]["events"]
        if "introduced" in event
    ]

    assert {match.id for match in matches(known["advisories"], old)} == {
        each["id"] for each in known["advisories"]
    }


def test_nothing_that_is_pinned_is_concerned():
    assert matches(read_advisories(FILE)["advisories"], pinned(CONSTRAINTS)) == []


HOLE = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "details": "a hole\nmore",
    "fixed_in": ["2.0", "0.9"],
}


def test_renewing_adds_what_the_registry_knows(tmp_path):
    file, pins = kept(tmp_path), constraints(tmp_path, "planted==1.5")

    renew.main(file, pins, lambda _package: {"vulnerabilities": [HOLE]})

    (found,) = read_advisories(file)["advisories"]
    events = [{"introduced": "1.5"}, {"fixed": "2.0"}]
    assert (found["id"], found["summary"]) == ("PYSEC-1", "a hole")
    assert found["affected"][0]["ranges"][0]["events"] == events
    assert audit.main(file, pins) == 1


def test_a_registry_that_does_not_answer_leaves_the_file_as_it_is(tmp_path, capsys):
    file, pins = kept(tmp_path, advisory(part(FROM_2))), constraints(tmp_path, "planted==1.5")
    before = file.read_text()

    def unreachable(_package):
        raise urllib.error.URLError("no way")

    assert renew.main(file, pins, unreachable) == 0

    assert capsys.readouterr().out == "advisories: could not look: <urlopen error no way>\n"
    assert file.read_text() == before
