"""Suggest existing names for an unknown one, in bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nlargest
from operator import itemgetter

# Only the beginning of a name is compared, and only this many names letter by letter, which takes cubic time at
# worst.
HEAD, LETTER_BY_LETTER = 64, 25
LEAST_RATIO = 0.5


def closest(name: str, candidates: Iterable[str], count: int) -> list[str]:
    """Return the candidates that are like a name, the best first.

    Candidates are ranked by the pairs of neighbouring characters that they share with it (a blank is put before each
    name), and the best of them by `difflib`'s ratio.

    Parameters
    ----------
    name
        The unknown name; only its first 64 characters are compared.
    candidates
        Existing names.
    count
        Most names to return.

    Returns
    -------
    list of str
        Names with a ratio of at least 0.5; possibly none.
    """
    head = name[:HEAD]
    start = f" {head}"
    pairs = {start[at : at + 2] for at in range(len(head))}
    shared = ((_shared(pairs, f" {each[:HEAD]}"), each) for each in dict.fromkeys(candidates))
    best = nlargest(LETTER_BY_LETTER, (each for each in shared if each[0]), key=itemgetter(0))
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(head)
    rated = []
    for _, each in best:
        matcher.set_seq1(each[:HEAD])
        if matcher.quick_ratio() >= LEAST_RATIO and (ratio := matcher.ratio()) >= LEAST_RATIO:
            rated.append((ratio, each))
    return [each for _, each in nlargest(count, rated, key=itemgetter(0))]


def _shared(pairs: set[str], text: str) -> int:
    return len([pair for pair in pairs if pair in text])
