"""Lesson 13: decoding that computes nothing twice: a KV cache, and linear attention.

Shazeer 2019 (https://arxiv.org/abs/1911.02150) and Ainslie et al. 2023
(https://arxiv.org/abs/2305.13245) for heads that share keys and values, Xiao et al.
2023 (https://arxiv.org/abs/2309.17453) for windows that keep the first tokens,
Katharopoulos et al. 2020 (https://arxiv.org/abs/2006.16236) for linear attention.

Layout: heads are (..., tokens, d_k), as in lesson 06. A *cache* is a tensor (...,
cached, d): one row for each token that was read before, the oldest first.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.lessons.language_model import (
    LanguageModel,
    attend_rotary,
    sample_next,
)
from course_utils.lessons.masking import causal_mask
from course_utils.lessons.multi_head import (
    MultiHeadAttention,
    attend,
    split_heads,
)
from course_utils.lessons.self_attention import apply_rotary
from course_utils.lessons.sequence_models import recall_batch
from course_utils.lessons.transformer_block import ProductCounter


def append_to_cache(
    cached: Float[Tensor, "... cached d"],
    new: Float[Tensor, "... new d"],
    window: int | None = None,
) -> Float[Tensor, "... kept d"]:
    """The rows of all tokens: those of the cache, then those of the new tokens.

    With `window` (at least 1), only the last `window` of these tokens stay; all, where
    there are fewer. The cache may be empty (no tokens, but a shape); at least one token
    is new. The result is a new tensor, which shares no memory with `cached` or `new`:
    another text may go on from the same cache. Any number of leading dimensions,
    including none; dtype and device follow the inputs.
    """
    rows = torch.cat([cached, new], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def decode_with_cache(
    queries: Float[Tensor, "... new d_k"],
    keys: Float[Tensor, "... new d_k"],
    values: Float[Tensor, "... new d_v"],
    cached_keys: Float[Tensor, "... cached d_k"],
    cached_values: Float[Tensor, "... cached d_v"],
    attend: Callable,
) -> tuple[
    Float[Tensor, "... new d_v"],
    Float[Tensor, "... all d_k"],
    Float[Tensor, "... all d_v"],
]:
    """Causal attention of new tokens to all tokens before them, and to themselves.

    `queries`, `keys` and `values` are those of the new tokens. The cache is what the
    call before has returned; at first it holds no tokens. Returned are the outputs of
    the new tokens, and the keys and values of all tokens, for the next call.

    Positions are rotary (`apply_rotary`). The new tokens stand behind the cached ones,
    so the position of the first is the number of cached tokens. New queries and keys
    come without positions, and are turned here. Cached keys were turned when they were
    new. Values are never turned.

    What happens in a head is `attend(queries, keys, values, is_causal=True)`, with
    turned queries and keys: the queries are the last of the keys' positions, as in
    lesson 05. Keys and values may have other leading dimensions than the queries (fewer
    heads), so the three cannot be stacked. Any number of leading dimensions, including
    none; dtype and device follow the inputs, and no input is changed.
    """
    n_cached, n_new = cached_keys.shape[-2], keys.shape[-2]
    positions = torch.arange(n_cached, n_cached + n_new, device=keys.device)
    all_keys = append_to_cache(cached_keys, apply_rotary(keys, positions))
    all_values = append_to_cache(cached_values, values)
    queries = apply_rotary(queries, positions)
    outputs = attend(queries, all_keys, all_values, is_causal=True)
    return outputs, all_keys, all_values


def kv_cache_bytes(
    n_tokens: int,
    n_layers: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    bytes_per_number: int,
    batch: int = 1,
) -> int:
    """How many bytes the KV cache of a whole model takes, as an int.

    Each of the `n_layers` layers cuts `d_model` numbers into `n_heads` heads of queries
    of d_k numbers each (d_model is a multiple of n_heads). Its heads of keys and values
    have d_k numbers too, but there are only `n_kv_heads` of them. Kept are a key and a
    value for each token of each of `batch` texts.
    """
    d_k = d_model // n_heads
    numbers = 2 * n_layers * n_kv_heads * d_k  # of one token: a key and a value
    return batch * n_tokens * numbers * bytes_per_number


# ------------------------------------------------------------------ reading on


def with_attend(model: nn.Module, make: Callable[[], Callable]) -> Any:
    """A copy of the model in which each attention layer has an `attend` of its own."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attend = make()
    return model


class CachedAttention:
    """A causal `attend` that remembers. It is called with the new tokens only."""

    def __init__(self, n_context: int, attend: Callable = attend) -> None:
        self.n_context, self.attend = n_context, attend
        self.keys = self.values = torch.empty(0)

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: None = None, **_: Any
    ) -> Tensor:
        if self.keys.numel() == 0:  # nothing was read before: a cache without tokens
            self.keys, self.values = keys[..., :0, :], values[..., :0, :]
        n_tokens = self.keys.shape[-2] + keys.shape[-2]
        if n_tokens > self.n_context:
            raise ValueError(
                f"{n_tokens} tokens, but the model reads at most {self.n_context}"
            )
        outputs, self.keys, self.values = decode_with_cache(
            queries, keys, values, self.keys, self.values, self.attend
        )
        return outputs


