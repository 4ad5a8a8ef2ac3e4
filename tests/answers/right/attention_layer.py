"""Right answers to lesson 03's exercises, in many forms."""

import math
from collections import namedtuple
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.lessons.attention_layer import (
    scaled_dot_product_attention,
    similarity_scores,
)

# ---- similarity_scores


def similarity_scores__formula(queries, keys):
    return queries @ keys.transpose(-2, -1)


def similarity_scores__einsum(queries, keys):
    return torch.einsum("...qd,...kd->...qk", queries, keys)


similarity_scores__lambda = lambda queries, keys: queries.matmul(keys.mT)  # noqa: E731


def similarity_scores__broadcast_products(queries, keys):
    return (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(dim=-1)


def similarity_scores__the_other_way_round(queries, keys):
    return torch.matmul(keys, queries.swapaxes(-1, -2)).swapaxes(-1, -2)


def similarity_scores__double_loop(queries, keys):
    rows = []
    for i in range(queries.shape[-2]):
        row = []
        for j in range(keys.shape[-2]):
            row.append((queries[..., i, :] * keys[..., j, :]).sum(dim=-1))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2)


def similarity_scores__query_by_query(queries, keys):
    rows = [keys @ query.unsqueeze(-1) for query in queries.unbind(-2)]
    return torch.cat(rows, dim=-1).mT


def similarity_scores__bmm(queries, keys):
    q = queries.reshape(-1, *queries.shape[-2:])
    k = keys.reshape(-1, *keys.shape[-2:])
    scores = torch.bmm(q, k.permute(0, 2, 1))
    return scores.view(*queries.shape[:-1], keys.shape[-2])


def similarity_scores__recursion(queries, keys):
    def one(q, k):
        if q.dim() == 2:
            return torch.inner(q, k)
        return torch.stack([one(a, b) for a, b in zip(q, k, strict=True)])

    return one(queries, keys)


def similarity_scores__vmap(queries, keys):
    function = F.linear
    for _ in range(queries.dim() - 2):
        function = torch.vmap(function)
    return function(queries, keys)


def similarity_scores__outer_products(queries, keys):
    total = 0
    for d in range(queries.shape[-1]):
        total = total + queries[..., :, d, None] * keys[..., None, :, d]
    return total


def similarity_scores__float64_and_back(queries, keys):
    return (queries.double() @ keys.double().mT).to(queries.dtype)


# ---- score_variance


def score_variance__formula(queries, keys):
    return (queries * keys).sum(dim=-1).var(dim=-1)


def score_variance__by_hand(queries, keys):
    scores = (queries * keys).sum(dim=-1)
    distances = scores - scores.mean(dim=-1, keepdim=True)
    return (distances**2).sum(dim=-1) / (scores.shape[-1] - 1)


def score_variance__einsum(queries, keys):
    return torch.var(torch.einsum("...d,...d->...", queries, keys), dim=-1)


def score_variance__var_mean(queries, keys):
    variance, _ = torch.var_mean(torch.linalg.vecdot(queries, keys), dim=-1)
    return variance


def score_variance__diagonal(queries, keys):
    scores = similarity_scores(queries, keys)
    return scores.diagonal(dim1=-2, dim2=-1).var(-1, unbiased=True)


def score_variance__draw_by_draw(queries, keys):
    draws = range(queries.shape[-2])
    scores = [(queries[..., i, :] * keys[..., i, :]).sum(dim=-1) for i in draws]
    mean = sum(scores) / len(scores)
    return sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)


def score_variance__all_pairs(queries, keys):
    scores = (queries.unsqueeze(-2) @ keys.unsqueeze(-1)).flatten(-3)
    n = scores.shape[-1]
    gaps = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    return (gaps / n).square().sum(dim=(-2, -1)) * n / (2 * (n - 1))


def score_variance__running(queries, keys):
    mean = total = torch.zeros_like(queries[..., 0, 0])
    for i in range(queries.shape[-2]):
        score = (queries[..., i, :] * keys[..., i, :]).sum(-1)
        old, mean = mean, mean + (score - mean) / (i + 1)
        total = total + (score - old) * (score - mean)
    return total / (queries.shape[-2] - 1)


def score_variance__recursion(queries, keys):
    def one(q, k):
        if q.dim() > 2:
            return torch.stack([one(a, b) for a, b in zip(q, k, strict=True)])
        scores = torch.stack([a @ b for a, b in zip(q, k, strict=True)])
        return torch.cov(scores)

    return one(queries, keys)


def score_variance__float64_and_back(queries, keys):
    scores = (queries.double() * keys.double()).sum(-1)
    return scores.var(-1, correction=1).to(queries.dtype)


