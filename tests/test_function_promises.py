"""What every function of numbers in the lessons promises, one row of `ROWS` for each.

With leading dimensions it is the same function of each index on its own, and equal to an oracle, which is PyTorch's
own function wherever there is one. Every dtype stays what it is and is as exact as the oracle. Gradients are right.
Inputs stay as they were, and results are on their device. A lesson with a new function adds one row.
"""

import inspect
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_utils.lessons.attention_layer import (
    cross_attention,
    entropy,
    scaled_dot_product_attention,
    score_variance,
    similarity_scores,
    softmax_gradient,
)
from course_utils.lessons.attention_translator import (
    additive_scores,
    alignment_scores,
    attention_weights,
    context_vector,
    decoder_step,
)
from course_utils.lessons.fast_decoding import (
    append_to_cache,
    decode_with_cache,
    linear_attention,
    linear_attention_step,
)
from course_utils.lessons.flash_attention import merge_blocks, online_softmax, tiled_attention
from course_utils.lessons.language_model import attend_rotary, embed_tokens, next_token_loss
from course_utils.lessons.masking import causal_attention, masked_attention, masked_softmax
from course_utils.lessons.multi_head import attend, attend_in_steps, merge_heads, multi_head_attention, split_heads
from course_utils.lessons.pre_norm import rms_norm, route_top_k, swiglu
from course_utils.lessons.rnn_translator import (
    gru_step,
    last_valid_state,
    masked_cross_entropy,
    reverse_valid,
    rnn_step,
)
from course_utils.lessons.self_attention import (
    apply_rotary,
    apply_rotary_half_split,
    permute_tokens,
    rotary_self_attention,
    self_attention,
)
from course_utils.lessons.sequence_models import causal_conv1d
from course_utils.lessons.start_here import softmax
from course_utils.lessons.transformer_block import layer_norm, mlp, post_norm_block, pre_norm_block
from course_utils.lessons.transformer_translator import decoder_block
from course_utils.lessons.vision_transformer import attention_rollout, patchify, unpatchify, vit_logits
from tests.helpers import DTYPES, as_exact_as, dtypes, few, generator, ids, leading, masks, numbers, seeds

# ------------------------------------------------------------------ inputs


@dataclass
class Draw:
    """Random inputs: a size for every name, and tensors of such sizes. `lead` are the leading dimensions."""

    rules: dict[str, Callable[["Draw"], int]]
    lead: tuple[int, ...]
    seed: int
    dtype: torch.dtype = torch.float64
    smallest: int = 1
    largest: int = 5

    def __post_init__(self) -> None:
        self.chance, self.known, self.seeds = random.Random(self.seed), {}, itertools.count(100 * self.seed)

    def __getitem__(self, name: str) -> int:
        """The size of this name: by its rule, or at random."""
        if name not in self.known:
            rule = self.rules.get(name, lambda draw: draw.chance.randint(draw.smallest, draw.largest))
            self.known[name] = rule(self)
        return self.known[name]

    def shape(self, dimensions: str) -> list[int]:
        """Dimensions as a signature has them, such as "... time hidden"."""
        return [n for name in dimensions.split() for n in (self.lead if name == "..." else [self[name]])]

    def numbers(self, dimensions: str) -> Tensor:
        """Normal numbers. A matrix without leading dimensions is a weight, which keeps the variance of vectors."""
        shape = self.shape(dimensions)
        scale = shape[0] ** -0.5 if "..." not in dimensions and len(shape) == 2 else 1
        return (numbers(next(self.seeds), *shape) * scale).to(self.dtype)

    def ids(self, high: int, dimensions: str) -> Tensor:
        return ids(next(self.seeds), high, *self.shape(dimensions))

    def mask(self, dimensions: str) -> Tensor:
        """A random mask. The first of several queries sees nothing."""
        mask = masks(next(self.seeds), *self.shape(dimensions))
        mask[..., :1, :] &= mask.shape[-2] == 1
        return mask


def large_scores(draw: Draw) -> Tensor:
    """Also all equal, and as large as float16 allows."""
    return (draw.numbers("... n").double() * draw.chance.choice([0, 1, 100, 3e4])).clamp(-6e4, 6e4).to(draw.dtype)


