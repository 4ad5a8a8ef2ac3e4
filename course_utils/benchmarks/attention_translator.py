"""Lesson 02's measurements."""

import functools
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

from course_utils.benchmarks.rnn_translator import translator_row
from course_utils.corpora import english_french
from course_utils.corpora.pairs import Pair
from course_utils.lessons import attention_translator as lesson
from course_utils.lessons.rnn_translator import RNNTranslator, Trained, train_translator, translate
from course_utils.metrics import exact_match

Maker = Callable[[int, int], Any]
ONE_VECTOR = "one vector (lesson 01)"
MODELS: dict[str, Maker] = {
    ONE_VECTOR: RNNTranslator,
    "dot product, old state": lesson.AttentionTranslator,
    "additive, old state": functools.partial(lesson.AttentionTranslator, decoder=lesson.AdditiveDecoder),
    "dot product, new state": functools.partial(lesson.AttentionTranslator, decoder=lesson.LuongDecoder),
}
# Longest training sentence, and seeds: the differences beyond 20 words are so large that one seed shows them.
TRAININGS = {"all lengths": (45, 3), "at most 20 words": (20, 1)}


def translator() -> list[dict[str, Any]]:
    """Lesson 02: four translators, trained on all lengths and on at most 20 words: BLEU by length, links found."""
    settings = [(on, model, seed) for on, (_, seeds) in TRAININGS.items() for model in MODELS for seed in range(seeds)]
    return [trained_translator(*setting)[1] for setting in settings]


def trained_translator(trained_on: str, name: str, seed: int) -> tuple[Trained, dict[str, Any]]:
    """Train one translator and measure it: its settings, what `translator_row` gives, and how well its maps do."""
    splits, (longest, _) = english_french.splits(), TRAININGS[trained_on]
    pairs = [pair for pair in splits.train if len(pair.source) <= longest]
    run = functools.partial(train_translator, MODELS[name], pairs, seed=seed)
    trained, row = translator_row(run, splits.test)
    size = sum(p.numel() for p in trained.model.parameters())
    row = {"model": name, "trained_on": trained_on, "seed": seed, "parameters": size, **row}
    if name != ONE_VECTOR:
        row |= map_row(trained, splits.test)
    print(row, flush=True)
    return trained, row


def map_row(trained: Trained, test: list[Pair]) -> dict[str, float]:
    """The share of the gold links that is found, by kind; the weight near those in order; the alignment error rate."""
    maps = lesson.attention_maps(trained, test)
    links = [lesson.links_from_map(weights) for weights in maps]
    kinds = [lesson.link_kinds(pair) for pair in test]
    in_order, crossing, repeated = ([links[kind] for links in kinds] for kind in kinds[0])
    measured = {
        "in_order": lesson.share_found(links, in_order),
        "crossing": lesson.share_found(links, crossing),
        "repeated": lesson.share_found(links, repeated),
        "near": lesson.weight_near(maps, in_order),
        "aer": lesson.corpus_alignment_error_rate(links, test),
    }
    return {name: round(value, 3) for name, value in measured.items()}


GAMES = [
    ("old state", lesson.AttentionDecoder, ascii_lowercase),
    ("old state", lesson.AttentionDecoder, ascii_lowercase[:12]),
    ("new state", lesson.LuongDecoder, ascii_lowercase),
]


def reversal() -> list[dict[str, Any]]:
    """Lesson 02: how often the largest weight is on the right letter when rows are written backwards; five seeds."""
    return [reversal_row(*game, seed) for game in GAMES for seed in range(5)]


def reversal_row(asks: str, decoder: Any, letters: str, seed: int) -> dict[str, Any]:
    """Train on rows of these letters, and measure on 200 rows of eight letters, the longest that it has trained on."""
    test = lesson.reversal_pairs(200, letters=letters, shortest=8, seed=1)
    trained = lesson.train_reversal(decoder, seed, letters)
    found = [lesson.links_from_map(weights) for weights in lesson.attention_maps(trained, test)]
    right = lesson.share_found(found, [pair.sure for pair in test])
    written = translate(trained.model, [pair.source for pair in test], trained.english, trained.french)
    exact = exact_match(written, [pair.target for pair in test])
    row = {"asks": asks, "letters": len(letters), "seed": seed}
    row |= {"exact": round(exact, 3), "looks_right": round(right, 3)}
    print(row, flush=True)
    return row
