"""Right answers to lesson 04's exercises, in many forms."""

import math
from collections import namedtuple

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.lessons.attention_layer import (
    cross_attention,
    scaled_dot_product_attention,
    similarity_scores,
)

# ---- self_attention


def self_attention__cross_attention(x, w_q, w_k, w_v):
    return cross_attention(x, x, w_q, w_k, w_v)


def self_attention__lesson_03(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)


def self_attention__formula(x, w_q, w_k, w_v):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = torch.softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5, dim=-1)
    return weights @ v, weights


def self_attention__one_matrix_for_scores(x, w_q, w_k, w_v):
    scores = x @ (w_q @ w_k.T) @ x.transpose(-2, -1)
    weights = torch.softmax(scores / w_q.shape[-1] ** 0.5, dim=-1)
    return weights @ x @ w_v, weights


def self_attention__one_projection(x, w_q, w_k, w_v):
    widths = [w.shape[1] for w in (w_q, w_k, w_v)]
    q, k, v = (x @ torch.cat([w_q, w_k, w_v], dim=1)).split(widths, dim=-1)
    weights = F.softmax(q @ k.mT / math.sqrt(widths[0]), dim=-1)
    return weights @ v, weights


def self_attention__einsum(x, w_q, w_k, w_v):
    q, k, v = (torch.einsum("...ti,id->...td", x, w) for w in (w_q, w_k, w_v))
    scores = torch.einsum("...id,...jd->...ij", q, k) * w_q.shape[1] ** -0.5
    weights = scores.softmax(dim=-1)
    return torch.einsum("...ij,...jd->...id", weights, v), weights


def self_attention__pytorch(x, w_q, w_k, w_v):
    q, k = x @ w_q, x @ w_k
    n = x.shape[-2]
    unit = torch.eye(n).to(x).expand(*x.shape[:-1], n)
    attend = F.scaled_dot_product_attention
    return attend(q, k, x @ w_v), attend(q, k, unit)


def self_attention__token_by_token(x, w_q, w_k, w_v):
    outputs, weights = [], []
    for i in range(x.shape[-2]):
        query = x[..., i, :] @ w_q
        tokens = range(x.shape[-2])
        scores = [(query * (x[..., j, :] @ w_k)).sum(dim=-1) for j in tokens]
        row = torch.softmax(torch.stack(scores, dim=-1) / w_k.shape[1] ** 0.5, dim=-1)
        weights.append(row)
        outputs.append(sum(row[..., j, None] * (x[..., j, :] @ w_v) for j in tokens))
    return torch.stack(outputs, dim=-2), torch.stack(weights, dim=-2)


def self_attention__float64_and_back(x, w_q, w_k, w_v):
    wide, q, k, v = x.double(), w_q.double(), w_k.double(), w_v.double()
    weights = torch.softmax((wide @ q) @ (wide @ k).mT / q.shape[1] ** 0.5, dim=-1)
    return (weights @ (wide @ v)).to(x.dtype), weights.to(x.dtype)


def self_attention__recursion(x, w_q, w_k, w_v):
    def one(part):
        if part.dim() == 2:
            q, k, v = part.mm(w_q), part.mm(w_k), part.mm(w_v)
            weights = (q.mm(k.t()) / q.shape[1] ** 0.5).softmax(dim=1)
            return weights.mm(v), weights
        return tuple(map(torch.stack, zip(*map(one, part), strict=True)))

    return one(x)


def self_attention__named_tuple(x, w_q, w_k, w_v):
    Result = namedtuple("Result", "outputs weights")
    scores = similarity_scores(x @ w_q / w_q.shape[-1] ** 0.5, x @ w_k)
    weights = nn.functional.softmax(scores, -1)
    return Result(outputs=weights @ (x @ w_v), weights=weights)


class SelfAttention(nn.Module):
    """The layer as a module that gets its matrices in each call."""

    def forward(self, x, w_q, w_k, w_v):
        q, k, v = (F.linear(x, w.T) for w in (w_q, w_k, w_v))
        weights = (q @ k.mT).div(w_q.shape[-1] ** 0.5).softmax(dim=-1)
        return weights @ v, weights


