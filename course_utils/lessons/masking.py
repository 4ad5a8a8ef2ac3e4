"""Lesson 05: what an attention layer must not see is hidden by minus infinity before
the softmax.

Vaswani et al. 2017, section 3.2.3 (https://arxiv.org/abs/1706.03762) for the causal
mask.

One convention in the whole course: a mask is boolean, and True means **may attend**. A
mask has the shape of the scores, (..., queries, keys), where 1 stands for "the same for
all". Positions that may not be attended to get a weight of exactly zero, so what stands
there changes nothing, as long as it is a finite number.
"""

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.lessons.attention_layer import (
    scaled_dot_product_attention,
    similarity_scores,
)
from course_utils.lessons.self_attention import LearnedPositions


def causal_mask(
    n_queries: int, n_keys: int, device: torch.device | str | None = None
) -> Bool[Tensor, "n_queries n_keys"]:
    """True where a query may look at a key: at itself and at what came before it.

    The queries are the *last* n_queries of the n_keys positions: the last query sees
    all keys, the one before it all but the last key, and so on. Query i sees keys 0 to
    i + n_keys - n_queries. With as many queries as keys that is the lower triangle.
    Where there are more queries than keys, the first queries see nothing. The mask is
    made on `device`; None is where PyTorch makes all new tensors, usually the CPU.
    """
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)
    keys = torch.arange(n_keys, device=device)
    return keys <= queries.unsqueeze(1)


def padding_mask(
    lengths: Int[Tensor, "..."], n_keys: int
) -> Bool[Tensor, "... 1 n_keys"]:
    """True where a key is a real token, False where it is padding.

    The first `lengths` keys of each sequence (0 to n_keys) are real. Lengths (batch)
    give a mask (batch, 1, n_keys): the 1 stands for the queries, which all see the same
    keys. Any number of leading dimensions, including none: lengths (batch, 1) give
    (batch, 1, 1, n_keys). The mask is on the device of `lengths`.
    """
    keys = torch.arange(n_keys, device=lengths.device)
    return keys < lengths[..., None, None]


def masked_softmax(
    scores: Float[Tensor, "... queries keys"], mask: Bool[Tensor, "... #queries #keys"]
) -> Float[Tensor, "... queries keys"]:
    """Softmax over the keys where `mask` is True; the others get exactly 0.

    `mask` has the shape of `scores`, or one that broadcasts to it. A query that may
    attend to no key at all gets zeros instead of weights. Where the mask is False the
    score does not matter, even NaN or infinity, and no gradient at all goes to it.
    The dtype stays that of the scores, float16 and bfloat16 too. Any number of leading
    dimensions, including none.
    """
    # exp(-inf) is 0 in every dtype. A large negative number would not do: -1e9 does not
    # exist in float16.
    scores = scores.masked_fill(~mask, -torch.inf)
    # A row of nothing but -inf would become 0 / 0, which is NaN, and so would its
    # gradient.
    scores = scores.masked_fill(~mask.any(dim=-1, keepdim=True), 0)
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0)


def require_fit(mask: Tensor, shape: torch.Size) -> None:
    """Raises ValueError unless `mask` is boolean and fits these scores in one way only.

    It has the two dimensions (queries, keys), or as many as the scores; each has the
    size of the scores', or 1. Between the two it could be misread: PyTorch lines shapes
    up at their ends, so with scores (a, b, queries, keys) a mask (a, 1, keys) would be
    taken for (b, 1, keys).
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim not in (2, len(shape)) or any(
        size not in (1, needed) for size, needed in sizes
    ):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; scores of shape {tuple(shape)} need "
            f"{tuple(shape[-2:])}, or {len(shape)} dimensions, each of the scores' "
            "size or 1"
        )


def masked_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """Attention to the keys where `mask` is True: returns the outputs and the weights.

    `mask` is (queries, keys), the same for all leading dimensions, or has as many
    dimensions as the scores (..., queries, keys), each of the same size or 1. Without a
    mask this is `scaled_dot_product_attention`. A query that may attend to no key gets
    weights and outputs of zero. Raises ValueError when the mask (see `require_fit`) or
    the other shapes do not fit.
    """
    if mask is None:
        return scaled_dot_product_attention(queries, keys, values)
    if values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"keys {tuple(keys.shape)} and values {tuple(values.shape)} differ before "
            "the last dimension"
        )
    # Half precision would round every step.
    wide = torch.promote_types(queries.dtype, torch.float32)
    d_k = queries.shape[-1]
    scores = similarity_scores(queries.to(wide), keys.to(wide)) / d_k**0.5
    require_fit(mask, scores.shape)
    weights = masked_softmax(scores, mask)
    return (weights @ values.to(wide)).to(values.dtype), weights.to(queries.dtype)


def causal_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """Attention in which no query sees a later key: returns outputs and weights."""
    mask = causal_mask(queries.shape[-2], keys.shape[-2], device=queries.device)
    return masked_attention(queries, keys, values, mask)


# ---------------------------------------------------- is anything of the future left?


def other_inputs(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs of the same shape and kind that differ at every position.

    Numbers get large random changes; token ids become other ids, from 0 to the largest
    id in `inputs`.
    """
    if inputs.is_floating_point():
        return inputs + 10 * torch.randn(inputs.shape, generator=generator).to(inputs)
    n_ids = int(inputs.max()) + 1
    if n_ids < 2:
        raise ValueError(
            "inputs need an id above 0: there is no other id to put in its place"
        )
    return (
        inputs + torch.randint(1, n_ids, inputs.shape, generator=generator).to(inputs)
    ) % n_ids