def order(draw: Draw) -> Tensor:
    return torch.randperm(draw["tokens"], generator=generator(draw.seed))


def unlike_numbers(draw: Draw) -> Tensor:
    """Vectors of numbers that are far apart: half precision cannot tell how far nearly equal ones are."""
    return draw.numbers("... d_model") + 3 * torch.arange(draw["d_model"]).to(draw.dtype)


def lengths(smallest: int) -> Callable[[Draw], Tensor]:
    return lambda draw: smallest + draw.ids(draw["time"] + 1 - smallest, "...")


def mask(dimensions: str) -> Callable[[Draw], Tensor]:
    return lambda draw: draw.mask(dimensions)


def even(draw: Draw) -> int:
    return 2 * draw["pairs"]


def times_heads(name: str) -> Callable[[Draw], int]:
    return lambda draw: draw["heads"] * draw[name]


HEADS: dict[str, Callable[[Draw], int]] = {
    "heads": lambda draw: draw.chance.randint(1, 3),
    "d_model": times_heads("d_k"),
    "heads_times_d_k": times_heads("d_k"),
    "heads_times_d_v": times_heads("d_v"),
}

# Small ones: the number of pixels is a product of five sizes.
PATCHES: dict[str, Callable[[Draw], int]] = {
    **{name: lambda draw, name=name: 1 + draw[f"any_{name}"] % 5 for name in ("side", "rows", "columns", "channels")},
    "height": lambda draw: draw["side"] * draw["rows"],
    "width": lambda draw: draw["side"] * draw["columns"],
    "patches": lambda draw: draw["rows"] * draw["columns"],
    "numbers": lambda draw: draw["channels"] * draw["side"] ** 2,
}
PATCH_ARGUMENTS = {"patch_size": "side", "height": "height", "width": "width"}

# ------------------------------------------------------------------ oracles: for one index, without leading dimensions


def gru_cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    return torch.gru_cell(x[None], h[None], w_x.T, w_h.T, b_x, b_h)[0]


def rnn_cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b: Tensor) -> Tensor:
    return torch.rnn_tanh_cell(x[None], h[None], w_x.T, w_h.T, b, torch.zeros_like(b))[0]


def cross_entropy(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """PyTorch leaves out the target -100. The only oracle that gets all indices at once: it is one mean."""
    padding = torch.arange(targets.shape[-1]) >= lengths[..., None]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.masked_fill(padding, -100).flatten())


def valid_softmax(scores: Tensor, length: Tensor) -> Tensor:
    return F.pad(torch.softmax(scores[:length], dim=-1), (0, len(scores) - int(length)))


def additive(query: Tensor, states: Tensor, w_query: Tensor, w_states: Tensor, v: Tensor) -> Tensor:
    return torch.stack([torch.tanh(query @ w_query + state @ w_states) @ v for state in states])