def cached_reader(model: LanguageModel, attend: Callable = attend) -> LanguageModel:
    """A copy of the model that remembers: each call goes on where the last ended."""
    return with_attend(model, lambda: CachedAttention(model.n_context, attend))


@torch.no_grad()
def generate_with_cache(
    model: LanguageModel,
    tokens: Int[Tensor, " time"],
    n: int,
    end: int | None = None,
    **how: Any,
) -> Int[Tensor, " longer_time"]:
    """Lesson 09's `generate`, in which no token is read twice.

    Raises ValueError when the text gets longer than the model's context.
    """
    reader, unread = cached_reader(model), tokens
    for _ in range(n):
        following = sample_next(reader(unread)[-1], **how)
        tokens = torch.cat([tokens, following.unsqueeze(0)])
        if following == end:
            break
        unread = following.unsqueeze(0)
    return tokens


def counted_flops(function: Callable, *inputs: Tensor) -> int:
    """The operations in all matrix products of one call."""
    with torch.no_grad(), ProductCounter(nn.Module()) as counter:
        function(*inputs)
    return sum(product.flops for product in counter.products)


def stored_bytes(reader: nn.Module) -> int:
    """How many bytes the tensors of all caches of a model really take."""
    caches = [m.attend for m in reader.modules() if isinstance(m, MultiHeadAttention)]
    kept = [x for cache in caches for x in vars(cache).values()]
    return sum(x.untyped_storage().nbytes() for x in kept if isinstance(x, Tensor))


# ------------------------------------------------------------------ shared keys


def share_heads(
    queries: Float[Tensor, "... heads queries d_k"],
    keys: Float[Tensor, "... kv_heads keys d_k"],
    values: Float[Tensor, "... kv_heads keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... heads queries d_v"]:
    """`attend` where several heads of queries use one head of keys and values.

    With twice as many heads of queries, key head 0 serves query heads 0 and 1.
    """
    n = queries.shape[-3] // keys.shape[-3]
    keys, values = (x.repeat_interleave(n, dim=-3) for x in (keys, values))
    return attend(queries, keys, values, mask, is_causal=is_causal)


class GroupedQueryAttention(MultiHeadAttention):
    """Lesson 06's layer with fewer heads of keys and values than of queries."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        attend: Callable = share_heads,
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, n_heads, attend, bias)
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise ValueError(f"{n_heads} heads cannot share {n_kv_heads} heads equally")
        self.n_kv_heads = n_kv_heads
        width = n_kv_heads * (d_model // n_heads)
        self.to_keys = nn.Linear(d_model, width, bias)
        self.to_values = nn.Linear(d_model, width, bias)

    def project(self, x: Tensor, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = split_heads(self.to_queries(x), self.n_heads)
        k = split_heads(self.to_keys(data), self.n_kv_heads)
        return q, k, split_heads(self.to_values(data), self.n_kv_heads)


def grouped_model(
    n_kv_heads: int, d_model: int = 64, n_heads: int = 8, n_context: int = 256
) -> LanguageModel:
    """An untrained model whose layers have so many heads of keys and values."""
    model = LanguageModel(100, d_model, 2, n_heads, n_context)
    rotary = partial(attend_rotary, attend=share_heads)
    for block in model.blocks:
        block.attention = GroupedQueryAttention(d_model, n_heads, n_kv_heads, rotary)
    return model


# ------------------------------------------------------------------ which keys are seen


def one_by_one(*tensors: Float[Tensor, "... tokens d"]) -> Iterator[tuple[Tensor, ...]]:
    """The tensors' rows for token 0, for token 1, ...; each is (..., 1, d)."""
    return zip(*(x.split(1, dim=-2) for x in tensors), strict=True)


def window_mask(
    n_queries: int, n_keys: int, window: int, n_first: int = 0
) -> Bool[Tensor, "n_queries n_keys"]:
    """True for the last `window` keys up to the query itself, and the first `n_first`.

    The queries are the last of the keys' positions, as in `causal_mask`.
    """
    keys = torch.arange(n_keys)
    age = torch.arange(n_keys - n_queries, n_keys).unsqueeze(1) - keys
    return (age >= 0) & ((age < window) | (keys < n_first))


def document_mask(
    documents: Int[Tensor, "... tokens"],
) -> Bool[Tensor, "... tokens tokens"]:
    """True for earlier tokens of the same document, and the token itself.

    `documents` says for each token which document it belongs to.
    """
    n_tokens = documents.shape[-1]
    same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
    return same & causal_mask(n_tokens, n_tokens, documents.device)


class WindowAttention:
    """A causal `attend` with the last `window` tokens, and the first `n_first`.

    The keys are kept without positions: each token turns them by their places in the
    cache, so all positions stay below `window + n_first`.
    """

    def __init__(self, window: int, n_first: int = 0) -> None:
        self.window, self.n_first = window, n_first
        self.keys = self.values = torch.empty(0)

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: None = None, **_: Any
    ) -> Tensor:
        if self.keys.numel() == 0:
            self.keys, self.values = keys[..., :0, :], values[..., :0, :]
        outputs = []
        for query, key, value in one_by_one(queries, keys, values):
            self.keys = self.keep(self.keys, key)
            self.values = self.keep(self.values, value)
            outputs.append(attend_rotary(query, self.keys, self.values, is_causal=True))
        return torch.cat(outputs, dim=-2)

    def keep(self, cached: Tensor, new: Tensor) -> Tensor:
        first, last = cached.tensor_split([self.n_first], dim=-2)
        last = append_to_cache(last, new, self.window)
        return append_to_cache(first, last)


