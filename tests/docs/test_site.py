"""The site of docs/: it is built without a warning, has every page, and its search finds words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import markdown
import pytest
from mkdocs.config import load_config

from tests.docs.pages import PROJECT
from tests.docs.site import navigation, outside, place

TERMS = re.findall(r"^\| ([^|]+) \|", (PROJECT / "docs/glossary.md").read_text(), re.MULTILINE)[2:]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site):
    paths = [str(path.relative_to(PROJECT)) for path in PROJECT.glob("docs/**/*.md")]

    for path in [*paths, *outside()]:
        page = site / place(path).removesuffix(".md")
        at = page.with_name("index.html") if page.name == "README" else page.with_suffix(".html")
        assert at.exists(), path


def test_the_search_finds_each_word_of_the_glossary(site):
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    texts = " ".join(f"{each['title']} {each['text']}" for each in found).lower()
    words = {word for term in TERMS for word in re.findall(r"\*\*([^*]+)\*\*|`([^`]+)`", term)}

    assert len(words) > 60
    missing = [word for pair in words for word in pair if word.strip("…_").lower() not in texts]
    assert missing == []


def test_links_to_pages_beside_the_documentation_lead_to_them(site):
    library = (site / "reference/policy-library.html").read_text()

    assert 'href="../policies/gpu/gpu-sizes/index.html"' in library
    assert 'href="project/CONTRIBUTING.html"' in (site / "index.html").read_text()


def test_a_block_that_is_a_file_has_its_name_for_a_title(site):
    tutorial = (site / "tutorial.html").read_text()

    assert '<span class="filename">' in tutorial
    assert "```" not in tutorial


def test_the_navigation_has_each_section_of_the_first_page_and_each_decision():
    first = (PROJECT / "docs/index.md").read_text()
    sections = [title for each in navigation() for title in each]

    assert sections[1:] == re.findall(r"^## (.+)$", first, re.MULTILINE)
    assert "'adr/0001-pure-core.md'" in str(navigation())


def test_diagrams_are_left_to_mermaid():
    config = load_config(str(PROJECT / "mkdocs.yml"))
    extensions = {"extensions": config.markdown_extensions, "extension_configs": config.mdx_configs}

    made = markdown.markdown("```mermaid\ngraph LR\n  a --> b\n```\n", **extensions)

    assert made.startswith('<pre class="mermaid">')
