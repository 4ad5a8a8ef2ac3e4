"""Right answers to lesson 08's exercises, in many forms."""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.lessons.transformer_block import TransformerBlock

# ---- layer_norm


def layer_norm__steps(x, gain, bias, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * gain + bias


def layer_norm__var_correction_0(x, gain, bias, eps=1e-5):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def layer_norm__unbiased_false(x, gain, bias, eps=1e-5):
    variance = torch.var(x, dim=-1, unbiased=False, keepdim=True)
    return gain * (x - torch.mean(x, -1, True)) * torch.rsqrt(variance + eps) + bias


def layer_norm__var_mean(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) * (variance + eps) ** -0.5 * gain + bias


def layer_norm__pytorch(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, gain.shape, gain, bias, eps)


def layer_norm__module(x, gain, bias, eps=1e-5):
    norm = nn.LayerNorm(x.shape[-1], eps=eps, elementwise_affine=False)
    return norm(x) * gain + bias


def layer_norm__sum_divided(x, gain, bias, eps=1e-5):
    d_model = x.shape[-1]
    mean = x.sum(dim=-1, keepdim=True) / d_model
    variance = ((x - mean) ** 2).sum(dim=-1, keepdim=True) / d_model
    return torch.addcmul(bias, (x - mean) / (variance + eps) ** 0.5, gain)


def layer_norm__unsqueezed(x, gain, bias, eps=1e-5):
    centred = x - x.mean(dim=-1).unsqueeze(-1)
    variance = torch.einsum("...d,...d->...", centred, centred) / x.shape[-1]
    return centred / torch.sqrt(variance[..., None] + eps) * gain + bias


def layer_norm__norm_of_the_centred(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    squares = (centred * centred).mean(-1, keepdim=True)
    return centred.div(squares.add(eps).sqrt()).mul(gain).add(bias)


def layer_norm__one_vector_after_the_other(x, gain, bias, eps=1e-5):
    rows = []
    for vector in x.reshape(-1, x.shape[-1]):
        centred = vector - vector.mean()
        rows.append(centred / torch.sqrt((centred**2).mean() + eps))
    return torch.stack(rows).reshape(x.shape) * gain + bias


def layer_norm__recursion(x, gain, bias, eps=1e-5):
    if x.dim() > 1:
        return torch.stack([layer_norm__recursion(part, gain, bias, eps) for part in x])
    centred = x - sum(x) / len(x)
    return centred * (sum(centred * centred) / len(x) + eps) ** -0.5 * gain + bias


# ---- mlp


def mlp__formula(x, w_up, b_up, w_down, b_down):
    return torch.relu(x @ w_up + b_up) @ w_down + b_down


def mlp__linear(x, w_up, b_up, w_down, b_down):
    return F.linear(F.relu(F.linear(x, w_up.T, b_up)), w_down.T, b_down)


def mlp__clamp(x, w_up, b_up, w_down, b_down):
    hidden = (x.matmul(w_up) + b_up).clamp(min=0)
    return hidden.matmul(w_down) + b_down


def mlp__einsum(x, w_up, b_up, w_down, b_down):
    hidden = torch.einsum("...d,dh->...h", x, w_up).add(b_up).relu()
    return torch.einsum("...h,hd->...d", hidden, w_down).add(b_down)


def mlp__maximum(x, w_up, b_up, w_down, b_down):
    hidden = x @ w_up + b_up
    hidden = torch.maximum(hidden, torch.zeros_like(hidden))
    return hidden @ w_down + b_down


def mlp__where(x, w_up, b_up, w_down, b_down):
    hidden = x @ w_up + b_up
    return torch.where(hidden > 0, hidden, 0) @ w_down + b_down


def mlp__tensordot(x, w_up, b_up, w_down, b_down):
    hidden = F.relu(torch.tensordot(x, w_up, dims=1) + b_up)
    return torch.tensordot(hidden, w_down, dims=1) + b_down


def mlp__one_vector_after_the_other(x, w_up, b_up, w_down, b_down):
    rows = [(v @ w_up + b_up).relu() @ w_down for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).reshape(x.shape) + b_down


def mlp__in_place(x, w_up, b_up, w_down, b_down):
    hidden = x @ w_up
    hidden = (hidden + b_up).relu_()
    return b_down + hidden @ w_down


def mlp__addmm(x, w_up, b_up, w_down, b_down):
    flat = x.reshape(-1, x.shape[-1])
    hidden = torch.addmm(b_up, flat, w_up).relu()
    return torch.addmm(b_down, hidden, w_down).reshape(x.shape)


def mlp__layers_in_a_row(x, w_up, b_up, w_down, b_down):
    layers = (lambda v: v @ w_up + b_up, F.relu, lambda v: v @ w_down + b_down)
    return reduce(lambda value, layer: layer(value), layers, x)


# ---- post_norm_block


def post_norm_block__two_lines(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def post_norm_block__names(x, attention, mlp, norm_1, norm_2):
    attended = attention(x)
    y = norm_1(x + attended)
    changed = mlp(y)
    z = norm_2(y + changed)
    return z


def post_norm_block__loop(x, attention, mlp, norm_1, norm_2):
    for part, norm in ((attention, norm_1), (mlp, norm_2)):
        x = norm(x + part(x))
    return x


def post_norm_block__loop_with_zip(x, attention, mlp, norm_1, norm_2):
    for part, norm in zip((attention, mlp), (norm_1, norm_2), strict=True):
        residual = x
        x = part(x)
        x = norm(residual + x)
    return x


def post_norm_block__inner_function(x, attention, mlp, norm_1, norm_2):
    def half(x, part, norm):
        return norm(part(x) + x)

    return half(half(x, attention, norm_1), mlp, norm_2)


def post_norm_block__reduce(x, attention, mlp, norm_1, norm_2):
    halves = [(attention, norm_1), (mlp, norm_2)]
    return reduce(lambda v, half: half[1](torch.add(v, half[0](v))), halves, x)


def post_norm_block__sum(x, attention, mlp, norm_1, norm_2):
    y = norm_1(torch.stack([x, attention(x)]).sum(dim=0))
    return norm_2(torch.stack([y, mlp(y)]).sum(dim=0))


def post_norm_block__sum_of_list(x, attention, mlp, norm_1, norm_2):
    y = norm_1(sum([x, attention(x)]))
    return norm_2(sum([y, mlp(y)]))


post_norm_block__lambda = lambda x, attention, mlp, norm_1, norm_2: norm_2(  # noqa: E731
    (y := norm_1(x + attention(x))) + mlp(y)
)


def post_norm_block__walrus(x, attention, mlp, norm_1, norm_2):
    return norm_2((y := norm_1(attention(x) + x)).add(mlp(y)))


# ---- count_parameters


def count_parameters__formula(d_model, d_hidden):
    attention = 4 * (d_model * d_model + d_model)
    mlp = d_model * d_hidden + d_hidden + d_hidden * d_model + d_model
    return attention + mlp + 4 * d_model


def count_parameters__one_line(d_model, d_hidden):
    return 4 * d_model**2 + 2 * d_model * d_hidden + 9 * d_model + d_hidden


def count_parameters__linear_layers(d_model, d_hidden):
    def linear(inputs, outputs):
        return (inputs + 1) * outputs

    layers = 4 * linear(d_model, d_model)
    layers += linear(d_model, d_hidden) + linear(d_hidden, d_model)
    return layers + 2 * (2 * d_model)


def count_parameters__shapes(d_model, d_hidden):
    matrices = [(d_model, d_model)] * 4 + [(d_model, d_hidden), (d_hidden, d_model)]
    vectors = [columns for _, columns in matrices] + [d_model] * 4
    return sum(rows * columns for rows, columns in matrices) + sum(vectors)


def count_parameters__the_block(d_model, d_hidden):
    with torch.device("meta"):
        block = TransformerBlock(d_model, 1, d_hidden)
    return sum(p.numel() for p in block.parameters())


def count_parameters__pytorchs_block(d_model, d_hidden):
    layer = nn.TransformerEncoderLayer(d_model, 1, d_hidden, device="meta")
    return sum(p.numel() for p in layer.parameters())


def count_parameters__module_by_module(d_model, d_hidden):
    square = [nn.Linear(d_model, d_model, device="meta") for _ in range(4)]
    mlp = [nn.Linear(d_model, d_hidden, device="meta")]
    mlp.append(nn.Linear(d_hidden, d_model, device="meta"))
    norms = [nn.LayerNorm(d_model, device="meta") for _ in range(2)]
    parts = nn.ModuleList([*square, *mlp, *norms])
    return sum(math.prod(p.shape) for p in parts.parameters())


def count_parameters__loop(d_model, d_hidden):
    total = 0
    for inputs, outputs in 4 * [(d_model, d_model)] + [(d_model, d_hidden)]:
        total += inputs * outputs + outputs
    total += d_hidden * d_model + d_model
    for _norm in range(2):
        total += d_model + d_model
    return total


def count_parameters__factored(d_model, d_hidden):
    return d_model * (4 * d_model + 2 * d_hidden + 9) + d_hidden


count_parameters__lambda = lambda d_model, d_hidden: (  # noqa: E731
    4 * d_model * (d_model + 1) + d_hidden * (2 * d_model + 1) + d_model * 5
)
