"""What can be checked without a cluster: links, YAML blocks, and that console blocks are tested."""

import pytest
import yaml

from tests.docs.pages import LINK, PROJECT, blocks, pages

EVERY_PAGE = [pytest.param(page, id=str(page.relative_to(PROJECT))) for page in pages()]


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_yaml_blocks_load(page):
    for block in blocks(page):
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text)), block.place
