"""Right answers to lesson 06's exercises, in many forms."""

import math
from collections import namedtuple
from fractions import Fraction
from functools import partial, reduce
from operator import mul

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.lessons.attention_layer import scaled_dot_product_attention
from course_utils.lessons.masking import masked_attention, masked_softmax
from course_utils.lessons.multi_head import merge_heads, split_heads

# ---- split_heads


def split_heads__unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).transpose(-3, -2)


def split_heads__reshape(x, n_heads):
    *leading, tokens, d_model = x.shape
    pieces = x.reshape(*leading, tokens, n_heads, d_model // n_heads)
    return pieces.movedim(-2, -3)


def split_heads__view(x, n_heads):
    x = x.contiguous()
    return x.view(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)


def split_heads__chunk(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=-3)


def split_heads__split(x, n_heads):
    pieces = torch.split(x, x.shape[-1] // n_heads, dim=-1)
    return torch.cat([piece.unsqueeze(-3) for piece in pieces], dim=-3)


def split_heads__slices(x, n_heads):
    d_k = x.shape[-1] // n_heads
    heads = [x[..., i * d_k : (i + 1) * d_k] for i in range(n_heads)]
    return torch.stack(heads, dim=-3)


def split_heads__unfold(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x.unfold(-1, d_k, d_k).transpose(-2, -3)


def split_heads__permute(x, n_heads):
    flat = x.reshape(-1, x.shape[-2], n_heads, x.shape[-1] // n_heads)
    heads = flat.permute(0, 2, 1, 3)
    return heads.reshape(*x.shape[:-2], *heads.shape[1:])


def split_heads__index(x, n_heads):
    d_k = x.shape[-1] // n_heads
    columns = torch.arange(x.shape[-1], device=x.device).reshape(n_heads, 1, d_k)
    tokens = torch.arange(x.shape[-2], device=x.device).reshape(1, -1, 1)
    return x[..., tokens, columns]


def split_heads__written_into_a_new_tensor(x, n_heads):
    *leading, tokens, d_model = x.shape
    d_k = d_model // n_heads
    heads = torch.zeros(*leading, n_heads, tokens, d_k, dtype=x.dtype, device=x.device)
    for head in range(n_heads):
        for token in range(tokens):
            first = head * d_k
            heads[..., head, token, :] = x[..., token, first : first + d_k]
    return heads


def split_heads__recursion(x, n_heads):
    def one(part):
        if part.dim() > 2:
            return torch.stack([one(p) for p in part])
        return part.T.reshape(n_heads, -1, part.shape[0]).mT

    return one(x)


split_heads__lambda = lambda x, n_heads: torch.stack(  # noqa: E731
    torch.tensor_split(x, n_heads, dim=-1)
).movedim(0, -3)


# ---- merge_heads


def merge_heads__transpose_flatten(x):
    return x.transpose(-3, -2).flatten(-2)


def merge_heads__reshape(x):
    *leading, heads, tokens, d_k = x.shape
    return x.movedim(-3, -2).reshape(*leading, tokens, heads * d_k)


def merge_heads__view(x):
    x = x.swapaxes(-3, -2).contiguous()
    return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def merge_heads__cat(x):
    return torch.cat(x.unbind(dim=-3), dim=-1)


def merge_heads__list_of_heads(x):
    heads = [x[..., i, :, :] for i in range(x.shape[-3])]
    return torch.concat(heads, dim=-1)


def merge_heads__token_by_token(x):
    tokens = [x[..., t, :].flatten(-2) for t in range(x.shape[-2])]
    return torch.stack(tokens, dim=-2)


def merge_heads__column_by_column(x):
    columns = []
    for head in range(x.shape[-3]):
        for i in range(x.shape[-1]):
            columns.append(x[..., head, :, i])
    return torch.stack(columns, dim=-1)


def merge_heads__permute(x):
    flat = x.reshape(-1, *x.shape[-3:]).permute(0, 2, 1, 3)
    return flat.reshape(*x.shape[:-3], x.shape[-2], -1)


def merge_heads__einsum(x):
    return torch.einsum("...htd->...thd", x).flatten(start_dim=-2)


def merge_heads__reduce(x):
    return reduce(lambda a, b: torch.cat([a, b], dim=-1), x.unbind(-3))


def merge_heads__recursion(x):
    def one(part):
        if part.dim() == 3:
            return torch.hstack(list(part))
        return torch.stack([one(p) for p in part])

    return one(x)


class Merge(nn.Module):
    """Merging as a module."""

    def forward(self, x):
        return nn.Flatten(-2)(x.transpose(-2, -3))


merge_heads__module = Merge()


# ---- multi_head_attention


def multi_head_attention__five_steps(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    heads, weights = masked_attention(q, k, split_heads(data @ w_v, n_heads), mask)
    return merge_heads(heads) @ w_o, weights


def multi_head_attention__from_nothing(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    def cut(x):
        return x.reshape(*x.shape[:-1], n_heads, -1).transpose(-3, -2)

    q, k, v = cut(queries @ w_q), cut(data @ w_k), cut(data @ w_v)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(dim=-1, keepdim=True), 0)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0)
    return (weights @ v).transpose(-3, -2).flatten(-2) @ w_o, weights


def multi_head_attention__head_by_head(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    outputs, weights = [], []
    matrices = zip(*(w.chunk(n_heads, dim=1) for w in (w_q, w_k, w_v)), strict=True)
    for i, (q, k, v) in enumerate(matrices):
        see = mask
        if mask is not None and mask.dim() > 2:
            see = mask[..., i if mask.shape[-3] > 1 else 0, :, :]
        head, w = masked_attention(queries @ q, data @ k, data @ v, see)
        outputs.append(head)
        weights.append(w)
    return torch.cat(outputs, dim=-1) @ w_o, torch.stack(weights, dim=-3)


def multi_head_attention__sum_over_heads(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    pairs = ((queries, w_q), (data, w_k), (data, w_v))
    q, k, v = (split_heads(x @ w, n_heads) for x, w in pairs)
    heads, weights = masked_attention(q, k, v, mask)
    total = 0
    for head, matrix in zip(heads.unbind(-3), w_o.chunk(n_heads), strict=True):
        total = total + head @ matrix
    return total, weights


def multi_head_attention__einsum(queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
    q, k, v = (w.unflatten(1, (n_heads, -1)) for w in (w_q, w_k, w_v))
    q = torch.einsum("...ti,ihd->...htd", queries, q)
    k = torch.einsum("...ti,ihd->...htd", data, k)
    v = torch.einsum("...ti,ihd->...htd", data, v)
    scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    weights = masked_softmax(scores, mask)
    heads = torch.einsum("...hqk,...hkd->...qhd", weights, v)
    o = w_o.unflatten(0, (n_heads, -1))
    return torch.einsum("...qhd,hdo->...qo", heads, o), weights


def multi_head_attention__matrices_of_each_head(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    d_k = w_q.shape[1] // n_heads
    scores = []
    for i in range(n_heads):
        columns = slice(i * d_k, (i + 1) * d_k)
        product = w_q[:, columns] @ w_k[:, columns].T
        scores.append(queries @ product @ data.mT / d_k**0.5)
    scores = torch.stack(scores, dim=-3)
    see = scores.new_ones(scores.shape[-2:]).bool() if mask is None else mask
    weights = masked_softmax(scores, see)
    values = split_heads(data @ w_v, n_heads)
    return merge_heads(weights @ values) @ w_o, weights


def multi_head_attention__pytorch(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    unit = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
    both = torch.cat([v, unit.expand(*k.shape[:-1], -1)], dim=-1)
    if mask is None:
        results = F.scaled_dot_product_attention(q, k, both)
    else:
        some = mask.any(dim=-1, keepdim=True)
        results = F.scaled_dot_product_attention(q, k, both, attn_mask=mask | ~some)
        results = results.masked_fill(~some, 0)
    heads, weights = results.split([v.shape[-1], k.shape[-2]], dim=-1)
    return merge_heads(heads) @ w_o, weights


def multi_head_attention__nan_to_num(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    q = torch.stack((queries @ w_q).chunk(n_heads, dim=-1), dim=-3)
    k = torch.stack((data @ w_k).chunk(n_heads, dim=-1), dim=-3)
    v = torch.stack((data @ w_v).chunk(n_heads, dim=-1), dim=-3)
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    weights = scores.softmax(dim=-1).nan_to_num(0)
    return torch.cat((weights @ v).unbind(dim=-3), dim=-1) @ w_o, weights


def multi_head_attention__float64_and_back(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    x, y, a, b, c, o = (t.double() for t in (queries, data, w_q, w_k, w_v, w_o))
    project = partial(split_heads, n_heads=n_heads)
    q, k, v = project(x @ a), project(y @ b), project(y @ c)
    heads, weights = masked_attention(q, k, v, mask)
    outputs = merge_heads(heads) @ o
    return outputs.to(queries.dtype), weights.to(queries.dtype)


def multi_head_attention__one_projection_of_data(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    both = data @ torch.cat([w_k, w_v], dim=1)
    k, v = both[..., : w_k.shape[1]], both[..., w_k.shape[1] :]
    q, k, v = (split_heads(x, n_heads) for x in (queries @ w_q, k, v))
    if mask is None:
        heads, weights = scaled_dot_product_attention(q, k, v)
    else:
        scores = q @ k.mT / k.shape[-1] ** 0.5
        weights = masked_softmax(scores, mask.expand_as(scores))
        heads = weights @ v
    return F.linear(merge_heads(heads), w_o.T), weights


def multi_head_attention__named_tuple(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    Result = namedtuple("Result", ["outputs", "weights"])
    q = split_heads(queries.matmul(w_q), n_heads)
    k = split_heads(data.matmul(w_k), n_heads)
    v = split_heads(data.matmul(w_v), n_heads)
    heads, weights = masked_attention(q, k, v, mask=mask)
    return Result(weights=weights, outputs=merge_heads(heads).matmul(w_o))


def multi_head_attention__query_by_query(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    outputs, weights = [], []
    for i in range(q.shape[-2]):
        see = None
        if mask is not None:
            row = i if mask.shape[-2] > 1 else 0
            see = mask[..., row : row + 1, :]
        head, w = masked_attention(q[..., i : i + 1, :], k, v, see)
        outputs.append(merge_heads(head) @ w_o)
        weights.append(w)
    return torch.cat(outputs, dim=-2), torch.cat(weights, dim=-2)


class MultiHead(nn.Module):
    """Attention in many heads, as a module without parameters of its own."""

    def forward(self, queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
        self.n_heads = n_heads
        pairs = ((queries, w_q), (data, w_k), (data, w_v))
        q, k, v = (self.cut(x, w) for x, w in pairs)
        heads, weights = masked_attention(q, k, v, mask)
        return merge_heads(heads) @ w_o, weights

    def cut(self, x, w):
        return split_heads(x @ w, self.n_heads)


multi_head_attention__module = MultiHead()


# ---- attention_matrix_bytes


def attention_matrix_bytes__product(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    return batch * n_heads * n_queries * n_keys * bytes_per_number


def attention_matrix_bytes__math_prod(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    return math.prod([n_queries, n_keys, n_heads, bytes_per_number, batch])


def attention_matrix_bytes__reduce(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    return reduce(mul, (batch, n_heads, n_queries, n_keys, bytes_per_number), 1)


def attention_matrix_bytes__sum_over_heads(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    one = n_queries * n_keys * bytes_per_number
    return batch * sum(one for _ in range(n_heads))


def attention_matrix_bytes__bits(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    bits = 8 * bytes_per_number * n_queries * n_keys
    return bits * n_heads * batch // 8


def attention_matrix_bytes__fraction(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    numbers = Fraction(n_queries * n_keys) * n_heads * batch
    return int(numbers * bytes_per_number)


def attention_matrix_bytes__doubling(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    def times(a, b):
        if b == 0:
            return 0
        half = times(a, b // 2)
        return half + half + (a if b % 2 else 0)

    one = times(times(n_queries, n_keys), bytes_per_number)
    return times(times(one, n_heads), batch)


def attention_matrix_bytes__loop(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    total = bytes_per_number
    for size in (n_keys, n_queries, n_heads, batch):
        total *= size
    return total


class Bytes:
    """The product as an object that can be called."""

    def __call__(self, n_queries, n_keys, n_heads, bytes_per_number, batch=1):
        numbers = (n_queries * n_keys) * (n_heads * batch)
        return numbers * bytes_per_number


attention_matrix_bytes__callable_object = Bytes()
