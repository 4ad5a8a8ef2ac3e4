"""Wrong answers to lesson 12's exercises; each docstring says what is wrong."""

import torch
import torch.nn.functional as F

# ---- pre_norm_block


def pre_norm_block__post_norm(x, attention, mlp, norm_1, norm_2):
    """The norms stand behind the sums."""
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def pre_norm_block__half_post(x, attention, mlp, norm_1, norm_2):
    """The second half is Post-LN."""
    x = x + attention(norm_1(x))
    return norm_2(x + mlp(x))


def pre_norm_block__normed_copy_added(x, attention, mlp, norm_1, norm_2):
    """The normed vectors are added, not the vectors."""
    x = norm_1(x)
    x = x + attention(x)
    x = norm_2(x)
    return x + mlp(x)


def pre_norm_block__normed_copy_added_in_the_second_half(x, attention, mlp, norm_1, norm_2):
    """In the second half the normed vectors are added."""
    x = x + attention(norm_1(x))
    x = norm_2(x)
    return x + mlp(x)


def pre_norm_block__norm_after_the_part(x, attention, mlp, norm_1, norm_2):
    """The parts' outputs are normed, not their inputs."""
    x = x + norm_1(attention(x))
    return x + norm_2(mlp(x))


def pre_norm_block__no_residuals(x, attention, mlp, norm_1, norm_2):
    """Nothing is added."""
    return mlp(norm_2(attention(norm_1(x))))


def pre_norm_block__norm_at_the_end_too(x, attention, mlp, norm_1, norm_2):
    """A norm at the end of the block."""
    x = x + attention(norm_1(x))
    return norm_2(x + mlp(norm_2(x)))


def pre_norm_block__first_input_added_twice(x, attention, mlp, norm_1, norm_2):
    """To the MLP's output the block's input is added."""
    y = x + attention(norm_1(x))
    return x + mlp(norm_2(y))


def pre_norm_block__parallel(x, attention, mlp, norm_1, norm_2):
    """Attention and MLP read the same input."""
    return x + attention(norm_1(x)) + mlp(norm_2(x))


def pre_norm_block__one_norm(x, attention, mlp, norm_1, norm_2):
    """`norm_1` in both halves."""
    x = x + attention(norm_1(x))
    return x + mlp(norm_1(x))


def pre_norm_block__norms_exchanged(x, attention, mlp, norm_1, norm_2):
    """`norm_2` for the attention."""
    x = x + attention(norm_2(x))
    return x + mlp(norm_1(x))


def pre_norm_block__in_place(x, attention, mlp, norm_1, norm_2):
    """The input is overwritten."""
    x += attention(norm_1(x))
    return x + mlp(norm_2(x))


def pre_norm_block__residual_detached(x, attention, mlp, norm_1, norm_2):
    """No gradient on the path of x."""
    x = x.detach() + attention(norm_1(x))
    return x + mlp(norm_2(x))


def pre_norm_block__mlp_alone(x, attention, mlp, norm_1, norm_2):
    """The attention is forgotten."""
    return x + mlp(norm_2(x))


def pre_norm_block__attention_recomputed(x, attention, mlp, norm_1, norm_2):
    """The attention is computed twice."""
    y = x + attention(norm_1(x))
    return x + attention(norm_1(x)) + mlp(norm_2(y))


# ---- rms_norm


def rms_norm__mean_subtracted(x, gain, eps=1e-5):
    """The mean is subtracted: LayerNorm without a bias."""
    return F.layer_norm(x, gain.shape, gain, None, eps)


def rms_norm__deviation(x, gain, eps=1e-5):
    """Divided by the standard deviation from the mean."""
    return x / torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + eps) * gain


def rms_norm__length_one(x, gain, eps=1e-5):
    """The sum of the squares, not their mean."""
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + eps) * gain


def rms_norm__normalize(x, gain, eps=1e-5):
    """Length 1, and eps is a smallest length."""
    return F.normalize(x, dim=-1, eps=eps) * gain