def score_variance__biased_then_corrected(queries, keys):
    scores = torch.mul(queries, keys).sum(dim=-1)
    n = scores.size(-1)
    return scores.var(dim=-1, correction=0) * (n / (n - 1))


# ---- scaled_dot_product_attention


def scaled_dot_product_attention__formula(queries, keys, values):
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ values, weights


def scaled_dot_product_attention__from_nothing(queries, keys, values):
    d_k = queries.size(-1)
    scores = torch.matmul(queries, keys.transpose(-2, -1)) / math.sqrt(d_k)
    attention = F.softmax(scores, dim=-1)
    return torch.matmul(attention, values), attention


def scaled_dot_product_attention__queries_scaled_first(queries, keys, values):
    weights = (queries * queries.shape[-1] ** -0.5 @ keys.mT).softmax(-1)
    return weights @ values, weights


def scaled_dot_product_attention__both_scaled(queries, keys, values):
    factor = queries.shape[-1] ** -0.25
    weights = ((queries * factor) @ (keys * factor).mT).softmax(dim=-1)
    return weights @ values, weights


def scaled_dot_product_attention__einsum(queries, keys, values):
    scores = torch.einsum("...qd,...kd->...qk", queries, keys)
    weights = torch.softmax(scores / queries.shape[-1] ** 0.5, dim=-1)
    return torch.einsum("...qk,...kv->...qv", weights, values), weights


def scaled_dot_product_attention__pytorch(queries, keys, values):
    n = keys.shape[-2]
    unit = torch.eye(n, dtype=keys.dtype, device=keys.device)
    units = unit.expand(*keys.shape[:-1], n)
    weights = F.scaled_dot_product_attention(queries, keys, units)
    return F.scaled_dot_product_attention(queries, keys, values), weights


def scaled_dot_product_attention__pytorch_outputs(queries, keys, values):
    weights = similarity_scores(queries, keys).div(keys.shape[-1] ** 0.5).softmax(-1)
    return F.scaled_dot_product_attention(queries, keys, values), weights


def scaled_dot_product_attention__query_by_query(queries, keys, values):
    outputs, weights = [], []
    for i in range(queries.shape[-2]):
        scores = (keys * queries[..., i, None, :]).sum(-1) / keys.shape[-1] ** 0.5
        w = torch.softmax(scores, dim=-1)
        weights.append(w)
        outputs.append((w.unsqueeze(-1) * values).sum(dim=-2))
    return torch.stack(outputs, dim=-2), torch.stack(weights, dim=-2)


def scaled_dot_product_attention__softmax_by_hand(queries, keys, values):
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    powers = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ values, weights


def scaled_dot_product_attention__baddbmm(queries, keys, values):
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (queries, keys, values))
    zero = torch.zeros(1, 1, 1, dtype=q.dtype, device=q.device)
    scores = torch.baddbmm(zero, q, k.mT, beta=0, alpha=1 / math.sqrt(q.shape[-1]))
    weights = scores.softmax(dim=-1)
    outputs = torch.bmm(weights, v).reshape(*queries.shape[:-1], v.shape[-1])
    return outputs, weights.reshape(*queries.shape[:-1], k.shape[-2])


def scaled_dot_product_attention__recursion(queries, keys, values):
    def one(q, k, v):
        if q.dim() > 2:
            both = [one(*parts) for parts in zip(q, k, v, strict=True)]
            return tuple(torch.stack(results) for results in zip(*both, strict=True))
        weights = torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1)
        return weights @ v, weights

    return one(queries, keys, values)


def scaled_dot_product_attention__float64_and_back(queries, keys, values):
    q, k, v = queries.double(), keys.double(), values.double()
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
    return (weights @ v).to(values.dtype), weights.to(queries.dtype)


def scaled_dot_product_attention__named_tuple(queries, keys, values):
    Attention = namedtuple("Attention", "outputs weights")
    scale = torch.rsqrt(torch.tensor(float(queries.shape[-1])))
    scale = scale.to(queries.device, queries.dtype)
    exact = queries.shape[-1] ** -0.5 if queries.dtype == torch.float64 else scale
    weights = torch.softmax(similarity_scores(queries, keys) * exact, -1)
    return Attention(weights @ values, weights)


def scaled_dot_product_attention__key_by_key(queries, keys, values):
    scores = similarity_scores(queries, keys) / keys.shape[-1] ** 0.5
    scores = scores - scores.amax(dim=-1, keepdim=True)
    logs = scores - scores.logsumexp(dim=-1, keepdim=True)
    outputs = 0
    for j, value in enumerate(values.unbind(dim=-2)):
        outputs = outputs + logs[..., j, None].exp() * value.unsqueeze(-2)
    return outputs, logs.exp()


