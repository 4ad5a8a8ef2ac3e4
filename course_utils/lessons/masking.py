"""Lesson 05: what an attention layer must not see is hidden by minus infinity before the softmax.

Vaswani et al. 2017, section 3.2.3 (https://arxiv.org/abs/1706.03762) for the causal mask.

One convention in the whole course: a mask is boolean, and True means **may attend**. A mask has the shape of the
scores, (..., queries, keys), where 1 stands for "the same for all". Positions that may not be attended to get a weight
of exactly zero, so what stands there changes nothing, as long as it is a finite number.
"""

import copy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


def causal_mask(n_queries: int, n_keys: int) -> Bool[Tensor, "n_queries n_keys"]:
    """True where a query may look at a key: at itself and at what came before it (Vaswani et al. 2017).

    The queries are the *last* n_queries of the n_keys positions: the last query sees all keys, the one before it all
    but the last key, and so on. Query i sees keys 0 to i + n_keys - n_queries. With as many queries as keys that is
    the lower triangle. Where there are more queries than keys, the first queries see nothing.
    """
    queries = torch.arange(n_keys - n_queries, n_keys)
    keys = torch.arange(n_keys)
    return keys <= queries.unsqueeze(1)


def padding_mask(lengths: Int[Tensor, "..."], n_keys: int) -> Bool[Tensor, "... 1 n_keys"]:
    """True where a key is a real token: the first `lengths` keys of each sequence (0 to n_keys); the rest is padding.

    lengths (batch) gives (batch, 1, n_keys): the 1 stands for the queries, which all see the same keys. For scores
    of shape (batch, heads, queries, keys) give lengths of shape (batch, 1), and get (batch, 1, 1, n_keys).
    The mask is on the device of `lengths`.
    """
    keys = torch.arange(n_keys, device=lengths.device)
    return keys < lengths[..., None, None]


def masked_softmax(
    scores: Float[Tensor, "... queries keys"], mask: Bool[Tensor, "... #queries #keys"]
) -> Float[Tensor, "... queries keys"]:
    """Softmax over the keys that a query may attend to, those where `mask` is True. The others get exactly 0.

    `mask` has the shape of `scores`, or one that broadcasts to it. A query that may attend to no key at all gets
    zeros in place of weights. Where the mask is False the score does not matter (also NaN or infinity), and exactly
    no gradient goes to it. The dtype stays that of the scores, float16 and bfloat16 too. Any number of leading
    dimensions, also none.
    """
    # exp(-inf) is 0 in every dtype. A large negative number would not do: -1e9 does not exist in float16.
    scores = scores.masked_fill(~mask, -torch.inf)
    # A row of nothing but -inf would become 0 / 0, which is NaN, and so would its gradient.
    scores = scores.masked_fill(~mask.any(dim=-1, keepdim=True), 0)
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0)


def masked_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """Attention in which a query sees only the keys where `mask` is True: returns outputs and weights.

    Without a mask it is `scaled_dot_product_attention` of lesson 03. `mask` is (queries, keys), the same for
    everything in front of it, or has as many dimensions as the scores (..., queries, keys); in each the size is that
    of the scores, or 1. A query that may attend to no key gets weights and an output of zeros.
    Raises ValueError for any other mask: one with fewer dimensions could be read along the wrong ones.
    """
    scores = (queries / queries.shape[-1] ** 0.5) @ keys.transpose(-2, -1)
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        require_fit(mask, scores.shape)
        weights = masked_softmax(scores, mask)
    return weights @ values, weights


def require_fit(mask: Tensor, shape: torch.Size) -> None:
    """Raises ValueError unless `mask` is boolean and fits scores of this shape without guessing."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim not in (2, len(shape)) or any(size not in (1, needed) for size, needed in sizes):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; scores of shape {tuple(shape)} need a mask of "
            f"{tuple(shape[-2:])}, or of {len(shape)} dimensions, each of that size or 1"
        )


def other_inputs(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs of the same shape and kind that differ at every position.

    Numbers get large random changes; token ids become other ids between 0 and the largest that `inputs` has.
    """
    if inputs.is_floating_point():
        return inputs + 10 * torch.randn(inputs.shape, generator=generator).to(inputs)
    n_ids = int(inputs.max()) + 1
    return (inputs + torch.randint(1, n_ids, inputs.shape, generator=generator).to(inputs)) % n_ids


def leaks_future(
    model: nn.Module, inputs: Float[Tensor, "batch time features"] | Int[Tensor, "batch time"], seed: int = 0
) -> bool:
    """Whether any output of `model` depends on a later input, in training or in evaluation mode.

    `model` maps `inputs` (numbers, or token ids of which at least two are different) to outputs (batch, time, ...).
    For every time t the inputs from t on are replaced (`other_inputs`), and the outputs before t must stay the same,
    to the last bit: same shapes, so the past is computed by the same operations. Dropout draws the same random
    numbers in every run. The model (mode, parameters, buffers), `inputs` and torch's random state stay as they were.
    Raises ValueError where the outputs are NaN: then nobody can see a leak.
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
            raise ValueError("the model's outputs are NaN, so a leak could not be seen")
        for t in range(1, inputs.shape[1]):
            changed = torch.cat([inputs[:, :t], others[:, t:]], dim=1)
            if not torch.equal(run(changed, training)[:, :t], outputs[:, :t]):
                return True
    return False
