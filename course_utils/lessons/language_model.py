"""Lesson 09: a language model: tokens, blocks, and a probability for each next token.

Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909) for byte-pair encoding, Radford
et al. 2019 (GPT-2) for its bytes and for the model, Press and Wolf 2017
(https://arxiv.org/abs/1608.05859) for tied weights, Holtzman et al. 2020
(https://arxiv.org/abs/1904.09751) for top-p, Olsson et al. 2022
(https://arxiv.org/abs/2209.11895) for the head that copies.

Layout: ids are (..., time), logits (..., time, ids).
"""

import copy
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils import training
from course_utils.cache import code_key, remembered
from course_utils.lessons import multi_head, transformer_block
from course_utils.lessons.masking import masked_attention
from course_utils.lessons.multi_head import MultiHeadAttention, attend, joint_mask
from course_utils.lessons.self_attention import LearnedPositions, apply_rotary
from course_utils.lessons.transformer_block import (
    MLP,
    LayerNorm,
    TransformerBlock,
    pre_norm_block,
)
from course_utils.training import one_thread, train

# ------------------------------------------------------------------ tokens

N_BYTES = 256
Pair = tuple[int, int]

PIECE = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)"  # the end of don't, we'll, it's
    r"| ?[^\W\d_]+"  # letters, with the space before them
    r"| ?\d+"  # digits
    r"| ?(?:[^\s\w]|_)+"  # other signs
    r"|\s+(?!\S)|\s+"  # spaces; the last one before a word goes to the word
)


def split_pieces(text: str) -> list[str]:
    """Words, numbers, signs and spaces. Joined again they are the text."""
    return PIECE.findall(text)