def bahdanau(previous: Tensor, state: Tensor, states: Tensor, length: Tensor, w: Tensor, u: Tensor) -> tuple:
    valid, query = states[:length], state[None]
    context = F.scaled_dot_product_attention(query, valid, valid, scale=1.0)[0]
    new = torch.tanh(torch.cat([previous, context]) @ w + state)
    return torch.cat([new, context]) @ u, new, valid_softmax(states @ state, length)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The weights are the outputs for values that are all different."""
    to = partial(F.scaled_dot_product_attention, q, k, attn_mask=mask)
    return to(v), to(torch.eye(len(k), dtype=k.dtype))


def attention_masked_to_the_end(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return attention(q, k, v, torch.ones(len(q), len(k)).tril(len(k) - len(q)).bool())


def outputs_only(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, is_causal: bool) -> Tensor:
    causal = torch.ones(len(q), len(k)).tril(len(k) - len(q)).bool()
    return attention(q, k, v, mask & causal if is_causal else mask)[0]


def merged(a: Tensor, weight_a: Tensor, b: Tensor, weight_b: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.stack([weight_a, weight_b], dim=-1)
    shares = torch.softmax(both, dim=-1).unsqueeze(-1)
    return (torch.stack([a, b], dim=-1) @ shares).squeeze(-1), torch.logsumexp(both, dim=-1)


def rows_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    rows = torch.zeros_like(scores)
    for row, values, visible in zip(rows, scores, mask, strict=True):
        row[visible] = torch.softmax(values[visible], dim=-1)
    return rows


def products_variance(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.stack([q.dot(k) for q, k in zip(queries, keys, strict=True)]).var()


def softmax_jacobian(weights: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(partial(torch.softmax, dim=-1), weights.log())


def angles(x: Tensor, positions: Tensor) -> Tensor:
    theta = [10000 ** (-2 * i / x.shape[-1]) for i in range(x.shape[-1] // 2)]
    return torch.outer(positions.double(), torch.tensor(theta, dtype=torch.float64))


def as_complex(x: Tensor, positions: Tensor) -> Tensor:
    """Su et al. 2021, equation 12: each pair is a complex number, multiplied by exp(i t θ)."""
    z = torch.complex(x[:, 0::2].double(), x[:, 1::2].double()) * torch.exp(1j * angles(x, positions))
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


def as_gpt_neox(x: Tensor, positions: Tensor) -> Tensor:
    """The way GPT-NeoX's code writes it: two copies of the angles, and the halves swapped with a minus."""
    turned, (first, second) = angles(x, positions).repeat(1, 2), x.double().chunk(2, dim=-1)
    return (x.double() * turned.cos() + torch.cat([-second, first], dim=-1) * turned.sin()).to(x.dtype)


