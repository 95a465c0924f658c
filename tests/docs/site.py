"""Hooks of the site's builder: the navigation of docs/index.md, and the pages beside docs/.

What a fence says beyond its language is the name of a file, which becomes the block's title, or is
for tests (`no-run: why`), and is left out. A link to a page outside of docs/ (CONTRIBUTING.md,
policies/) leads to its copy in the site; one to something else of the project, as a folder of
sources, becomes plain text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
FENCE = re.compile(r"^```(\w+) +([^\n]+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
MOVED = {"guides/test-policies-in-ci.html": "ci.html"}
"""Pages that had another name, by their path in the site: a browser is led to where they are."""
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def outside():
    """Return the pages beside docs/, by their paths in the project."""
    found = [*(PROJECT / name for name in NAMES), *PROJECT.glob("policies/**/*.md")]
    return [str(path.relative_to(PROJECT)) for path in sorted(found)]


def navigation():
    """Return the sections of docs/index.md with the first link of each of their lines."""
    sections = [{"policyd": "index.md"}]
    for part in re.split(r"^## ", (DOCS / "index.md").read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        lines = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)", text, flags=re.MULTILINE)
        sections.append({title: [{name: _entry(target)} for name, target in lines]})
    return sections


def _entry(target):
    """Return a page, or all pages of the folder that is linked, by itself or by its first page."""
    path = (DOCS / target).resolve()
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or (path.name in ("README.md", "index.md") and folder.is_relative_to(DOCS)):
        return [str(each.relative_to(DOCS)) for each in sorted(folder.glob("*.md"))]
    return place(posixpath.normpath(f"docs/{target}"))


def place(path):
    """Return where a page of the project is in the site, by its path in the project."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if "/" in path else f"project/{path}"


def on_config(config):
    """Set the navigation."""
    config.nav = navigation()
    return config


def on_files(files, config):
    """Add the pages that are beside docs/."""
    for path in outside():
        page = File.generated(config, place(path), abs_src_path=str(PROJECT / path))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown, *, page, config, files):
    """Have links lead to where pages are in the site, and blocks show their files' names."""
    origin = posixpath.dirname(str(Path(page.file.abs_src_path).relative_to(PROJECT)))
    here = posixpath.dirname(page.file.src_uri)

    def moved(link):
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(origin, target))
        if "://" in target or not (PROJECT / path).exists():
            return link[0]
        readme = f"{path}/README.md"
        path = readme if (PROJECT / readme).exists() else path
        if files.get_file_from_path(place(path)) is None:
            return text
        return f"[{text}]({posixpath.relpath(place(path), here)}{anchor})"

    return FENCE.sub(_titled, LINK.sub(moved, markdown))


def on_post_build(config):
    """Lead from where pages were to where they are."""
    for path, target in MOVED.items():
        refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
        text = f'<!doctype html><title>Moved</title>{refresh}<a href="{target}">Moved</a>\n'
        (Path(config.site_dir) / path).write_text(text)


def _titled(fence):
    language, remark = fence.groups()
    return f"```{language}" if ": " in remark else f'```{language} title="{remark.strip()}"'