def merge_pair(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """The ids with `new` wherever the two of `pair` stand side by side.

    From left to right: in (a, a, a) it is the first two that become one.
    """
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def encode_bpe(text: str, merges: dict[tuple[int, int], int]) -> list[int]:
    """The ids of the tokens of `text`, by byte-pair encoding.

    At first the ids are the bytes of the text in UTF-8. `merges` says which two ids
    side by side become which new one, in the order in which the merges were learned:
    256 for the first, 257 for the next, and so on. Of the pairs that stand somewhere
    in the ids, the one that was learned first is merged, at all its places, from left
    to right. Then again, until no pair is left that can be merged. An empty text has no
    tokens.
    """
    ids = list(text.encode("utf-8"))
    while True:
        known = [pair for pair in pairwise(ids) if pair in merges]
        if not known:
            return ids
        first = min(known, key=merges.__getitem__)
        ids = merge_pair(ids, first, merges[first])


def learn_merges(texts: Sequence[str], n_merges: int) -> dict[Pair, int]:
    """The pairs to merge: again and again the one that is most frequent at that time.

    Pairs are counted inside the pieces of `split_pieces`. Of equally frequent pairs,
    the one with the smaller first id is taken; if these are equal, the one with the
    smaller second id. There are fewer merges when no pair stands twice any more.
    """
    pieces = Counter(piece for text in texts for piece in split_pieces(text))
    ids = {piece: list(piece.encode()) for piece in pieces}
    counts: Counter[Pair] = Counter()
    pieces_with = defaultdict(set)

    def count(piece: str, sign: int) -> None:
        for pair in pairwise(ids[piece]):
            counts[pair] += sign * pieces[piece]
            pieces_with[pair].add(piece)

    def rank(pair: Pair) -> tuple[int, int, int]:
        return counts[pair], -pair[0], -pair[1]

    for piece in pieces:
        count(piece, +1)
    merges: dict[Pair, int] = {}
    for new in range(N_BYTES, N_BYTES + n_merges):
        best = max(counts, key=rank, default=None)
        if best is None or counts[best] < 2:
            break
        merges[best] = new
        for piece in pieces_with.pop(best):  # only these change
            count(piece, -1)
            ids[piece] = merge_pair(ids[piece], best, new)
            count(piece, +1)
    return merges


class Tokenizer:
    """From text to ids and back. `end` is the id that stands after each text."""

    def __init__(self, merges: dict[Pair, int]) -> None:
        self.merges = merges
        self.tokens = [bytes([i]) for i in range(N_BYTES)]
        for first, second in merges:
            self.tokens.append(self.tokens[first] + self.tokens[second])
        self.end = len(self.tokens)
        self.known: dict[str, list[int]] = {}  # pieces that were encoded before

    def __len__(self) -> int:
        return len(self.tokens) + 1

    def encode(self, text: str) -> list[int]:
        ids = []
        for piece in split_pieces(text):
            if piece not in self.known:
                self.known[piece] = encode_bpe(piece, self.merges)
            ids += self.known[piece]
        return ids

    def encode_all(self, texts: Sequence[str]) -> Int[Tensor, " time"]:
        """All texts in one row, with the end token after each of them."""
        return torch.tensor([i for t in texts for i in (*self.encode(t), self.end)])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids. Bytes that are no whole character become `�`."""
        data = b"".join(self.tokens[i] for i in ids if i != self.end)
        return data.decode("utf-8", errors="replace")


# ------------------------------------------------------------------ the model


def embed_tokens(
    tokens: Int[Tensor, "..."], table: Float[Tensor, "ids d_model"]
) -> Float[Tensor, "... d_model"]:
    """The vector of every token: row i of `table` for the id i.

    The same numbers as the product of one-hot vectors with the table. Any number of
    leading dimensions, including none; ids are 0 to the number of rows minus 1. The
    dtype is that of the table.
    """
    return table[tokens]


def attend_rotary(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    attend: Callable = attend,
) -> Float[Tensor, "... queries d_v"]:
    """`attend` with queries and keys that are turned by their positions (lesson 04).

    The queries have the last of the keys' positions, as in a causal mask.
    """
    n_queries, n_keys = queries.shape[-2], keys.shape[-2]
    positions = torch.arange(n_keys, device=keys.device)
    queries = apply_rotary(queries, positions[n_keys - n_queries :])
    keys = apply_rotary(keys, positions)
    return attend(queries, keys, values, mask, is_causal=is_causal)


def gpt2_block(d_model: int, n_heads: int, attend: Callable) -> TransformerBlock:
    """Lesson 08's block as GPT-2 has it: pre-norm, and an MLP with GELU."""
    gelu = partial(F.gelu, approximate="tanh")
    parts = {"order": pre_norm_block, "attend": attend}
    mlp = partial(MLP, activation=gelu)
    return TransformerBlock(d_model, n_heads, 4 * d_model, **parts, mlp=mlp)


class LanguageModel(nn.Module):
    """Predicts the token after each token, and reads at most `n_context` of them.

    `attend` is what happens in each head; by default the positions come in there.
    """

    def __init__(
        self,
        n_ids: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        n_context: int,
        attend: Callable = attend_rotary,
    ) -> None:
        super().__init__()
        self.n_context = n_context
        self.table = nn.Parameter(torch.empty(n_ids, d_model))
        self.blocks = nn.ModuleList(
            gpt2_block(d_model, n_heads, attend) for _ in range(n_layers)
        )
        self.norm = LayerNorm(d_model)
        draw_weights(self, n_layers)

    def embed(
        self, tokens: Int[Tensor, "... time"]
    ) -> Float[Tensor, "... time d_model"]:
        return embed_tokens(tokens, self.table)

    def forward(self, tokens: Int[Tensor, "... time"]) -> Float[Tensor, "... time ids"]:
        """The logits of the token after each token."""
        if tokens.shape[-1] > self.n_context:
            raise ValueError(
                f"{tokens.shape[-1]} tokens, but the model reads at most "
                f"{self.n_context}"
            )
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.norm(x) @ self.table.T


@torch.no_grad()
def draw_weights(model: nn.Module, n_layers: int) -> None:
    """Small random numbers as in GPT-2, and biases of zero.

    The last matrix of each part of a block is smaller still: 2 · n_layers results are
    added on the way through the model.
    """
    for name, weights in model.named_parameters():
        if weights.ndim == 2:
            last = name.endswith(("attention.output.weight", "mlp.down.weight"))
            nn.init.normal_(weights, std=0.02 / ((2 * n_layers) ** 0.5 if last else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(weights)


class GPT2(LanguageModel):
    """The model of Radford et al. 2019: learned positions, added to the tokens."""

    def __init__(
        self,
        n_ids: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        n_context: int,
        attend: Callable = attend,
    ) -> None:
        super().__init__(n_ids, d_model, n_layers, n_heads, n_context, attend)
        self.positions = LearnedPositions(n_context, d_model)
        nn.init.normal_(self.positions.table.weight, std=0.02)

    def embed(
        self, tokens: Int[Tensor, "... time"]
    ) -> Float[Tensor, "... time d_model"]:
        return super().embed(tokens) + self.positions(tokens.shape[-1])


def next_token_loss(
    logits: Float[Tensor, "... time ids"], tokens: Int[Tensor, "... time"]
) -> Float[Tensor, ""]:
    """Nats per token: the mean of -ln p over all tokens that the model has predicted.

    `logits[..., t, :]` are the model's logits after it has read `tokens` up to
    position t, so they predict the token at t + 1. The first token is predicted by
    nobody, and the last logits predict nothing that is known. There are at least two
    tokens; any number of leading dimensions, including none.
    """
    predicted, following = logits[..., :-1, :], tokens[..., 1:]
    return F.cross_entropy(predicted.flatten(0, -2), following.flatten())


def windows(
    ids: Int[Tensor, " length"], time: int, batch_size: int, generator: torch.Generator
) -> Iterator[Int[Tensor, "batch time"]]:
    """Yields pieces of equal length from anywhere in a long row of ids, without end."""
    offsets = torch.arange(time, device=ids.device)
    while True:
        first = torch.randint(len(ids) - time + 1, (batch_size, 1), generator=generator)
        yield ids[first.to(ids.device) + offsets]


def window_loss(
    model: nn.Module, tokens: Int[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """Nats per token of pieces of text, as `train` wants it."""
    return next_token_loss(model(tokens), tokens)


@torch.no_grad()
def total_bits(model: LanguageModel, ids: Int[Tensor, " length"], stride: int) -> float:
    """The bits that the model needs for a long text, but for its first token.

    It reads the text in pieces of its context. Each begins `stride` tokens after the
    one before (fewer than the context has), and only what is new in it counts.
    """
    bits, done = 0.0, 1
    for first in range(0, len(ids), stride):
        piece = ids[first : first + model.n_context]
        new = len(piece) - (done - first)
        if new > 0:
            losses = F.cross_entropy(
                model(piece[None])[0, :-1][-new:], piece[-new:], reduction="sum"
            )
            bits += losses.item() / math.log(2)
            done += new
    return bits


# ------------------------------------------------------------------ the lesson's model

# About 25 s on one core
D_MODEL, N_LAYERS, N_HEADS, N_CONTEXT = 128, 2, 4, 64
STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP = 380, 16, 5e-3, 0.1
N_MERGES = 512


@one_thread()
def train_language_model(
    model: nn.Module,
    ids: Int[Tensor, " length"],
    steps: int = STEPS,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
) -> list[float]:
    """Trains `model` in place on pieces of the ids, and returns the loss of each step.

    One thread is used, so the model does not depend on their number.
    """
    generator = torch.Generator().manual_seed(seed)
    pieces = windows(ids, N_CONTEXT, BATCH_SIZE, generator)
    settings = {"steps": steps, "learning_rate": learning_rate, "warmup": WARMUP}
    return train(model, pieces, window_loss, **settings)


class Trained(NamedTuple):
    """A language model, its tokenizer, and the loss of each training step."""

    model: LanguageModel
    tokenizer: Tokenizer
    losses: list[float]


def manual_model(texts: Sequence[str]) -> Trained:
    """This lesson's model, trained as in the lesson: 25 s, later from the cache."""
    tokenizer = Tokenizer(learn_merges(texts, N_MERGES))
    torch.manual_seed(0)
    model = LanguageModel(len(tokenizer), D_MODEL, N_LAYERS, N_HEADS, N_CONTEXT)

    def run() -> dict[str, Any]:
        losses = train_language_model(model, tokenizer.encode_all(texts))
        return {"weights": model.state_dict(), "losses": losses}

    code = sys.modules[__name__], transformer_block, multi_head, training
    key = code_key(*code, torch.__version__, *texts)
    kept = remembered("language-model", key, run)
    model.load_state_dict(kept["weights"])
    return Trained(model, tokenizer, kept["losses"])


# ------------------------------------------------------------------ counting instead


def ngram_bits(
    learned: Sequence[int], text: Sequence[int], longest: int, n_ids: int
) -> list[float]:
    """The bits of a text, by the counts of 0, 1, 2, ... `longest` ids in a row.

    What follows the last n - 1 ids is counted in `learned`, and mixed with the answer
    of one id less (Witten and Bell 1991): the more different ids have followed, the
    less is known of what comes next. With no id at all, all `n_ids` are equally likely.
    """
    probability = [1 / n_ids] * len(text)
    bits = [math.log2(n_ids) * len(text)]
    for n in range(1, longest + 1):
        grams = Counter(zip(*(learned[i:] for i in range(n)), strict=False))
        times, kinds = Counter[tuple](), Counter[tuple]()
        for gram, count in grams.items():
            times[gram[:-1]] += count
            kinds[gram[:-1]] += 1
        for i in range(n - 1, len(text)):
            gram = tuple(text[i - n + 1 : i + 1])
            before = gram[:-1]
            if before in times:
                mixed = grams[gram] + kinds[before] * probability[i]
                probability[i] = mixed / (times[before] + kinds[before])
        bits.append(-math.fsum(map(math.log2, probability)))
    return bits


# ------------------------------------------------------------------ writing


def sample_next(
    logits: Float[Tensor, "... ids"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "..."]:
    """Draws the next token of every row of logits.

    The logits are divided by `temperature`; at 0 the most probable token is taken, and
    nothing is drawn. With `top_k`, only the k most probable tokens stay; there may be
    fewer than k. With `top_p` (above 0, at most 1), only the most probable tokens stay:
    as few as possible, so that their probabilities sum to at least p. So the most
    probable token always stays. Of both, top_k comes first, and top_p looks at the
    probabilities of what is left. A token is drawn with the probabilities that those
    that stay have among each other.

    The draws come from `generator`, or from PyTorch's own if it is None; it is on the
    device of the logits. The ids are int64. Any number of leading dimensions, including
    none; every row is drawn on its own.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    probabilities = torch.softmax(scores[..., :top_k], dim=-1)
    if top_p is not None:
        # The sum over all that are more probable
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities * (before < top_p)
    rows = probabilities.reshape(-1, probabilities.shape[-1])
    drawn = torch.multinomial(rows, 1, generator=generator)
    return ids.gather(-1, drawn.reshape(*logits.shape[:-1], 1)).squeeze(-1)


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Int[Tensor, " time"],
    n: int,
    end: int | None = None,
    **how: Any,
) -> Int[Tensor, " longer_time"]:
    """Writes up to `n` more tokens, and stops after the token `end`.

    The model is given the last `n_context` tokens, so what was before is forgotten.
    `how` goes to `sample_next`.
    """
    for _ in range(n):
        logits = model(tokens[-model.n_context :])[-1]
        following = sample_next(logits, **how)
        tokens = torch.cat([tokens, following.unsqueeze(0)])
        if following == end:
            break
    return tokens


# ------------------------------------------------------------------ a head that copies

N_LETTERS, SHORTEST, LONGEST, COPY_TIME = 24, 5, 16, 33


class Repeats(NamedTuple):
    """Rows that repeat a random piece to the end. `periods` are the pieces' lengths."""

    tokens: Int[Tensor, "batch time"]
    periods: Int[Tensor, " batch"]

    def known(self) -> Bool[Tensor, "batch targets"]:
        """True where the next token can be known: it has stood in its place before."""
        following = torch.arange(1, self.tokens.shape[1], device=self.tokens.device)
        return following >= self.periods.unsqueeze(1)


def repeats(
    batch_size: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
    lengths: tuple[int, int] = (SHORTEST, LONGEST),
    time: int = COPY_TIME,
) -> Iterator[Repeats]:
    """Yields new batches without end. `generator` is a CPU generator.

    Each row has a piece of another length, from the first to the second of `lengths`.
    """
    shortest, longest = lengths
    while True:
        periods = torch.randint(
            shortest, longest + 1, (batch_size,), generator=generator
        )
        pieces = torch.randint(N_LETTERS, (batch_size, longest), generator=generator)
        places = torch.arange(time) % periods.unsqueeze(1)
        yield Repeats(pieces.gather(1, places).to(device), periods.to(device))


class CopyModel(nn.Module):
    """Layers of attention with one head each, and nothing else between them."""

    def __init__(self, n_layers: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(N_LETTERS, d_model)
        self.layers = nn.ModuleList(
            MultiHeadAttention(d_model, 1, attend_rotary) for _ in range(n_layers)
        )
        self.norms = nn.ModuleList(LayerNorm(d_model) for _ in range(n_layers))
        self.output = nn.Sequential(LayerNorm(d_model), nn.Linear(d_model, N_LETTERS))

    def embed(
        self, tokens: Int[Tensor, "... time"]
    ) -> Float[Tensor, "... time d_model"]:
        return self.table(tokens)

    def forward(
        self, tokens: Int[Tensor, "... time"]
    ) -> Float[Tensor, "... time letters"]:
        x = self.embed(tokens)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x), is_causal=True)
        return self.output(x)


def copy_loss(model: nn.Module, batch: Repeats) -> Float[Tensor, ""]:
    """Nats per letter, over all letters."""
    return next_token_loss(model(batch.tokens), batch.tokens)


@torch.no_grad()
def copy_accuracy(model: nn.Module, batch: Repeats) -> float:
    """How often the most probable letter is right, where it can be known."""
    right = model(batch.tokens)[:, :-1].argmax(dim=-1) == batch.tokens[:, 1:]
    return right[batch.known()].float().mean().item()


# About 2 s on one core
COPY_STEPS, COPY_RATE = 200, 1e-2


@one_thread()
def train_copying(
    model: nn.Module, seed: int, steps: int = COPY_STEPS, every: int = 10
) -> list[float]:
    """Trains `model` in place; returns its accuracy before every tenth step.

    Each batch is new to the model, so its accuracy is measured on that batch before it
    learns from it.
    """
    accuracies = []
    device = next(model.parameters()).device

    def batches() -> Iterator[Repeats]:
        generator = torch.Generator().manual_seed(seed)
        for step, batch in enumerate(repeats(32, generator, device)):
            if step % every == 0:
                accuracies.append(copy_accuracy(model, batch))
            yield batch

    settings = {"steps": steps, "learning_rate": COPY_RATE, "warmup": 0.1}
    train(model, batches(), copy_loss, **settings)
    return accuracies


@torch.no_grad()
def attention_maps(
    model: nn.Module, tokens: Int[Tensor, "... time"]
) -> list[Float[Tensor, "... heads time time"]]:
    """The weights of every layer of a model whose attention is `attend_rotary`."""
    maps = []

    def keep(
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        mask = joint_mask(queries, keys, mask, is_causal)
        outputs, weights = masked_attention(queries, keys, values, mask)
        maps.append(weights)
        return outputs

    watched = copy.deepcopy(model)
    for module in watched.modules():
        if isinstance(module, MultiHeadAttention):
            module.attend = partial(attend_rotary, attend=keep)
    watched(tokens)
    return maps


# ------------------------------------------------------------------ published weights


def from_gpt2(weights: Mapping[str, Tensor], n_heads: int) -> GPT2:
    """Our model with the weights of a GPT-2, under the names that Hugging Face gives.

    Their layers keep each matrix the other way round than `nn.Linear`, and queries,
    keys and values side by side in one. Raises KeyError or RuntimeError when names or
    shapes are not those of a GPT-2.
    """
    weights = {name.removeprefix("transformer."): w for name, w in weights.items()}
    ours = {
        "table": weights["wte.weight"],
        "positions.table.weight": weights["wpe.weight"],
        "norm.gain": weights["ln_f.weight"],
        "norm.bias": weights["ln_f.bias"],
    }
    n_layers = sum(name.endswith("ln_1.weight") for name in weights)
    for i in range(n_layers):
        theirs, block = f"h.{i}.", f"blocks.{i}."
        for n in (1, 2):
            ours[f"{block}norm_{n}.gain"] = weights[f"{theirs}ln_{n}.weight"]
            ours[f"{block}norm_{n}.bias"] = weights[f"{theirs}ln_{n}.bias"]
        for part in ("weight", "bias"):
            q_k_v = weights[f"{theirs}attn.c_attn.{part}"].chunk(3, dim=-1)
            for name, matrix in zip(("queries", "keys", "values"), q_k_v, strict=True):
                ours[f"{block}attention.to_{name}.{part}"] = matrix.t()
            for name, their_name in (
                ("attention.output", "attn.c_proj"),
                ("mlp.up", "mlp.c_fc"),
                ("mlp.down", "mlp.c_proj"),
            ):
                matrix = weights[f"{theirs}{their_name}.{part}"]
                ours[f"{block}{name}.{part}"] = matrix.t()
    (n_ids, d_model), n_context = ours["table"].shape, len(weights["wpe.weight"])
    model = GPT2(n_ids, d_model, n_layers, n_heads, n_context)
    model.load_state_dict(ours)
    return model