def rotary_attention(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> tuple[Tensor, Tensor]:
    positions = torch.arange(len(x))
    return attention(as_complex(x @ w_q, positions), as_complex(x @ w_k, positions), x @ w_v)


def rotary_outputs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    positions = torch.arange(len(k))
    return attention(as_complex(q, positions[len(k) - len(q) :]), as_complex(k, positions), v, mask)[0]


def rotary_outputs_and_cache(q: Tensor, k: Tensor, v: Tensor, old_k: Tensor, old_v: Tensor, _: Callable) -> tuple:
    positions = torch.arange(len(old_k), len(old_k) + len(k))
    all_k, all_v = torch.cat([old_k, as_complex(k, positions)]), torch.cat([old_v, v])
    return attention_masked_to_the_end(as_complex(q, positions), all_k, all_v)[0], all_k, all_v


def linear_outputs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As it is printed in the paper, equation 9 (Katharopoulos et al. 2020)."""
    q, k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    products = [k[: i + 1] @ query for i, query in enumerate(q)]
    return torch.stack([p @ v[: len(p)] / p.sum() for p in products])


def linear_step(q: Tensor, k: Tensor, v: Tensor, state: Tensor, total: Tensor) -> tuple:
    q, k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    state, total = state + torch.outer(k, v), total + k
    return q @ state / q.dot(total), state, total


def next_token_cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    """As `cross_entropy`: all indices at once. The last logits get the target that is left out."""
    following = F.pad(tokens[..., 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.flatten())


def head_after_head(
    queries: Tensor, data: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, n_heads: int, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Every head has its own columns of the matrices, and its own rows of the last one: a sum over the heads."""
    columns = zip(*(w.chunk(n_heads, dim=1) for w in (w_q, w_k, w_v)), w_o.chunk(n_heads), mask, strict=True)
    heads = [(attention(queries @ q, data @ k, data @ v, seen), o) for q, k, v, o, seen in columns]
    outputs = torch.stack([values @ o for (values, _), o in heads]).sum(dim=0)
    return outputs, torch.stack([weights for (_, weights), _ in heads])


def convolution(x: Tensor, kernel: Tensor, dilation: int) -> Tensor:
    padded = F.pad(x.T, ((len(kernel) - 1) * dilation, 0))
    return F.conv1d(padded, kernel.permute(2, 1, 0), dilation=dilation).T


def decoder_of_2017(x: Tensor, states: Tensor, mask: Tensor, w: Tensor, u: Tensor, m: Tensor) -> Tensor:
    x = norm(x + attention_masked_to_the_end(x @ w, x, x)[0], 1)
    x = norm(x + attention(x @ u, states, states, mask)[0], 2)
    return norm(x + x @ m, 3)


def half_after_half(x: Tensor, w: Tensor, u: Tensor, gain_1: Tensor, gain_2: Tensor) -> Tensor:
    y = torch.stack([2 * row + x.mean(dim=0) @ w for row in x]) * gain_1
    return torch.sin(y + torch.tanh(y @ u)) * gain_2


def branch_after_branch(x: Tensor, w: Tensor, u: Tensor, gain_1: Tensor, gain_2: Tensor) -> Tensor:
    read = x * gain_1
    y = x + torch.stack([row + read.mean(dim=0) @ w for row in read])
    return y + torch.tanh((torch.sin(y) * gain_2) @ u)


def unfolded(pixels: Tensor, patch_size: int) -> Tensor:
    return F.unfold(pixels[None].double(), patch_size, stride=patch_size)[0].mT.to(pixels.dtype)


def folded(patches: Tensor, patch_size: int, height: int, width: int) -> Tensor:
    flat = patches[None].double().mT
    return F.fold(flat, (height, width), patch_size, stride=patch_size)[0].to(patches.dtype)


def rolled_out(weights: Tensor) -> Tensor:
    """Half of what was there stays, and half is looked up."""
    shares = torch.eye(weights.shape[-1], dtype=weights.dtype)
    for heads in weights:
        shares = shares / 2 + sum(head @ shares for head in heads) / (2 * len(heads))
    return shares


def seen(patches: Tensor, w: Tensor, class_token: Tensor, positions: Tensor, u: Tensor, m: Tensor) -> Tensor:
    x = torch.stack([class_token, *(patch @ w for patch in patches)]) + positions
    return (torch.tanh(x[0] @ u) + x.mean(dim=0)) @ m


# ------------------------------------------------------------------ functions that are not of the usual form


def norm(x: Tensor, number: int) -> Tensor:
    """Each of the three norms is another one."""
    return x / (number + x.square().mean(dim=-1, keepdim=True)).sqrt()


def one_block(
    x: Float[Tensor, "... target d_model"],
    states: Float[Tensor, "... source d_model"],
    mask: Bool[Tensor, "... target source"],
    w: Float[Tensor, "d_model same_d_model"],
    u: Float[Tensor, "d_model same_d_model"],
    m: Float[Tensor, "d_model same_d_model"],
) -> Tensor:
    """`decoder_block` with matrices in place of layers."""

    def layer(w: Tensor, x: Tensor, data: Tensor | None = None, **masks: Any) -> Tensor:
        data = x if data is None else data
        return attend_in_steps(x @ w, data, data, **masks)

    norms = (partial(norm, number=number) for number in (1, 2, 3))
    return decoder_block(x, states, mask, partial(layer, w), partial(layer, u), lambda y: y @ m, *norms)


def reverse(values: Float[Tensor, "... time hidden"], lengths: Int[Tensor, "..."]) -> Tensor:
    """`reverse_valid` has exactly one leading dimension."""
    return reverse_valid(values.reshape(-1, *values.shape[-2:]), lengths.flatten()).reshape(values.shape)


def one_word(
    previous: Float[Tensor, "... embedding"],
    state: Float[Tensor, "... hidden"],
    states: Float[Tensor, "... time hidden"],
    lengths: Int[Tensor, "..."],
    w: Float[Tensor, "both hidden"],
    u: Float[Tensor, "two_hidden vocabulary"],
) -> tuple[Tensor, Tensor, Tensor]:
    """`decoder_step` with matrices in place of functions."""
    cell, output = (lambda x, h: torch.tanh(x @ w + h)), (lambda z: z @ u)
    return decoder_step(previous, state, states, lengths, alignment_scores, cell, output)


def block_of_matrices(
    x: Float[Tensor, "... tokens d_model"],
    w: Float[Tensor, "d_model d_model"],
    u: Float[Tensor, "d_model d_model"],
    gain_1: Float[Tensor, " d_model"],
    gain_2: Float[Tensor, " d_model"],
    block: Callable = post_norm_block,
) -> Tensor:
    """A block with matrices and gains in place of functions; the first part mixes the tokens."""

    def mixed(x: Tensor) -> Tensor:
        return x.mean(dim=-2, keepdim=True) @ w + x

    return block(x, mixed, lambda x: torch.tanh(x @ u), lambda x: x * gain_1, lambda x: torch.sin(x) * gain_2)


def gates(logits: Float[Tensor, "... experts"], k: int) -> Tensor:
    """The numbers of the experts, which `route_top_k` gives too, are integers in every dtype."""
    return route_top_k(logits, k)[0]


def in_small_tiles(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... queries keys"],
    is_causal: bool,
) -> Tensor:
    """`tiled_attention` in tiles of 4 queries and 3 keys. The log-sum-exp is float32 for half precision."""
    tiles = {"block_q": 4, "block_k": 3}
    return tiled_attention(queries, keys, values, mask=mask, is_causal=is_causal, **tiles)[0]


def vit_of_matrices(
    patches: Float[Tensor, "... patches numbers"],
    w: Float[Tensor, "numbers d_model"],
    class_token: Float[Tensor, " d_model"],
    positions: Float[Tensor, "tokens d_model"],
    u: Float[Tensor, "d_model same_d_model"],
    m: Float[Tensor, "d_model classes"],
) -> Tensor:
    """`vit_logits` with matrices in place of functions; the blocks mix the tokens."""

    def blocks(x: Tensor) -> Tensor:
        return torch.tanh(x @ u) + x.mean(dim=-2, keepdim=True)

    return vit_logits(patches, lambda x: x @ w, class_token, positions, blocks, lambda x: x @ m)


# ------------------------------------------------------------------ the table

Results = tuple[Tensor, ...]


def as_tuple(results: Any) -> Results:
    return results if isinstance(results, tuple) else (results,)


def dimensions(parameter: inspect.Parameter) -> str:
    """The shape in a signature, such as "... time"; "" for what is no tensor."""
    kinds = parameter.annotation, *getattr(parameter.annotation, "__args__", ())
    return next((kind.dim_str for kind in kinds if hasattr(kind, "dim_str")), "")


def one_by_one(oracle: Callable, inputs: list, has_lead: list[bool], lead: tuple[int, ...]) -> Results:
    """The oracle's results for every index of the leading dimensions."""
    results = []
    for index in itertools.product(*map(range, lead)):
        results.append(as_tuple(oracle(*(x[index] if led else x for x, led in zip(inputs, has_lead, strict=True)))))
    return tuple(torch.stack(parts).reshape((*lead, *parts[0].shape)) for parts in zip(*results, strict=True))


def all_at_once(oracle: Callable, inputs: list, *_: Any) -> Results:
    return as_tuple(oracle(*inputs))


def equal(got: Tensor, theirs: Tensor, exact: Tensor) -> None:
    """For functions that only move numbers."""
    assert got.dtype == theirs.dtype and torch.equal(got, theirs)


def rounded_once(got: Tensor, theirs: Tensor, exact: Tensor) -> None:
    """The nearest number of the dtype: half precision loses no more than one rounding.

    An angle of 5,000 is known to 1e-12 in float64.
    """
    assert got.dtype == theirs.dtype
    eps = torch.finfo(got.dtype).eps
    relative, absolute = (0.51 if eps > 1e-4 else 8) * eps, 8e-7 if eps > 1e-10 else 1e-12
    torch.testing.assert_close(got.double(), exact, rtol=relative, atol=absolute)


@dataclass(frozen=True)
class Row:
    """A function and its oracle.

    Inputs are random numbers of the shapes in the signature; `given` makes those that are something else.
    `sizes` are rules for sizes that depend on others. `by` calls the oracle, `compare` looks at each result.
    """

    function: Callable
    oracle: Callable
    given: dict[str, Callable[[Draw], Any]] = field(default_factory=dict)
    sizes: dict[str, Callable[[Draw], int]] = field(default_factory=dict)
    compare: Callable[[Tensor, Tensor, Tensor], None] = as_exact_as
    by: Callable[..., Results] = one_by_one

    def parameters(self) -> list[inspect.Parameter]:
        """Those that have no default, or are given."""
        parameters = inspect.signature(self.function).parameters.values()
        return [p for p in parameters if p.default is p.empty or p.name in self.given]

    def inputs(self, draw: Draw) -> list:
        makers = [(self.given.get(p.name), dimensions(p)) for p in self.parameters()]
        return [maker(draw) if maker else draw.numbers(dims) for maker, dims in makers]

    def draw(self, lead: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64, **sizes: int) -> list:
        return self.inputs(Draw(self.sizes, lead, seed, dtype, **sizes))

    def expected(self, inputs: list, lead: tuple[int, ...]) -> Results:
        return self.by(self.oracle, inputs, [dimensions(p).startswith("...") for p in self.parameters()], lead)


ROWS: dict[str, Row] = {
    "00 softmax": Row(softmax, partial(torch.softmax, dim=-1), {"scores": large_scores}),
    "01 rnn_step": Row(rnn_step, rnn_cell),
    "01 gru_step": Row(gru_step, gru_cell, sizes={"three_hidden": lambda draw: 3 * draw["hidden"]}),
    "01 last_valid_state": Row(
        last_valid_state, lambda states, length: states[length - 1], {"lengths": lengths(1)}, compare=equal
    ),
    "01 masked_cross_entropy": Row(
        masked_cross_entropy,
        cross_entropy,
        {"targets": lambda draw: draw.ids(draw["vocabulary"], "... time"), "lengths": lengths(1)},
        by=all_at_once,
    ),
    "01 reverse_valid": Row(
        reverse,
        lambda values, length: torch.cat([values[:length].flip(0), values[length:]]),
        {"lengths": lengths(0)},
        compare=equal,
    ),
    "02 alignment_scores": Row(alignment_scores, lambda query, states: states @ query),
    "02 attention_weights": Row(attention_weights, valid_softmax, {"lengths": lengths(1)}),
    "02 context_vector": Row(context_vector, torch.matmul),
    "02 additive_scores": Row(additive_scores, additive),
    "02 decoder_step": Row(
        one_word,
        bahdanau,
        {"lengths": lengths(1)},
        {"both": lambda draw: draw["embedding"] + draw["hidden"], "two_hidden": lambda draw: 2 * draw["hidden"]},
    ),
    "03 similarity_scores": Row(similarity_scores, lambda q, k: torch.einsum("qd,kd->qk", q, k)),
    "03 scaled_dot_product_attention": Row(scaled_dot_product_attention, attention),
    "03 cross_attention": Row(cross_attention, lambda q, x, w_q, w_k, w_v: attention(q @ w_q, x @ w_k, x @ w_v)),
    "03 score_variance": Row(score_variance, products_variance, sizes={"draws": lambda draw: 1 + draw["others"]}),
    "03 entropy": Row(
        entropy,
        lambda weights: torch.special.entr(weights).sum(),
        {"weights": lambda d: d.numbers("... n").softmax(-1)},
    ),
    "03 softmax_gradient": Row(
        softmax_gradient, softmax_jacobian, {"weights": lambda d: d.numbers("... n").softmax(-1)}
    ),
    "04 self_attention": Row(self_attention, lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)),
    "04 permute_tokens": Row(
        permute_tokens, lambda x, order: torch.stack([x[i] for i in order]), {"order": order}, compare=equal
    ),
    "04 apply_rotary": Row(
        apply_rotary,
        as_complex,
        {"positions": lambda draw: ids(draw.seed, 5000, draw["tokens"])},
        {"d_k": even},
        rounded_once,
    ),
    "04 apply_rotary_half_split": Row(
        apply_rotary_half_split,
        as_gpt_neox,
        {"positions": lambda draw: ids(draw.seed, 5000, draw["tokens"])},
        {"d_k": even},
        rounded_once,
    ),
    "04 rotary_self_attention": Row(rotary_self_attention, rotary_attention, sizes={"d_k": even}),
    "05 masked_softmax": Row(masked_softmax, rows_softmax, {"mask": mask("... queries keys")}),
    "05 masked_attention": Row(masked_attention, attention, {"mask": mask("... queries keys")}),
    "05 causal_attention": Row(causal_attention, attention_masked_to_the_end),
    "06 split_heads": Row(
        split_heads,
        lambda x, n_heads: torch.stack(x.chunk(n_heads, dim=-1)),
        {"n_heads": lambda draw: draw["heads"]},
        HEADS,
        equal,
    ),
    "06 merge_heads": Row(merge_heads, lambda heads: torch.cat(list(heads), dim=-1), compare=equal),
    "06 multi_head_attention": Row(
        multi_head_attention,
        head_after_head,
        {"n_heads": lambda draw: draw["heads"], "mask": mask("... heads queries data")},
        HEADS,
    ),
    **{
        f"06 {function.__name__}": Row(
            function,
            outputs_only,
            {"mask": mask("... queries keys"), "is_causal": lambda draw: draw.seed % 2 == 1},
        )
        for function in (attend, attend_in_steps)
    },
    "08 layer_norm": Row(
        layer_norm, lambda x, gain, bias: F.layer_norm(x, gain.shape, gain, bias), {"x": unlike_numbers}
    ),
    "08 mlp": Row(mlp, lambda x, w, b, v, c: F.linear(F.relu(F.linear(x, w.T, b)), v.T, c)),
    "08 post_norm_block": Row(block_of_matrices, half_after_half),
    "10 decoder_block": Row(
        one_block,
        decoder_of_2017,
        {"mask": mask("... target source")},
        {"same_d_model": lambda draw: draw["d_model"]},
    ),
    "07 causal_conv1d": Row(causal_conv1d, convolution, {"dilation": lambda draw: draw.chance.randint(1, 3)}),
    "09 embed_tokens": Row(
        embed_tokens,
        lambda token, table: F.one_hot(token, len(table)).to(table) @ table,
        {"tokens": lambda draw: draw.ids(draw["ids"], "...")},
        compare=equal,
    ),
    "09 next_token_loss": Row(
        next_token_loss,
        next_token_cross_entropy,
        {"tokens": lambda draw: draw.ids(draw["ids"], "... time")},
        {"time": lambda draw: 1 + draw["following"]},
        by=all_at_once,
    ),
    "14 tiled_attention": Row(
        in_small_tiles,
        outputs_only,
        {"mask": mask("... queries keys"), "is_causal": lambda draw: draw.seed % 2 == 1},
    ),
    "14 online_softmax": Row(
        online_softmax,
        lambda scores, _: (scores.max(), torch.exp(scores - scores.max()).sum()),
        {"block_k": lambda draw: 3},
    ),
    "14 merge_blocks": Row(
        merge_blocks,
        merged,
    ),
    "09 attend_rotary": Row(
        attend_rotary,
        rotary_outputs,
        {"mask": mask("... queries keys")},
        {"d_k": even, "keys": lambda draw: draw["queries"] + draw["older"]},
    ),
    "12 pre_norm_block": Row(partial(block_of_matrices, block=pre_norm_block), branch_after_branch),
    "12 rms_norm": Row(rms_norm, lambda x, gain: F.rms_norm(x, gain.shape, gain, 1e-5)),
    "12 swiglu": Row(swiglu, lambda x, g, w, v: F.linear(F.silu(F.linear(x, g.T)) * F.linear(x, w.T), v.T)),
    "12 route_top_k": Row(
        gates,
        lambda logits, k: torch.softmax(logits.topk(k).values, dim=-1),
        {"k": lambda draw: draw.chance.randint(1, draw["experts"])},
    ),
    "13 append_to_cache": Row(append_to_cache, lambda cached, new: torch.cat([cached, new]), compare=equal),
    "13 decode_with_cache": Row(
        decode_with_cache, rotary_outputs_and_cache, {"attend": lambda draw: attend}, {"d_k": even}
    ),
    "13 linear_attention": Row(linear_attention, linear_outputs),
    "13 linear_attention_step": Row(
        linear_attention_step, linear_step, {"total": lambda draw: draw.numbers("... d_k").abs()}
    ),
    "11 patchify": Row(
        patchify,
        unfolded,
        {"patch_size": lambda draw: draw["side"]},
        PATCHES,
        equal,
    ),
    "11 unpatchify": Row(
        unpatchify,
        folded,
        {name: partial(Draw.__getitem__, name=size) for name, size in PATCH_ARGUMENTS.items()},
        PATCHES,
        equal,
    ),
    "11 vit_logits": Row(
        vit_of_matrices,
        seen,
        sizes={"tokens": lambda draw: 1 + draw["patches"], "same_d_model": lambda draw: draw["d_model"]},
    ),
    "11 attention_rollout": Row(
        attention_rollout,
        rolled_out,
        {"weights": lambda draw: draw.numbers("... layers heads tokens tokens").softmax(dim=-1)},
    ),
}