def leaks_future(
    model: nn.Module,
    inputs: Float[Tensor, "batch time features"] | Int[Tensor, "batch time"],
    seed: int = 0,
) -> bool:
    """Whether an output of `model` depends on later inputs, in training or evaluation.

    `model` maps `inputs` (numbers, or token ids) to outputs (batch, time, ...). It
    leaks if, for some time t, other inputs at *all* times from t on change *any* output
    before t, even in its last bit only, in training mode or in evaluation mode.
    What dropout draws is no leak, and neither is what a model keeps from one call to
    the next, such as a count of its calls.

    `seed` decides which other inputs are tried, and what dropout draws. Afterwards the
    model (mode, parameters, buffers), `inputs` and PyTorch's random state are as they
    were (buffers are what a model keeps besides its parameters). Raises ValueError when
    outputs are NaN, in one mode or both, unless a leak was found before: NaN does not
    even equal itself, so nothing could be seen.
    """

    def run(x: Tensor, training: bool) -> Tensor:
        trial = copy.deepcopy(model).train(training)
        with torch.no_grad(), torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return trial(x.clone())

    others = other_inputs(inputs, torch.Generator().manual_seed(seed))
    for training in (True, False):
        outputs = run(inputs, training)
        if outputs.isnan().any():
            raise ValueError("the outputs of the model are NaN, so nothing can be seen")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            if not torch.equal(run(changed, training)[:, :t], outputs[:, :t]):
                return True
    return False


# ------------------------------------------------------------------- a model of text


class CharacterModel(nn.Module):
    """Predicts each next character, with one layer of attention: `attend(q, k, v)`."""

    def __init__(
        self,
        n_characters: int,
        attend: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
        d_model: int = 64,
        longest: int = 32,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.attend = attend
        self.characters = nn.Embedding(n_characters, d_model)
        self.positions = LearnedPositions(longest, d_model)
        self.to_queries = nn.Linear(d_model, d_model, bias=False)
        self.to_keys = nn.Linear(d_model, d_model, bias=False)
        self.to_values = nn.Linear(d_model, d_model, bias=False)
        self.hidden = nn.Linear(2 * d_model, 2 * d_model)
        self.output = nn.Linear(2 * d_model, n_characters)
        self.dropout = nn.Dropout(dropout)

    def look(
        self, tokens: Int[Tensor, "batch time"]
    ) -> tuple[
        Float[Tensor, "batch time d_model"],
        Float[Tensor, "batch time d_model"],
        Float[Tensor, "batch time time"],
    ]:
        """The vector of each position, what attention brings to it, and the weights."""
        x = self.characters(tokens) + self.positions(tokens.shape[1])
        return x, *self.attend(self.to_queries(x), self.to_keys(x), self.to_values(x))

    def forward(
        self, tokens: Int[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time characters"]:
        """The logits of the character after each position."""
        x, context, _ = self.look(tokens)
        both = self.dropout(torch.cat([x, context], dim=-1))
        return self.output(torch.relu(self.hidden(both)))


def random_windows(
    ids: Int[Tensor, " length"], time: int, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]]:
    """Yields pieces of a text, from anywhere in it, and what follows each character."""
    while True:
        first = torch.randint(len(ids) - time, (batch_size, 1), generator=generator).to(
            ids.device
        )
        pieces = ids[first + torch.arange(time + 1, device=ids.device)]
        yield pieces[:, :-1], pieces[:, 1:]


def next_character_loss(
    model: nn.Module, batch: tuple[Tensor, Tensor]
) -> Float[Tensor, ""]:
    """Nats per character, over all positions of all pieces."""
    tokens, following = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


@torch.no_grad()
def honest_losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> list[float]:
    """The loss of the next character after 1, 2, 3, ... characters, given no more."""
    tokens, following = batch
    counts = range(1, tokens.shape[1] + 1)
    return [
        F.cross_entropy(model(tokens[:, :n])[:, -1], following[:, n - 1]).item()
        for n in counts
    ]


@torch.no_grad()
def continue_text(
    model: nn.Module,
    tokens: Int[Tensor, " time"],
    n: int,
    generator: torch.Generator,
    window: int = 16,
) -> Int[Tensor, " longer_time"]:
    """Writes `n` more characters, each drawn with the model's probabilities.

    The model is given the last `window` characters.
    """
    for _ in range(n):
        probabilities = torch.softmax(
            model(tokens[None, -window:])[0, -1], dim=-1
        ).cpu()
        drawn = torch.multinomial(probabilities, 1, generator=generator)
        tokens = torch.cat([tokens, drawn.to(tokens.device)])
    return tokens