# ------------------------------------------------------------------ linear attention


def feature_map(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """elu(x) + 1: x + 1 above zero, and e^x below: positive, if not rounded to 0."""
    return F.elu(x) + 1


def linear_attention(
    queries: Float[Tensor, "... tokens d_k"],
    keys: Float[Tensor, "... tokens d_k"],
    values: Float[Tensor, "... tokens d_v"],
) -> Float[Tensor, "... tokens d_v"]:
    """Causal linear attention (Katharopoulos et al. 2020), for all tokens at once.

    The weight that query i gives to key j, up to i itself, is the dot product of
    `feature_map(queries[i])` and `feature_map(keys[j])`, divided by the sum of these
    products over all keys up to i. Later keys get no weight. Output i is the sum of the
    values, each times its weight. There is no scale √d_k and no softmax, and no small
    number is added to the sum. Any number of leading dimensions, including none; dtype
    and device follow the inputs.
    """
    queries, keys = feature_map(queries), feature_map(keys)
    products = (queries @ keys.transpose(-2, -1)).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention_step(
    query: Float[Tensor, "... d_k"],
    key: Float[Tensor, "... d_k"],
    value: Float[Tensor, "... d_v"],
    state: Float[Tensor, "... d_k d_v"],
    total: Float[Tensor, "... d_k"],
) -> tuple[
    Float[Tensor, "... d_v"], Float[Tensor, "... d_k d_v"], Float[Tensor, "... d_k"]
]:
    """One token of `linear_attention`: returns its output, the new state and total.

    `state` is the sum of feature_map(key) valueᵀ over all tokens before this one, and
    `total` the sum of feature_map(key); before the first token both are zero. The token
    itself is added first, so that it sees itself. Step after step, this gives the rows
    of `linear_attention`. No input is changed. Any number of leading dimensions,
    including none; dtype and device follow the inputs.
    """
    query, key = feature_map(query), feature_map(key)
    state = state + key.unsqueeze(-1) @ value.unsqueeze(-2)
    total = total + key
    weighted = (query.unsqueeze(-2) @ state).squeeze(-2)
    return weighted / (query * total).sum(dim=-1, keepdim=True), state, total


def attend_linear(
    queries: Float[Tensor, "... tokens d_k"],
    keys: Float[Tensor, "... tokens d_k"],
    values: Float[Tensor, "... tokens d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... tokens d_v"]:
    """`linear_attention` in the place of `attend`: only causal, and without a mask."""
    if mask is not None or not is_causal:
        raise ValueError("this linear attention is causal, and takes no mask")
    return linear_attention(queries, keys, values)


class RunningAttention:
    """A causal `attend` that keeps the state of linear attention, and no tokens."""

    def __init__(self) -> None:
        self.state = self.total = torch.empty(0)

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: None = None, **_: Any
    ) -> Tensor:
        if self.state.numel() == 0:
            self.total = torch.zeros_like(keys[..., 0, :])
            self.state = self.total.unsqueeze(-1) * values[..., :1, :]
        outputs = []
        for token in one_by_one(queries, keys, values):
            query, key, value = (x.squeeze(-2) for x in token)
            output, self.state, self.total = linear_attention_step(
                query, key, value, self.state, self.total
            )
            outputs.append(output)
        return torch.stack(outputs, dim=-2)


# ------------------------------------------------------------------ what is lost


@torch.no_grad()
def accuracy_by_pairs(model: nn.Module, seed: int = 10**6) -> Float[Tensor, " steps"]:
    """Lesson 07's recall: the share of right answers after 1, 2, 3, … pairs.

    512 new sequences, whose questions go back any distance.
    """
    batch = recall_batch(512, torch.Generator().manual_seed(seed))
    right = model(batch).argmax(dim=-1) == batch.answers
    return right.float().mean(dim=0)[1:]
