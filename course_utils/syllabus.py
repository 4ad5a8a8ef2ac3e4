"""The one list of lessons. Adding a lesson is a line here and four files that carry its name.

Standard library only: `python -m course_utils` reads this list before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class LessonInfo:
    """A row of the course's map. `minutes` is for a learner who does the exercises, not for a machine.

    `ready` tells whether the lesson is part of this version of the course.
    """

    number: int
    name: str
    title: str
    sentence: str
    minutes: int
    needs: str
    ready: bool = False

    @property
    def stem(self) -> str:
        return f"{self.number:02d}_{self.name}"

    @property
    def notebook(self) -> Path:
        return ROOT / "notebooks" / f"{self.stem}.ipynb"


_ROWS: list[tuple[str, str, str, int, str, bool]] = [
    ("start_here", "Start here", "How a lesson works: write a function, check it, read what comes back.", 20, "Python, and what a matrix is", True),
    ("rnn_translator", "A translator that forgets", "An RNN translates English to French through one vector, and gets worse as sentences grow.", 120, "lesson 00, and what a neural network layer is", True),
    ("attention_translator", "A translator that looks back", "The same translator, with attention: far better on long sentences, and a map shows where it looked.", 130, "lesson 01", True),
    ("attention_layer", "The attention layer", "Queries, keys and values, apart from any translator, and why scores are divided by √d_k.", 120, "lesson 02", True),
    ("self_attention", "Self-attention and positions", "A set of vectors attends to itself; without positions it cannot know any order.", 140, "lesson 03", True),
    ("masking", "Masking", "Padding and the future are hidden by minus infinity, and a model that cheats is caught.", 130, "lesson 04", True),
    ("multi_head", "Many heads", "Several small attentions side by side see several relations at once.", 120, "lesson 05", True),
    ("sequence_models", "RNN, CNN, attention", "Three ways to move information along a sequence, measured against each other.", 120, "lesson 06", True),
    ("transformer_block", "The Transformer block", "Attention, an MLP, residual connections and a norm: the block that everything repeats.", 110, "lesson 06", True),
    ("language_model", "A language model", "Blocks, an embedding and a projection write English.", 140, "lesson 08", True),
    ("transformer_translator", "A Transformer that translates", "Encoder and decoder from lesson 08's parts, beside lesson 02's translator.", 130, "lessons 02 and 08", True),
    ("vision_transformer", "A Vision Transformer", "An image cut into patches is a sequence.", 130, "lesson 08", True),
    ("pre_norm", "Pre-LN and its relatives", "Where the norm stands decides how deep a stack can be trained.", 130, "lesson 09", True),
    ("fast_decoding", "KV cache and linear attention", "The same text with far less work, and an attention that is a running sum.", 130, "lesson 09", True),
    ("flash_attention", "Flash attention", "Exact attention, block by block, that never stores the N × N matrix.", 140, "lessons 06 and 09", True),
    ("flash_triton", "Flash attention in Triton", "The same algorithm as a GPU kernel, written by hand.", 150, "lesson 14", True),
]  # fmt: skip

LESSONS = [LessonInfo(number, *row) for number, row in enumerate(_ROWS)]


def find(name: str) -> LessonInfo:
    """The lesson called `name` ("multi_head"), "06_multi_head", "06" or "6"; ValueError names the choices."""
    for lesson in LESSONS:
        if name in (lesson.name, lesson.stem, f"{lesson.number:02d}", str(lesson.number)):
            return lesson
    raise ValueError(f"no lesson is called {name!r}; the lessons are: {', '.join(x.stem for x in LESSONS)}")