class Attention(nn.Module):
    """Attention without parameters, as a module."""

    def forward(self, queries, keys, values):
        scores = queries @ keys.mT
        weights = nn.Softmax(dim=-1)(scores / scores.new_tensor(keys.shape[-1]).sqrt())
        return weights @ values, weights


scaled_dot_product_attention__module = Attention()


# ---- cross_attention


def cross_attention__three_projections(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v)


def cross_attention__formula(queries, data, w_q, w_k, w_v):
    q, k, v = queries @ w_q, data @ w_k, data @ w_v
    weights = torch.softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5, dim=-1)
    return weights @ v, weights


def cross_attention__one_product_of_matrices(queries, data, w_q, w_k, w_v):
    scores = queries @ (w_q @ w_k.T) @ data.mT / w_q.shape[1] ** 0.5
    weights = scores.softmax(dim=-1)
    return weights @ data @ w_v, weights


def cross_attention__linear(queries, data, w_q, w_k, w_v):
    q, k, v = F.linear(queries, w_q.T), F.linear(data, w_k.T), F.linear(data, w_v.T)
    weights = torch.softmax(similarity_scores(q, k) / math.sqrt(q.shape[-1]), dim=-1)
    return torch.matmul(weights, v), weights


def cross_attention__einsum(queries, data, w_q, w_k, w_v):
    q = torch.einsum("...qi,id->...qd", queries, w_q)
    k = torch.einsum("...ki,id->...kd", data, w_k)
    scores = torch.einsum("...qd,...kd->...qk", q, k)
    weights = scores.div(w_k.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("...qk,...ki,iv->...qv", weights, data, w_v), weights


def cross_attention__one_product_for_data(queries, data, w_q, w_k, w_v):
    both = data @ torch.cat([w_k, w_v], dim=1)
    k, v = both.split([w_k.shape[1], w_v.shape[1]], dim=-1)
    return scaled_dot_product_attention(queries @ w_q, k, v)


def cross_attention__scale_in_the_matrix(queries, data, w_q, w_k, w_v):
    scores = queries @ (w_q / w_q.shape[1] ** 0.5) @ (data @ w_k).mT
    weights = F.softmax(scores, dim=-1)
    return weights @ (data @ w_v), weights


def cross_attention__query_by_query(queries, data, w_q, w_k, w_v):
    outputs, weights = [], []
    for query in queries.unbind(dim=-2):
        scores = ((query @ w_q).unsqueeze(-2) * (data @ w_k)).sum(dim=-1)
        weights.append((scores / w_q.shape[-1] ** 0.5).softmax(dim=-1))
        outputs.append((weights[-1].unsqueeze(-2) @ data @ w_v).squeeze(-2))
    return torch.stack(outputs, dim=-2), torch.stack(weights, dim=-2)


def cross_attention__pytorch(queries, data, w_q, w_k, w_v):
    def attend(values):
        return F.scaled_dot_product_attention(queries @ w_q, data @ w_k, values)

    n = data.shape[-2]
    unit = torch.eye(n, dtype=data.dtype, device=data.device)
    return attend(data @ w_v), attend(unit.expand(*data.shape[:-1], n))


def cross_attention__recursion(queries, data, w_q, w_k, w_v):
    def one(q, x):
        if q.dim() == 2:
            return scaled_dot_product_attention(q.mm(w_q), x.mm(w_k), x.mm(w_v))
        outputs, weights = [], []
        for parts in zip(q, x, strict=True):
            o, w = one(*parts)
            outputs.append(o)
            weights.append(w)
        return torch.stack(outputs), torch.stack(weights)

    return one(queries, data)


def cross_attention__float64_and_back(queries, data, w_q, w_k, w_v):
    wide = [x.double() for x in (queries, data, w_q, w_k, w_v)]
    q, k, v = wide[0] @ wide[2], wide[1] @ wide[3], wide[1] @ wide[4]
    outputs, weights = scaled_dot_product_attention(q, k, v)
    return outputs.to(data.dtype), weights.to(data.dtype)


def cross_attention__typed_tuple(queries, data, w_q, w_k, w_v):
    class Result(NamedTuple):
        outputs: Tensor
        weights: Tensor

    return Result(*scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v))


class CrossAttention:
    """The layer as an object that can be called."""

    def __call__(self, queries, data, w_q, w_k, w_v):
        self.project = torch.matmul
        q, k, v = self.project(queries, w_q), data.matmul(w_k), data.matmul(w_v)
        return scaled_dot_product_attention(keys=k, values=v, queries=q)


cross_attention__callable_object = CrossAttention()
