"""Lesson 10's measurements, besides its rows in `attention_translator.translator`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_utils.corpora import english_french
from course_utils.corpora.pairs import Pair
from course_utils.lessons.attention_translator import AttentionTranslator, attention_maps
from course_utils.lessons.rnn_translator import train_translator
from course_utils.lessons.transformer_translator import SETTINGS, TransformerTranslator, wrong_by_position

# As in lesson 02: the links are (English position)-(French position), counted from 0.
SENTENCES = [
    Pair.from_text("the red italian car .", "la voiture italienne rouge .", "0-0 3-1 2-2 1-3 4-4"),
    Pair.from_text("the king does not sleep .", "le roi ne dort pas .", "0-0 1-1 3-2 4-3 3-4 5-5", "2-2"),
]


def cross_maps() -> list[dict[str, Any]]:
    """Lesson 10: where lesson 02's translator looks in two of lesson 02's sentences."""
    trained = train_translator(AttentionTranslator, english_french.splits().train)
    maps = attention_maps(trained, SENTENCES)
    return [
        {"source": " ".join(pair.source), "weights": [[round(w, 3) for w in row] for row in weights.tolist()]}
        for pair, weights in zip(SENTENCES, maps, strict=True)
    ]


class MovedPositions(TransformerTranslator):
    """In training, the positions of a batch begin anywhere from 0 to 40, so that late ones are not rare."""

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        first = int(torch.randint(41, ())) if self.training else 0
        sides, positions = (self.source_words, self.target_words), self.source_words.positions
        for side in sides:
            side.positions = positions[first:]
        logits = super().forward(source, lengths, target)
        for side in sides:
            side.positions = positions
        return logits


LONGER = {**SETTINGS, "steps": 1500}
LATE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "RNN with attention, 1,000 steps": (AttentionTranslator, {}),
    "Transformer, 1,500 steps": (TransformerTranslator, LONGER),
    "the same, moved positions": (MovedPositions, LONGER),
}


def late_words() -> list[dict[str, Any]]:
    """Lesson 10: wrong next words by position, in test sentences of 31 to 45 words, for three translators."""
    return [late_row(name) for name in LATE]


def late_row(name: str) -> dict[str, Any]:
    splits, (make_model, settings) = english_french.splits(), LATE[name]
    low, _ = english_french.LENGTH_BINS[-1]
    trained = train_translator(make_model, splits.train, **settings)
    trained.model.eval()
    wrong = wrong_by_position(trained, [pair for pair in splits.test if len(pair.source) >= low])
    row = {"model": name, "wrong": [round(share, 4) for share in wrong]}
    print(row, flush=True)
    return row
