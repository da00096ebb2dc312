"""Documents: every link leads to a file and a heading, and every document links the glossary."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Lists of results and records of decisions use few terms.
WITHOUT_GLOSSARY = ("docs/adr/", "docs/nightly.md", "docs/glossary.md", "LICENSE")


def documents() -> list[str]:
    """Markdown files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def prose(text: str) -> str:
    """The text without blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", documents())
def test_every_link_leads_to_a_file_and_a_heading(name):
    broken = []
    for link in LINK.findall(prose((ROOT / name).read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", [name for name in documents() if not name.startswith(WITHOUT_GLOSSARY)])
def test_every_document_links_the_glossary(name):
    assert "glossary.md)" in prose((ROOT / name).read_text())


def test_a_heading_becomes_its_anchor():
    assert anchors("# The life of a job\n```\n# no heading\n```\n## make dev\n") == {"the-life-of-a-job", "make-dev"}