# These need values, which a tensor on the device "meta" has not.
LOOKS_AT_VALUES = {"01 masked_cross_entropy", "04 permute_tokens"}

# These have more roundings than PyTorch, which computes half precision in float32 inside; or one lucky number.
ROUNDS_MORE = {"01 masked_cross_entropy", "02 decoder_step", "08 layer_norm", "14 online_softmax", "12 rms_norm"}


# ------------------------------------------------------------------ the promises


def is_numbers(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def in_double(inputs: list) -> list:
    return [x.double() if is_numbers(x) else x for x in inputs]


@pytest.mark.parametrize("name", ROWS)
@few
@given(lead=leading, dtype=dtypes, seed=seeds)
def test_each_index_on_its_own_as_exact_as_the_oracle(name: str, lead: tuple[int, ...], dtype: torch.dtype, seed: int):
    row = ROWS[name]
    inputs = row.draw(lead, seed, dtype)
    before = [x.clone() if isinstance(x, Tensor) else x for x in inputs]
    got = as_tuple(row.function(*inputs))
    for x, y in zip(inputs, before, strict=True):
        assert torch.equal(x, y) if isinstance(x, Tensor) else x == y, "inputs stay as they were"
    for results in zip(got, row.expected(inputs, lead), row.expected(in_double(inputs), lead), strict=True):
        assert results[0].dtype == dtype
        row.compare(*results)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROWS)
