"""Lesson 09's measurements."""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.benchmarks.timing import ratios
from course_utils.corpora import english
from course_utils.lessons import language_model as lesson
from course_utils.lessons.transformer_block import TransformerBlock, copy_block_weights

Part = TypeVar("Part", bound=nn.Module)

# Width and heads. The lesson's model is the one of 128; narrower models take larger steps.
_FAMILY = [(16, 1), (32, 2), (64, 2), (128, 4), (256, 8)]
_LONGER = 4 * lesson.STEPS


def scaling() -> list[dict[str, Any]]:
    """Lesson 09: bits per byte of language models of five sizes, and after more steps, three seeds. Half an hour."""
    settings = [(width, heads, lesson.STEPS, seed) for width, heads in _FAMILY for seed in range(3)]
    settings += [(lesson.D_MODEL, lesson.N_HEADS, _LONGER, seed) for seed in range(3)]
    return [trained_model(*setting) for setting in settings]


def trained_model(width: int, heads: int, steps: int, seed: int) -> dict[str, Any]:
    """Train one model on the manual and measure it on what is held out."""
    texts = english.splits()
    tokenizer = lesson.Tokenizer(lesson.learn_merges(texts.train, lesson.N_MERGES))
    torch.manual_seed(seed)
    model = lesson.LanguageModel(len(tokenizer), width, lesson.N_LAYERS, heads, lesson.N_CONTEXT)
    ids, rate = tokenizer.encode_all(texts.train), lesson.LEARNING_RATE * (lesson.D_MODEL / width) ** 0.5
    began = time.process_time()
    lesson.train_language_model(model, ids, steps, rate, seed)
    size = sum(p.numel() for p in model.parameters())
    row: dict[str, Any] = {"d_model": width, "steps": steps, "seed": seed, "parameters": size}
    row["cpu_seconds"] = round(time.process_time() - began, 1)
    n_bytes = sum(len(text.encode()) for text in texts.held_out)
    bits = lesson.total_bits(model, tokenizer.encode_all(texts.held_out), lesson.N_CONTEXT // 2)
    row["bits_per_byte"] = round(bits / n_bytes, 3)
    print(row, flush=True)
    return row


def copying() -> list[dict[str, Any]]:
    """Lesson 09: how well models of one and two layers copy, with more steps and with an MLP too; three seeds."""
    makers: list[tuple[str, Callable[[], nn.Module], int]] = [
        ("two layers", functools.partial(lesson.CopyModel, 2, 48), lesson.COPY_STEPS),
        ("one layer", functools.partial(lesson.CopyModel, 1, 68), lesson.COPY_STEPS),
        ("one layer", functools.partial(lesson.CopyModel, 1, 68), 5 * lesson.COPY_STEPS),
        ("one layer and an MLP", OneBlock, lesson.COPY_STEPS),
        ("one layer and an MLP", OneBlock, 5 * lesson.COPY_STEPS),
    ]
    return [copying_row(*setting, seed) for setting in makers for seed in range(3)]


class OneBlock(nn.Module):
    """One block of lesson 08 with about as many numbers as the two layers: attention with one head, and an MLP."""

    def __init__(self, d_model: int = 40) -> None:
        super().__init__()
        self.table = nn.Embedding(lesson.N_LETTERS, d_model)
        self.block = TransformerBlock(d_model, 1, 4 * d_model, order=lesson.pre_norm_block, attend=lesson.attend_rotary)
        self.output = nn.Sequential(lesson.LayerNorm(d_model), nn.Linear(d_model, lesson.N_LETTERS))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.block(self.table(tokens), is_causal=True))


def copying_row(name: str, make: Callable[[], nn.Module], steps: int, seed: int) -> dict[str, Any]:
    """Train one model to continue repeated pieces; measure it on new ones, and on pieces longer than it has seen."""
    torch.manual_seed(seed)
    model = make()
    lesson.train_copying(model, seed, steps)
    size = sum(p.numel() for p in model.parameters())
    row: dict[str, Any] = {"model": name, "steps": steps, "seed": seed, "parameters": size}
    for title, lengths, n_letters in (("right", (5, 16), lesson.COPY_TIME), ("right_longer", (18, 20), 44)):
        tests = lesson.repeats(1000, torch.Generator().manual_seed(10**6), lengths=lengths, time=n_letters)
        row[title] = round(lesson.copy_accuracy(model, next(tests)), 3)
    print(row, flush=True)
    return row


# ------------------------------------------------------------------ how fast

_SIZES = ((16, 64, 128), (8, 64, 512), (4, 256, 256))  # batch, tokens, d_model


def layers() -> list[dict[str, Any]]:
    """Lesson 09: the time of a language model's training step, as a part of PyTorch's own layers'. A minute."""
    rows = []
    for batch, n_tokens, d_model in _SIZES:
        row = {"batch": batch, "tokens": n_tokens, "d_model": d_model, "heads": 4, "blocks": 2}
        rows.append(row | ratios(_models(batch, n_tokens, d_model), to="pytorch"))
        print(rows[-1], flush=True)
    return rows


class PyTorchModel(nn.Module):
    """The model of `GPT2`, made of PyTorch's layers."""

    def __init__(self, n_ids: int, d_model: int, n_layers: int, n_heads: int, n_context: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_ids, d_model)
        self.positions = nn.Embedding(n_context, d_model)
        gelu = functools.partial(F.gelu, approximate="tanh")
        sizes = {"dim_feedforward": 4 * d_model, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, n_heads, activation=gelu, **sizes) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, n_ids, bias=False)
        self.output.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        n_tokens = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n_tokens, device=tokens.device)
        x = self.table(tokens) + self.positions.weight[:n_tokens]
        for block in self.blocks:
            x = block(x, mask, is_causal=True)
        return self.output(self.norm(x))


def copied(theirs: PyTorchModel, n_heads: int) -> lesson.GPT2:
    """Our model with the same weights."""
    (n_ids, d_model), n_context = theirs.table.weight.shape, len(theirs.positions.weight)
    ours = lesson.GPT2(n_ids, d_model, len(theirs.blocks), n_heads, n_context)
    pairs = zip(_all(theirs, nn.TransformerEncoderLayer), _all(ours, TransformerBlock), strict=True)
    with torch.no_grad():
        ours.table.copy_(theirs.table.weight)
        ours.positions.table.weight.copy_(theirs.positions.weight)
        for their_block, our_block in pairs:
            copy_block_weights(their_block, our_block)
        ours.norm.gain.copy_(theirs.norm.weight)
        ours.norm.bias.copy_(theirs.norm.bias)
    return ours


def _all(model: nn.Module, kind: type[Part]) -> list[Part]:
    return [module for module in model.modules() if isinstance(module, kind)]


def _models(batch: int, n_tokens: int, d_model: int) -> dict[str, Callable[[], Tensor]]:
    """A training step of both, with the same weights, and that of the lesson's model, whose positions are rotary."""
    theirs = PyTorchModel(769, d_model, 2, 4, n_tokens)
    rotary = lesson.LanguageModel(769, d_model, 2, 4, n_tokens)
    tokens = torch.randint(769, (batch, n_tokens))
    models = {"pytorch": theirs, "ours": copied(theirs, 4), "rotary": rotary}
    return {name: functools.partial(step, model, tokens) for name, model in models.items()}


def step(model: nn.Module, tokens: Tensor) -> Tensor:
    """The loss, with no gradients of the step before."""
    model.zero_grad()
    return lesson.window_loss(model, tokens)