def rms_norm__no_root(x, gain, eps=1e-5):
    """The root is missing."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps) * gain


def rms_norm__eps_outside(x, gain, eps=1e-5):
    """eps stands outside the root."""
    return x / (x.square().mean(dim=-1, keepdim=True).sqrt() + eps) * gain


def rms_norm__no_eps(x, gain, eps=1e-5):
    """eps is forgotten."""
    return x / x.square().mean(dim=-1, keepdim=True).sqrt() * gain


def rms_norm__no_gain(x, gain, eps=1e-5):
    """The gain is forgotten."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def rms_norm__one_plus_gain(x, gain, eps=1e-5):
    """1 + gain."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + gain)


def rms_norm__no_keepdim(x, gain, eps=1e-5):
    """`keepdim` is missing."""
    return x / torch.sqrt(x.square().mean(dim=-1) + eps) * gain


def rms_norm__all_at_once(x, gain, eps=1e-5):
    """One size for all vectors."""
    return x / torch.sqrt(x.square().mean() + eps) * gain


def rms_norm__root_of_the_squares(x, gain, eps=1e-5):
    """The mean of the absolute values."""
    return x / (x.square().sqrt().mean(dim=-1, keepdim=True) + eps) * gain


def rms_norm__detached(x, gain, eps=1e-5):
    """No gradient through the size."""
    with torch.no_grad():
        size = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return x / size * gain


def rms_norm__default_eps_of_pytorch(x, gain, eps=1e-5):
    """eps is not passed on."""
    return F.rms_norm(x, gain.shape, gain)


def rms_norm__in_place(x, gain, eps=1e-5):
    """The input is overwritten."""
    x /= torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return x * gain


def rms_norm__always_float32(x, gain, eps=1e-5):
    """Another dtype than that of x."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain.float()


# ---- swiglu


def swiglu__exchanged(x, w_gate, w_up, w_down):
    """The SiLU is on the other one."""
    return ((x @ w_gate) * F.silu(x @ w_up)) @ w_down