self_attention__module = SelfAttention()

self_attention__lambda = lambda x, w_q, w_k, w_v: cross_attention(  # noqa: E731
    x, x, w_q=w_q, w_k=w_k, w_v=w_v
)


# ---- permute_tokens


def permute_tokens__index(x, order):
    return x[..., order, :]


def permute_tokens__index_select(x, order):
    return x.index_select(-2, order)


def permute_tokens__gather(x, order):
    return torch.gather(x, -2, order.long()[:, None].expand_as(x))


def permute_tokens__take_along_dim(x, order):
    index = order.reshape(*(1,) * (x.dim() - 2), -1, 1)
    return torch.take_along_dim(x, index.long(), dim=-2)


def permute_tokens__list_and_stack(x, order):
    return torch.stack([x[..., i, :] for i in order.tolist()], dim=-2)


def permute_tokens__slices_and_cat(x, order):
    parts = [x.narrow(-2, int(i), 1) for i in order]
    return torch.cat(parts, dim=-2)


def permute_tokens__tokens_first(x, order):
    return x.movedim(-2, 0)[order].movedim(0, -2)


def permute_tokens__transposed(x, order):
    return x.mT[..., order].mT


def permute_tokens__index_copy(x, order):
    places = torch.argsort(order)
    return torch.zeros_like(x).index_copy(-2, places, x)


def permute_tokens__scatter(x, order):
    places = order.argsort()[:, None].expand_as(x)
    return torch.zeros_like(x).scatter(-2, places, x)


def permute_tokens__written_into_a_new_tensor(x, order):
    result = torch.empty_like(x)
    for place, token in enumerate(order.tolist()):
        result[..., place, :] = x[..., token, :]
    return result


def permute_tokens__recursion(x, order):
    def one(part):
        return part[order] if part.dim() == 2 else torch.stack(list(map(one, part)))

    return one(x)


def permute_tokens__sorted_list(x, order):
    tokens = x.unbind(dim=-2)
    return torch.stack(list(map(tokens.__getitem__, order.tolist())), dim=-2)


def permute_tokens__flat(x, order):
    tokens, d = x.shape[-2:]
    columns = torch.arange(d, device=x.device)
    index = (order.unsqueeze(1) * d + columns).flatten()
    return x.reshape(*x.shape[:-2], tokens * d)[..., index].reshape(x.shape)


permute_tokens__lambda = lambda x, order: x[..., order.tolist(), :]  # noqa: E731


# ---- sinusoidal_encoding


def sinusoidal_encoding__stack_and_flatten(n_positions, d_model):
    positions = torch.arange(n_positions, dtype=torch.float64)
    exponents = -torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angles = positions.unsqueeze(-1) * 10000.0**exponents
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(-2)[:, :d_model].float()


