"""Lesson 01's measurement, and what it shares with lesson 02's: how well a trained translator does."""

import functools
import time
from collections.abc import Callable
from typing import Any

from course_utils import metrics
from course_utils.corpora import english_french
from course_utils.lessons.rnn_translator import LEARNING_RATE, STEPS, RNNTranslator, train_translator, translate


def bottleneck() -> list[dict[str, Any]]:
    """Lesson 01: BLEU by length for four widths of the vector, and for four times the training."""
    splits = english_french.splits()
    # States of 512 numbers are wider than every vector but the last, so that only the vector can be too narrow.
    # They need a smaller learning rate than the lesson's 128.
    widths = [({"hidden_size": 512, "context_size": c}, STEPS, 3e-3) for c in (8, 32, 128, 512)]
    times = [({"hidden_size": 128, "context_size": 128}, n * STEPS, LEARNING_RATE) for n in (1, 4)]
    rows = []
    for sizes, steps, learning_rate in widths + times:
        make_model = functools.partial(RNNTranslator, **sizes)
        run = functools.partial(train_translator, make_model, splits.train, steps=steps, learning_rate=learning_rate)
        settings = {**sizes, "steps": steps, "learning_rate": learning_rate}
        rows.append({**settings, **translator_row(run, splits.test)[1]})
        print(rows[-1], flush=True)
    return rows


def translator_row(run: Callable[[], Any], test: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Call `run`, which trains a translator: the translator, and its CPU seconds, last losses and BLEU by length."""
    began = time.process_time()  # with one thread, what other programs do counts less than on the clock
    trained = run()
    seconds = round(time.process_time() - began, 1)
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    translations = translate(trained.model, sources, trained.english, trained.french)
    bleu = metrics.bleu_by_length(translations, references, list(map(len, sources)), english_french.LENGTH_BINS)
    loss = round(sum(trained.losses[-50:]) / 50, 3)
    return trained, {"cpu_seconds": seconds, "loss": loss, "bleu": [round(b, 1) for b in bleu]}