def swiglu__glu(x, w_gate, w_up, w_down):
    """A sigmoid instead of the SiLU."""
    return (torch.sigmoid(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__geglu(x, w_gate, w_up, w_down):
    """GELU instead of the SiLU."""
    return (F.gelu(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__reglu(x, w_gate, w_up, w_down):
    """ReLU instead of the SiLU."""
    return (F.relu(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__bilinear(x, w_gate, w_up, w_down):
    """No SiLU."""
    return ((x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__silu_of_the_product(x, w_gate, w_up, w_down):
    """The SiLU around the product."""
    return F.silu((x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__silu_of_both(x, w_gate, w_up, w_down):
    """A SiLU on both."""
    return (F.silu(x @ w_gate) * F.silu(x @ w_up)) @ w_down


def swiglu__sum(x, w_gate, w_up, w_down):
    """A sum, not a product."""
    return (F.silu(x @ w_gate) + x @ w_up) @ w_down


def swiglu__no_up(x, w_gate, w_up, w_down):
    """`w_up` is not used."""
    return F.silu(x @ w_gate) @ w_down


def swiglu__softmax(x, w_gate, w_up, w_down):
    """Gates that sum to 1."""
    return (F.softmax(x @ w_gate, dim=-1) * (x @ w_up)) @ w_down


def swiglu__residual(x, w_gate, w_up, w_down):
    """The input is added."""
    return x + (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu__silu_at_the_end(x, w_gate, w_up, w_down):
    """The SiLU is taken at the end."""
    return F.silu(((x @ w_gate) * (x @ w_up)) @ w_down)


def swiglu__linear(x, w_gate, w_up, w_down):
    """`F.linear` transposes its matrix."""
    return F.linear(F.silu(F.linear(x, w_gate)) * F.linear(x, w_up), w_down)


def swiglu__gates_detached(x, w_gate, w_up, w_down):
    """No gradient through the gates."""
    return (F.silu(x @ w_gate).detach() * (x @ w_up)) @ w_down


def swiglu__squeezed(x, w_gate, w_up, w_down):
    """Right until a size is 1."""
    return ((F.silu(x @ w_gate) * (x @ w_up)) @ w_down).squeeze()


def swiglu__pytorch_glu(x, w_gate, w_up, w_down):
    """`F.glu` has a sigmoid, and its gates are the second half."""
    return F.glu(torch.cat([x @ w_up, x @ w_gate], dim=-1), dim=-1) @ w_down


# ---- route_top_k


def route_top_k__topk(logits, k):
    """`topk` promises no order for equal logits."""
    chosen, experts = logits.topk(k, dim=-1)
    return chosen.softmax(dim=-1), experts


def route_top_k__unstable_sort(logits, k):
    """`sort` without `stable=True` promises no order for equal logits."""
    experts = logits.flip(-1).argsort(dim=-1, descending=True, stable=True)[..., :k]
    experts = logits.shape[-1] - 1 - experts
    return logits.gather(-1, experts).softmax(dim=-1), experts


def route_top_k__softmax_before(logits, k):
    """The gates are normalised before the choice."""
    gates, experts = logits.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    return gates[..., :k], experts[..., :k]


def route_top_k__ordered_by_probability(logits, k):
    """Probabilities that underflow to 0 look equal."""
    gates, experts = logits.softmax(-1).sort(descending=True, stable=True)
    gates = gates[..., :k]
    return gates / gates.sum(-1, keepdim=True), experts[..., :k]


def route_top_k__raw(logits, k):
    """The logits are the gates."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k], experts[..., :k]


def route_top_k__shares_of_the_logits(logits, k):
    """The logits divided by their sum."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    chosen = ordered[..., :k]
    return chosen / chosen.sum(dim=-1, keepdim=True), experts[..., :k]


def route_top_k__sigmoid(logits, k):
    """Each gate on its own."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k].sigmoid(), experts[..., :k]


def route_top_k__smallest(logits, k):
    """The smallest logits are chosen."""
    ordered, experts = logits.sort(dim=-1, stable=True)
    return ordered[..., :k].softmax(dim=-1), experts[..., :k]


def route_top_k__by_number(logits, k):
    """The experts come in the order of their numbers."""
    experts = logits.argsort(dim=-1, descending=True, stable=True)[..., :k].sort(dim=-1).values
    return logits.gather(-1, experts).softmax(dim=-1), experts


def route_top_k__exchanged(logits, k):
    """The numbers first, then the gates."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return experts[..., :k], ordered[..., :k].softmax(dim=-1)


def route_top_k__detached(logits, k):
    """No gradient reaches the router."""
    ordered, experts = logits.detach().sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k].softmax(dim=-1), experts[..., :k]


def route_top_k__equal_gates(logits, k):
    """All gates are 1 / k."""
    experts = logits.argsort(dim=-1, descending=True, stable=True)[..., :k]
    return torch.full_like(experts, 1, dtype=logits.dtype) / k, experts


def route_top_k__all_gates(logits, k):
    """A gate for every expert, with zeros."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    gates = torch.zeros_like(logits).scatter(-1, experts[..., :k], ordered[..., :k].softmax(dim=-1))
    return gates, experts[..., :k]


def route_top_k__int32(logits, k):
    """The numbers are int32."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k].softmax(dim=-1), experts[..., :k].int()


def route_top_k__first_dimension(logits, k):
    """The best tokens of each expert, not the best experts of each token."""
    ordered, experts = logits.sort(dim=0, descending=True, stable=True)
    return ordered[:k].softmax(dim=0), experts[:k]


def route_top_k__first_dimension_of_the_softmax(logits, k):
    """The softmax goes over the first dimension."""
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :k].softmax(dim=0), experts[..., :k]
