"""Lesson 01's measurement, and what it shares with lesson 02's: how well a trained translator does."""

import functools
import time
from collections.abc import Callable
from typing import Any

from course_utils import metrics
from course_utils.corpora import english_french
from course_utils.lessons.rnn_translator import LEARNING_RATE, STEPS, RNNTranslator, train_translator, translate


def bottleneck() -> list[dict[str, Any]]:
    """Lesson 01: BLEU by length for four widths of the vector and two training times, its own model with 3 seeds."""
    splits = english_french.splits()
    own = [(128, 128, times * STEPS, LEARNING_RATE, seed) for times in (1, 4) for seed in range(3)]
    # States of 512 numbers are wider than every vector but the last, so that only the vector can be too narrow.
    # They need a smaller learning rate than the lesson's 128, and minutes on one core, so they get one seed.
    wide = [(512, size, STEPS, 3e-3, 0) for size in (8, 32, 128, 512)]
    wide += [(512, size, 4 * STEPS, 3e-3, 0) for size in (128, 512)]
    rows = []
    for hidden_size, context_size, steps, learning_rate, seed in own + wide:
        make_model = functools.partial(RNNTranslator, hidden_size=hidden_size, context_size=context_size)
        settings = {"steps": steps, "learning_rate": learning_rate, "seed": seed}
        run = functools.partial(train_translator, make_model, splits.train, **settings)
        sizes = {"hidden_size": hidden_size, "context_size": context_size}
        rows.append({**sizes, **settings, **translator_row(run, splits.test)[1]})
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
