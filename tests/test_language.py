"""Language: phrases that a reader has to decode do not occur in pages, documents, docstrings, comments and names."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Each with what to write. The glossary (docs/glossary.md) has the terms.
BANNED = {
    r"whoever|whomever": "name the person: the user, the reviewer, the caller",
    r"(?:is|are|was|were|be|been) told": "say what is sent or shown",
    r"by (?:it|them)sel(?:f|ves)": "automatically",
    r"thr(?:ow|own|ew) out": "aborted, fell back",
    r"hears? (?:of|from)|heard (?:of|from)": "receives, reported",
    r"puts? away|putting away": "archive",
    r"stands? (?:in for|for|there|ready|beside|on top|in the way)": "is, means, blocks",
    r"nobody (?:says|knows|sees|would)": "say what is unknown or undetected",
    r"what (?:it|they) (?:is|are) worth": "say the value",
    r"for ever": "permanently, never deleted",
    r"those (?:that|who)": "name the things or persons",
    r"come(?:s)? to nothing": "fails, is cancelled",
    r"let(?:s)? by": "activated by, passed by",
    r"is (?:no|not any) more(?! than)": "no longer",
    r"of who": "of the user who",
    r"\bmend(?:s|ed|ing)?\b": "fix, correct, repair",
}
BANNED_RE = re.compile("|".join(f"(?P<p{at}>\\b(?:{phrase})\\b)" for at, phrase in enumerate(BANNED)), re.IGNORECASE)
TEXTS = ("*.html", "*.md")
# Stored migrations are history; this file holds the list; the licence is not ours.
LEFT_OUT = ("planner/migrations/", "tests/test_language.py", "LICENSE")


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [
        Path(name) for name in listed.stdout.splitlines() if not name.startswith(LEFT_OUT) and (ROOT / name).exists()
    ]


def prose_of(path: Path) -> list[tuple[int, str]]:
    """Line and text of each part of a file that a person reads: of Python its strings, comments and test names."""
    text = (ROOT / path).read_text()
    if path.suffix != ".py":
        return list(enumerate(text.splitlines(), start=1))
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            found += [(token.start[0] + at, line) for at, line in enumerate(token.string.splitlines())]
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            found.append((token.start[0], token.string.replace("_", " ")))
    return found


def faults(path: Path) -> list[str]:
    """Each banned phrase of a file with what to write."""
    advice = list(BANNED.values())
    return [
        f"{path}:{line}: {match.group()!r}; write: {advice[int(match.lastgroup[1:])]}"
        for line, text in prose_of(path)
        for match in BANNED_RE.finditer(text)
    ]


@pytest.mark.parametrize(
    "room", ["planner", "dashboards", "cacheroute_web", "templates", "docs", "tests", "benchmarks", "."]
)
def test_no_text_has_a_phrase_that_must_be_decoded(room):
    patterns = [f":(glob){room}/**/{kind}" for kind in (*TEXTS, "*.py")] if room != "." else ["*.md", ".ci/*.py"]
    paths = [path for path in tracked(*patterns) if room != "." or len(path.parts) == 1 or path.parts[0] == ".ci"]
    assert paths
    found = [fault for path in paths for fault in faults(path)]
    assert not found, "\n".join(found)


def test_a_banned_phrase_is_found_in_a_comment_and_in_the_name_of_a_test(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "x.py").write_text("# whoever asks\ndef test_it_goes_by_itself(): ...\nwhoever = 1\n")
    assert [fault.split(";")[0] for fault in faults(Path("x.py"))] == [
        "x.py:1: 'whoever'",
        "x.py:2: 'by itself'",
    ]