def sinusoidal_encoding__filled_columns(n_positions, d_model):
    table = torch.zeros(n_positions, d_model)
    positions = torch.arange(n_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = positions / 10000 ** (even / d_model)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)[:, : d_model // 2]
    return table


def sinusoidal_encoding__exp_of_log(n_positions, d_model):
    positions = torch.arange(n_positions).double().unsqueeze(1)
    even = torch.arange(0, d_model, 2).double()
    angles = positions * torch.exp(even * (-math.log(10000.0) / d_model))
    table = torch.empty(n_positions, d_model, dtype=torch.float64)
    table[:, ::2] = angles.sin()
    table[:, 1::2] = angles[:, : d_model // 2].cos()
    return table.to(torch.float32)


def sinusoidal_encoding__number_by_number(n_positions, d_model):
    rows = []
    for t in range(n_positions):
        row = []
        for column in range(d_model):
            angle = t * 10000 ** (-(column // 2 * 2) / d_model)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float32).reshape(n_positions, d_model)


def sinusoidal_encoding__column_by_column(n_positions, d_model):
    positions = torch.arange(n_positions, dtype=torch.float64)
    columns = []
    for j in range(d_model):
        function = torch.cos if j % 2 else torch.sin
        columns.append(function(positions * 10000.0 ** (-(j - j % 2) / d_model)))
    return torch.stack(columns, dim=1).float()


def sinusoidal_encoding__where(n_positions, d_model):
    columns = torch.arange(d_model)
    exponents = columns.div(2, rounding_mode="floor").double() * 2 / d_model
    angles = torch.outer(torch.arange(n_positions).double(), 10000.0**-exponents)
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos()).float()


def sinusoidal_encoding__shifted_sine(n_positions, d_model):
    columns = torch.arange(d_model, dtype=torch.float64)
    frequencies = 10000.0 ** (-(columns - columns % 2) / d_model)
    positions = torch.arange(n_positions, dtype=torch.float64)[:, None]
    return torch.sin(positions * frequencies + columns % 2 * math.pi / 2).float()


def sinusoidal_encoding__numpy(n_positions, d_model):
    t, j = numpy.ogrid[:n_positions, :d_model]
    angles = t / 10000.0 ** (2 * (j // 2) / d_model)
    table = numpy.where(j % 2 == 0, numpy.sin(angles), numpy.cos(angles))
    return torch.from_numpy(table.astype(numpy.float32))


def sinusoidal_encoding__complex(n_positions, d_model):
    t = torch.arange(n_positions, dtype=torch.float64)
    i = torch.arange((d_model + 1) // 2, dtype=torch.float64)
    angles = torch.einsum("t,i->ti", t, 10000.0 ** (-2 * i / d_model))
    circle = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
    return circle.flip(-1).reshape(n_positions, 2 * len(i))[:, :d_model].float()


def sinusoidal_encoding__interleaved(n_positions, d_model):
    pairs = (d_model + 1) // 2
    frequencies = [1 / 10000 ** (2 * i / d_model) for i in range(pairs)]
    frequencies = torch.tensor(frequencies, dtype=torch.float64)
    angles = torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies
    halves = torch.cat([angles.sin(), angles.cos()], dim=1)
    order = torch.arange(2 * pairs).reshape(2, pairs).T.flatten()
    return halves[:, order[:d_model]].to(dtype=torch.float32)


def sinusoidal_encoding__repeat_interleave(n_positions, d_model):
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    frequencies = torch.pow(10000.0, -even / d_model).repeat_interleave(2)[:d_model]
    table = torch.arange(n_positions, dtype=torch.float64).unsqueeze(1) * frequencies
    table[:, 0::2].sin_()
    table[:, 1::2].cos_()
    return table.float()


# ---- apply_rotary


def apply_rotary__stack_and_flatten(x, positions):
    d_k = x.shape[-1]
    even = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-even / d_k)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2).to(x.dtype)


def apply_rotary__in_the_dtype_of_x(x, positions):
    d_k = x.shape[-1]
    even = torch.arange(0, d_k, 2, dtype=torch.float64).to(x.device)
    angles = positions[:, None] / 10000.0 ** (even / d_k)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def apply_rotary__filled_columns(x, positions):
    even = torch.arange(0, x.shape[-1], 2, dtype=torch.float64, device=x.device)
    angles = torch.outer(positions.double(), 10000.0 ** (-even / x.shape[-1]))
    result = torch.empty_like(x)
    a, b = x[..., 0::2], x[..., 1::2]
    result[..., 0::2] = (a * angles.cos() - b * angles.sin()).to(x.dtype)
    result[..., 1::2] = (a * angles.sin() + b * angles.cos()).to(x.dtype)
    return result


def apply_rotary__complex(x, positions):
    d_k = x.shape[-1]
    pairs = torch.view_as_complex(x.double().unflatten(-1, (d_k // 2, 2)).contiguous())
    i = torch.arange(d_k // 2, dtype=torch.float64, device=x.device)
    angles = positions.double()[:, None] * 10000.0 ** (-2 * i / d_k)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def apply_rotary__token_by_token(x, positions):
    tokens = []
    for j, position in enumerate(positions.tolist()):
        numbers = []
        for i in range(0, x.shape[-1], 2):
            angle = position * 10000 ** (-i / x.shape[-1])
            a, b = x[..., j, i], x[..., j, i + 1]
            numbers.append(a * math.cos(angle) - b * math.sin(angle))
            numbers.append(a * math.sin(angle) + b * math.cos(angle))
        tokens.append(torch.stack(numbers, dim=-1))
    return torch.stack(tokens, dim=-2)


def apply_rotary__pair_by_pair(x, positions):
    columns = []
    for i in range(x.shape[-1] // 2):
        angles = positions.double() * 10000.0 ** (-2 * i / x.shape[-1])
        a, b = x[..., 2 * i].double(), x[..., 2 * i + 1].double()
        columns += [a * angles.cos() - b * angles.sin()]
        columns += [a * angles.sin() + b * angles.cos()]
    return torch.stack(columns, dim=-1).to(x)


def apply_rotary__small_matrices(x, positions):
    d_k = x.shape[-1]
    even = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-even / d_k)
    first = torch.stack([angles.cos(), angles.sin()], dim=-1)
    second = torch.stack([-angles.sin(), angles.cos()], dim=-1)
    turn = torch.stack([first, second], dim=-2)
    pairs = x.double().reshape(*x.shape[:-1], 1, d_k // 2, 2).movedim(-3, -2)
    return (pairs @ turn).flatten(-3).to(x.dtype)


def apply_rotary__half_turned(x, positions):
    d_k = x.shape[-1]
    even = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-even / d_k)
    angles = angles.repeat_interleave(2, dim=-1)
    crossed = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape(x.shape)
    return (x * angles.cos() + crossed * angles.sin()).to(x.dtype)


def apply_rotary__swapped_by_index(x, positions):
    d_k = x.shape[-1]
    columns = torch.arange(d_k, device=x.device)
    frequencies = 10000.0 ** (-(columns - columns % 2).double() / d_k)
    angles = positions.double().unsqueeze(-1) * frequencies
    signs = torch.where(columns % 2 == 0, -1.0, 1.0)
    swapped = x[..., columns + 1 - 2 * (columns % 2)] * signs
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    return (x.to(wide) * cos + swapped.to(wide) * sin).to(x.dtype)


def apply_rotary__einsum(x, positions):
    d_k = x.shape[-1]
    even = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = torch.einsum("t,i->ti", positions.double(), 10000.0 ** (-even / d_k))
    c, s = angles.cos(), angles.sin()
    turn = torch.stack([c, -s, s, c], dim=-1).unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (-1, 2))
    return torch.einsum("tpij,...tpj->...tpi", turn, pairs).flatten(-2).to(x.dtype)


def apply_rotary__addcmul(x, positions):
    d_k = x.shape[-1]
    i = torch.arange(d_k // 2, dtype=torch.float64, device=x.device)
    angles = positions.reshape(-1, 1) * torch.exp(-2 * i / d_k * math.log(10000))
    a, b = x.reshape(*x.shape[:-1], d_k // 2, 2).unbind(dim=-1)
    new_a = torch.addcmul(a * angles.cos(), b, angles.sin(), value=-1)
    new_b = torch.addcmul(a * angles.sin(), b, angles.cos())
    return torch.cat([new_a[..., None], new_b[..., None]], -1).reshape(x.shape).to(x)


class Rotary(nn.Module):
    """The rotation as a module."""

    def forward(self, x, positions):
        i = torch.arange(0, x.shape[-1], 2, dtype=torch.float64, device=x.device)
        angles = positions[..., None] * (1.0 / 10000.0 ** (i / x.shape[-1]))
        a, b = x.double().unflatten(-1, (-1, 2)).unbind(-1)
        c, s = torch.cos(angles), torch.sin(angles)
        return self.join(a * c - b * s, a * s + b * c, x)

    def join(self, a, b, x):
        return torch.stack([a, b], dim=-1).reshape_as(x).to(x.dtype)


apply_rotary__module = Rotary()