def test_error_over_many_numbers_is_at_most_twice_the_oracles(name: str, dtype: torch.dtype) -> None:
    """At these sizes luck plays no part: nothing is added to the bound."""
    row, lead = ROWS[name], (2, 3)
    inputs = row.draw(lead, 1, dtype, smallest=30, largest=70)
    got = as_tuple(row.function(*inputs))
    for results in zip(got, row.expected(inputs, lead), row.expected(in_double(inputs), lead), strict=True):
        row.compare(*results)
        ours, theirs, exact = (x.double() for x in results)
        assert dtype == torch.float64 or name in ROUNDS_MORE or (ours - exact).norm() <= 2 * (theirs - exact).norm()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ROWS)
def test_first_and_second_gradients(name: str, seed: int) -> None:
    inputs = ROWS[name].draw((2,), seed, smallest=2, largest=3)
    leaves = {i: x.requires_grad_() for i, x in enumerate(inputs) if is_numbers(x)}

    def function(*values: Tensor) -> Any:
        put = dict(zip(leaves, values, strict=True))
        return ROWS[name].function(*(put.get(i, x) for i, x in enumerate(inputs)))

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))
    assert torch.autograd.gradgradcheck(function, tuple(leaves.values()), fast_mode=True)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in LOOKS_AT_VALUES])
def test_results_are_on_the_device_of_the_inputs(name: str) -> None:
    """PyTorch's device "meta" has shapes only, and refuses to meet tensors of another device, as a GPU does."""
    inputs = ROWS[name].draw((2, 3), 1, torch.float32, smallest=2)
    for result in as_tuple(ROWS[name].function(*(x.to("meta") if isinstance(x, Tensor) else x for x in inputs))):
        assert result.device.type == "meta"
