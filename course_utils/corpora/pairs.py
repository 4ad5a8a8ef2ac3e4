"""Sentence pairs: what a translator learns from, and the files they stand in."""

from dataclasses import dataclass

Link = tuple[int, int]  # (source position, target position), both from 0


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation as tokens, with word alignments where they are known.

    `sure` links are certain, `possible` links are acceptable; `possible` contains `sure`
    (Och and Ney 2003, https://aclanthology.org/J03-1002).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()
