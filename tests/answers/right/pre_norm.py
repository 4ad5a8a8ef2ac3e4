"""Right answers to lesson 12's exercises, in many forms."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# ---- pre_norm_block


def pre_norm_block__two_lines(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def pre_norm_block__one_name_each(x, attention, mlp, norm_1, norm_2):
    normed = norm_1(x)
    y = x + attention(normed)
    normed = norm_2(y)
    z = y + mlp(normed)
    return z


def pre_norm_block__loop(x, attention, mlp, norm_1, norm_2):
    for part, norm in ((attention, norm_1), (mlp, norm_2)):
        x = x + part(norm(x))
    return x


def pre_norm_block__other_order_of_the_sum(x, attention, mlp, norm_1, norm_2):
    y = attention(norm_1(x)) + x
    return torch.add(mlp(norm_2(y)), y)


def pre_norm_block__walrus(x, attention, mlp, norm_1, norm_2):
    return (y := x + attention(norm_1(x))) + mlp(norm_2(y))


def pre_norm_block__residual_function(x, attention, mlp, norm_1, norm_2):
    def branch(x, part, norm):
        return x + part(norm(x))

    return branch(branch(x, attention, norm_1), mlp, norm_2)


def pre_norm_block__composed_parts(x, attention, mlp, norm_1, norm_2):
    read_1, read_2 = (lambda v: attention(norm_1(v))), (lambda v: mlp(norm_2(v)))
    y = x + read_1(x)
    return y + read_2(y)


def pre_norm_block__shortcut_kept(x, attention, mlp, norm_1, norm_2):
    shortcut = x
    x = attention(norm_1(x))
    x = x + shortcut
    shortcut = x
    return mlp(norm_2(x)) + shortcut


def pre_norm_block__clone_and_add(x, attention, mlp, norm_1, norm_2):
    y = x.clone()
    y += attention(norm_1(x))
    return y + mlp(norm_2(y))


def pre_norm_block__sum_of_a_stack(x, attention, mlp, norm_1, norm_2):
    y = torch.stack([x, attention(norm_1(x))]).sum(dim=0)
    return torch.stack([y, mlp(norm_2(y))]).sum(dim=0)


# ---- rms_norm


def rms_norm__rsqrt(x, gain, eps=1e-5):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain


def rms_norm__divided_by_the_root(x, gain, eps=1e-5):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def rms_norm__pytorch(x, gain, eps=1e-5):
    return F.rms_norm(x, gain.shape, gain, eps)


def rms_norm__module(x, gain, eps=1e-5):
    return nn.RMSNorm(x.shape[-1], eps=eps, elementwise_affine=False)(x) * gain


def rms_norm__einsum(x, gain, eps=1e-5):
    mean_square = torch.einsum("...d,...d->...", x, x) / x.shape[-1]
    return torch.einsum("...d,...,d->...d", x, (mean_square + eps) ** -0.5, gain)


def rms_norm__sum_divided(x, gain, eps=1e-5):
    d_model = x.shape[-1]
    return gain * x / ((x * x).sum(dim=-1, keepdim=True) / d_model + eps).sqrt()


def rms_norm__unsqueezed(x, gain, eps=1e-5):
    root = torch.sqrt((x**2).mean(dim=-1) + eps)
    return x / root.unsqueeze(-1) * gain


def rms_norm__matrix_product(x, gain, eps=1e-5):
    ones = torch.ones(x.shape[-1], 1, dtype=x.dtype, device=x.device)
    mean_square = x.square() @ ones / x.shape[-1]
    return x / (mean_square + eps) ** 0.5 * gain


def rms_norm__vector_after_vector(x, gain, eps=1e-5):
    vectors = [v / torch.sqrt((v * v).mean() + eps) * gain for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(vectors).reshape(x.shape)


def rms_norm__gain_first(x, gain, eps=1e-5):
    return (x * gain) / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def rms_norm__in_float32_at_least(x, gain, eps=1e-5):
    wide = x if x.dtype == torch.float64 else x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * gain


# ---- swiglu


def swiglu__one_line(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__sigmoid(x, w_gate, w_up, w_down):
    z = x @ w_gate
    return (z * torch.sigmoid(z) * (x @ w_up)) @ w_down


def swiglu__linear(x, w_gate, w_up, w_down):
    gate, up = F.linear(x, w_gate.T), F.linear(x, w_up.T)
    return F.linear(F.silu(gate) * up, w_down.T)


def swiglu__einsum(x, w_gate, w_up, w_down):
    gate = F.silu(torch.einsum("...d,dh->...h", x, w_gate))
    up = torch.einsum("...d,dh->...h", x, w_up)
    return torch.einsum("...h,...h,hd->...d", gate, up, w_down)


def swiglu__joint_matrix(x, w_gate, w_up, w_down):
    gate, up = (x @ torch.cat([w_gate, w_up], dim=-1)).chunk(2, dim=-1)
    return (F.silu(gate) * up) @ w_down


def swiglu__module(x, w_gate, w_up, w_down):
    return torch.matmul(nn.SiLU()(torch.matmul(x, w_gate)).mul(torch.matmul(x, w_up)), w_down)


def swiglu__stacked(x, w_gate, w_up, w_down):
    gate, up = torch.stack([x @ w_gate, x @ w_up])
    return (up * F.silu(gate)) @ w_down


def swiglu__exponential(x, w_gate, w_up, w_down):
    z = x @ w_gate
    return (z / (1 + torch.exp(-z)) * (x @ w_up)) @ w_down


def swiglu__vector_after_vector(x, w_gate, w_up, w_down):
    vectors = [(F.silu(v @ w_gate) * (v @ w_up)) @ w_down for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(vectors).reshape(x.shape)


def swiglu__tensordot(x, w_gate, w_up, w_down):
    gate, up = (torch.tensordot(x, w, dims=1) for w in (w_gate, w_up))
    return torch.tensordot(F.silu(gate) * up, w_down, dims=1)


# ---- route_top_k


def route_top_k__stable_sort(logits, k):
    ordered, experts = torch.sort(logits, dim=-1, descending=True, stable=True)
    return torch.softmax(ordered[..., :k], dim=-1), experts[..., :k]


def route_top_k__argsort_and_gather(logits, k):
    experts = torch.argsort(logits, dim=-1, descending=True, stable=True)[..., :k]
    return logits.gather(-1, experts).softmax(-1), experts


def route_top_k__minus_ascending(logits, k):
    experts = (-logits).argsort(dim=-1, stable=True)[..., :k]
    return torch.softmax(torch.take_along_dim(logits, experts, dim=-1), dim=-1), experts


def route_top_k__one_after_the_other(logits, k):
    left, experts = logits.detach().clone(), []
    for _ in range(k):
        # `argmax` of PyTorch gives the first of equal numbers
        best = (left == left.amax(dim=-1, keepdim=True)).int().argmax(dim=-1, keepdim=True)
        experts.append(best)
        left.scatter_(-1, best, -math.inf)
    chosen = torch.cat(experts, dim=-1)
    return torch.softmax(logits.gather(-1, chosen), dim=-1), chosen


def route_top_k__softmax_with_minus_infinity(logits, k):
    experts = logits.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    hidden = torch.ones_like(logits, dtype=torch.bool).scatter(-1, experts, False)
    return torch.softmax(logits.masked_fill(hidden, -math.inf), dim=-1).gather(-1, experts), experts


def route_top_k__normalised_again(logits, k):
    experts = logits.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    chosen = logits.gather(-1, experts)
    gates = torch.exp(chosen - chosen[..., :1])
    return gates / gates.sum(dim=-1, keepdim=True), experts


def route_top_k__log_softmax(logits, k):
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k].log_softmax(dim=-1).exp(), experts[..., :k]


def route_top_k__narrow(logits, k):
    found = torch.sort(logits, stable=True, descending=True)
    return F.softmax(found.values.narrow(-1, 0, k), dim=-1), found.indices.narrow(-1, 0, k)


def route_top_k__token_after_token(logits, k):
    rows = logits.reshape(-1, logits.shape[-1])
    order = [sorted(range(len(row)), key=lambda e, row=row: (-row[e].item(), e))[:k] for row in rows]
    experts = torch.tensor(order, device=logits.device).reshape(*logits.shape[:-1], k)
    return torch.softmax(logits.gather(-1, experts), dim=-1), experts


def route_top_k__counted_rank(logits, k):
    mine, other = logits.unsqueeze(-1), logits.unsqueeze(-2)
    numbers = torch.arange(logits.shape[-1], device=logits.device)
    earlier = numbers < numbers.unsqueeze(-1)
    rank = ((other > mine) | ((other == mine) & earlier)).sum(dim=-1)
    experts = rank.argsort(dim=-1)[..., :k]
    return torch.softmax(logits.gather(-1, experts), dim=-1), experts
