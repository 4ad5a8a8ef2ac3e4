"""Lesson 02's measurements."""

import functools
from collections.abc import Callable
from typing import Any

from course_utils.benchmarks.rnn_translator import translator_row
from course_utils.corpora import english_french
from course_utils.lessons import attention_translator as lesson
from course_utils.lessons.rnn_translator import RNNTranslator, train_translator, translate
from course_utils.metrics import exact_match


def translator() -> list[dict[str, Any]]:
    """Lesson 02: four translators, trained on all lengths and on at most 20 words: BLEU by length, alignment error."""
    splits = english_french.splits()
    models: dict[str, Callable[[int, int], Any]] = {"one vector (lesson 01)": RNNTranslator}
    models["attention: dot product, old state"] = lesson.AttentionTranslator
    for name, decoder in (
        ("additive, old state", lesson.AdditiveDecoder),
        ("dot product, new state", lesson.LuongDecoder),
    ):
        models[f"attention: {name}"] = functools.partial(lesson.AttentionTranslator, decoder=decoder)
    rows = []
    for trained_on, longest in (("all lengths", 45), ("at most 20 words", 20)):
        pairs = [pair for pair in splits.train if len(pair.source) <= longest]
        for name, make_model in models.items():
            trained, row = translator_row(functools.partial(train_translator, make_model, pairs), splits.test)
            aer = None
            if make_model is not RNNTranslator:
                links = map(lesson.links_from_map, lesson.attention_maps(trained, splits.test))
                aer = round(lesson.corpus_alignment_error_rate(links, splits.test), 3)
            size = sum(p.numel() for p in trained.model.parameters())
            rows.append({"model": name, "trained_on": trained_on, "parameters": size, "aer": aer, **row})
            print(rows[-1], flush=True)
    return rows


def reversal() -> list[dict[str, Any]]:
    """Lesson 02: how often the largest weight is on the right letter when rows are turned round; five seeds."""
    test = lesson.reversal_pairs(200, shortest=10, longest=10, seed=1)
    rows = []
    for asks, decoder in (("old state", lesson.AttentionDecoder), ("new state", lesson.LuongDecoder)):
        for seed in range(5):
            trained = lesson.train_reversal(decoder, seed)
            found = [lesson.links_from_map(weights) for weights in lesson.attention_maps(trained, test)]
            wrong = lesson.corpus_alignment_error_rate(found, test)
            written = translate(trained.model, [pair.source for pair in test], trained.english, trained.french)
            exact = exact_match(written, [pair.target for pair in test])
            rows.append({"asks": asks, "seed": seed, "exact": round(exact, 3), "looks_right": round(1 - wrong, 3)})
            print(rows[-1], flush=True)
    return rows
