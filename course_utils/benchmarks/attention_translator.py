"""Lesson 02's measurements, and lesson 10's of the same translators."""

import functools
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import torch

from course_utils.benchmarks.rnn_translator import translator_row
from course_utils.corpora import english_french
from course_utils.corpora.pairs import Pair
from course_utils.lessons import attention_translator as lesson
from course_utils.lessons import transformer_translator
from course_utils.lessons.rnn_translator import RNNTranslator, Trained, train_translator, translate
from course_utils.metrics import bleu, exact_match

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

TRANSFORMER = "Transformer"
# Lesson 10: as many steps as above, and more: longest training sentence, seeds, steps, models.
LESSON_10: dict[str, tuple[int, int, int, tuple[str, ...]]] = {
    "all lengths, 1,000 steps": (45, 3, 1000, (TRANSFORMER,)),
    "all lengths, 1,500 steps": (45, 3, 1500, (TRANSFORMER, "dot product, old state")),
    "at most 20 words, 1,500 steps": (20, 1, 1500, (TRANSFORMER, "dot product, old state")),
}


def translator() -> list[dict[str, Any]]:
    """Lessons 02, 10: five translators, trained on all lengths and on at most 20 words: BLEU by length, links found."""
    settings = [(on, model, seed) for on, (_, seeds) in TRAININGS.items() for model in MODELS for seed in range(seeds)]
    settings += [
        (on, m, seed) for on, (_, seeds, _, models) in LESSON_10.items() for m in models for seed in range(seeds)
    ]
    return [trained_translator(*setting)[1] for setting in settings]


def trained_translator(trained_on: str, name: str, seed: int) -> tuple[Trained, dict[str, Any]]:
    """Train one translator and measure it: its settings, what `translator_row` gives, and how well its maps do."""
    splits, make_model = english_french.splits(), {**MODELS, TRANSFORMER: transformer_translator.TransformerTranslator}
    longest = {**TRAININGS, **LESSON_10}[trained_on][0]
    settings = dict(transformer_translator.SETTINGS) if name == TRANSFORMER else {}
    if trained_on in LESSON_10:
        settings["steps"] = LESSON_10[trained_on][2]
    pairs = [pair for pair in splits.train if len(pair.source) <= longest]
    run = functools.partial(train_translator, make_model[name], pairs, seed=seed, **settings)
    trained, row = translator_row(run, splits.test)
    size = sum(p.numel() for p in trained.model.parameters())
    row = {"model": name, "trained_on": trained_on, "seed": seed, "parameters": size, **row}
    if name != ONE_VECTOR:
        row |= map_row(trained, splits.test)
    if name == TRANSFORMER:
        row |= heads_row(trained, splits.test) | beam_row(trained, splits.test[::10])
    print(row, flush=True)
    return trained, row


def heads_row(trained: Trained, test: list[Pair]) -> dict[str, Any]:
    """Alignment error rates: of each head of each layer, and of the mean over each layer's heads."""
    errors = transformer_translator.head_errors(transformer_translator.head_maps(trained, test), test)
    heads = [[round(error, 3) for error in layer] for layer in errors.heads]
    return {"aer_heads": heads, "aer_layers": [round(error, 3) for error in errors.layers]}


def beam_row(trained: Trained, test: list[Pair]) -> dict[str, Any]:
    """What a beam of four sentences changes: BLEU, and how often its best sentence has a better or a worse score."""
    with torch.no_grad():
        greedy, beam = ([transformer_translator.best_of_beam(trained, p.source, n) for p in test] for n in (1, 4))
    references = [pair.target for pair in test]
    one, four = ([trained.french.decode(words) for words, _ in found] for found in (greedy, beam))
    gains = [b - g for (_, g), (_, b) in zip(greedy, beam, strict=True)]
    found = {"greedy": round(bleu(one, references), 1), "beam": round(bleu(four, references), 1)}
    found |= {"better": sum(gain > 1e-4 for gain in gains), "worse": sum(gain < -1e-4 for gain in gains)}
    return {"beam_search": {"sentences": len(test), **found}}


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
