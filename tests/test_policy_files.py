"""Which files of a folder are policies."""

from policyd.policy_files import policy_files


def test_a_folder_is_its_policies_without_cases_kustomization_and_what_is_hidden(tmp_path):
    for name in ("b/policy.yaml", "a.json", "a/.git/x.yaml", "b/cases.yaml", "b/README.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "kustomization.yaml").touch()

    found = policy_files([tmp_path])

    assert found == [tmp_path / "a.json", tmp_path / "b" / "policy.yaml"]


def test_a_file_that_is_named_itself_is_taken_whatever_it_is_called(tmp_path):
    file = tmp_path / "cases.yaml"

    assert policy_files([file, file]) == [file]
