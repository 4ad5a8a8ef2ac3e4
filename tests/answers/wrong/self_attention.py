"""Wrong answers to lesson 04's exercises; each docstring says what is wrong."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.attention_layer import (
    cross_attention,
    scaled_dot_product_attention,
    similarity_scores,
)
from course_utils.lessons.self_attention import apply_rotary, sinusoidal_encoding

# ---- self_attention


def self_attention__only_outputs(x, w_q, w_k, w_v):
    """Returns the outputs only: the weights are not returned."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
    return weights @ v


def self_attention__keys_ask(x, w_q, w_k, w_v):
    """Keys and queries are exchanged: the scores are transposed."""
    q, k, v = x @ w_k, x @ w_q, x @ w_v
    return scaled_dot_product_attention(q, k, v)


def self_attention__w_k_and_w_v_exchanged(x, w_q, w_k, w_v):
    """The keys are made with w_v and the values with w_k."""
    return cross_attention(x, x, w_q, w_v, w_k)


def self_attention__scale_of_d_in(x, w_q, w_k, w_v):
    """Divides by the root of d_in, the width of x, not of d_k."""
    scores = similarity_scores(x @ w_q, x @ w_k) / math.sqrt(x.shape[-1])
    weights = scores.softmax(dim=-1)
    return weights @ (x @ w_v), weights


def self_attention__matrices_transposed(x, w_q, w_k, w_v):
    """Multiplies by the transposed matrices, as `nn.Linear` keeps them."""
    q, k, v = (x @ w.T for w in (w_q, w_k, w_v))
    return scaled_dot_product_attention(q, k, v)


def self_attention__causal(x, w_q, w_k, w_v):
    """The future is hidden, although every token may look at every token."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
    return weights @ v, weights


def self_attention__unscaled_weights(x, w_q, w_k, w_v):
    """The outputs are right, but the weights come from scores without the scale."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    outputs = F.scaled_dot_product_attention(q, k, v)
    return outputs, torch.softmax(q @ k.mT, dim=-1)


def self_attention__dot_t_and_whole_root(x, w_q, w_k, w_v):
    """Two faults: `.T` turns leading dimensions round too, and `int` cuts the root."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = torch.softmax(q @ k.T / int(math.sqrt(k.shape[-1])), dim=-1)
    return weights @ v, weights


def self_attention__wide_result(x, w_q, w_k, w_v):
    """Computed in float64 and never turned back: the results are float64."""
    x, w_q, w_k, w_v = x.double(), w_q.double(), w_k.double(), w_v.double()
    return cross_attention(x, x, w_q, w_k, w_v)


def self_attention__scores_detached(x, w_q, w_k, w_v):
    """The weights are cut off: no gradient goes to w_q and w_k."""
    with torch.no_grad():
        scores = similarity_scores(x @ w_q, x @ w_k) / w_q.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    return weights @ (x @ w_v), weights


def self_attention__squeezed(x, w_q, w_k, w_v):
    """`squeeze` removes every dimension of size 1 from the results."""
    outputs, weights = cross_attention(x, x, w_q, w_k, w_v)
    return outputs.squeeze(), weights.squeeze()


# ---- permute_tokens


def permute_tokens__first_dimension(x, order):
    """Reorders dimension 0: the tokens only where there are no leading dimensions."""
    return x[order]


def permute_tokens__way_back(x, order):
    """The inverse order: token i goes *to* place order[i]."""
    return x[..., order.argsort(), :]


def permute_tokens__written_to_their_places(x, order):
    """Token i is written to place order[i], instead of taken from there."""
    result = torch.zeros_like(x)
    for i, place in enumerate(order.tolist()):
        result[..., place, :] = x[..., i, :]
    return result


def permute_tokens__read_after_writing(x, order):
    """The loop reads tokens that it has overwritten before."""
    result = x.clone()
    for i, j in enumerate(order):
        result[..., i, :] = result[..., j, :]
    return result


def permute_tokens__written_into_x(x, order):
    """`result` is x itself: the input is changed, and read after it was changed."""
    result = x
    for i in range(len(order)):
        result[..., i, :] = x[..., order[i], :]
    return result


def permute_tokens__only_the_first_sequence(x, order):
    """Of a batch only the first element is reordered, the others stay as they are."""
    if x.dim() == 2:
        return x[order]
    result = x.clone()
    result[0] = x[0][..., order, :]
    return result


def permute_tokens__new_tensor_of_float32(x, order):
    """The new tensor is float32 on the CPU, whatever x is."""
    result = torch.empty(x.shape)
    for i, token in enumerate(order.tolist()):
        result[..., i, :] = x[..., token, :]
    return result


def permute_tokens__detached(x, order):
    """`.data` cuts the result off: no gradient goes to x."""
    return x.data.index_select(-2, order)


def permute_tokens__rolled(x, order):
    """Rolls the tokens until the first is right: most orders are no roll."""
    return x.roll(-int(order[0]), dims=-2)


def permute_tokens__product_with_a_matrix(x, order):
    """A product with zeros and ones: one NaN or infinity spreads to all tokens."""
    matrix = F.one_hot(order.long(), x.shape[-2]).to(x)
    return matrix @ x


# ---- sinusoidal_encoding


def sinusoidal_encoding__float32_angles(n_positions, d_model):
    """Everything is float32: large angles have lost their digits."""
    positions = torch.arange(n_positions).float().unsqueeze(1)
    step = -math.log(10000.0) / d_model
    frequencies = torch.exp(torch.arange(0, d_model, 2) * step)
    result = torch.zeros(n_positions, d_model)
    result[:, 0::2] = torch.sin(positions * frequencies)
    result[:, 1::2] = torch.cos(positions * frequencies)[:, : d_model // 2]
    return result


def sinusoidal_encoding__float32_frequencies(n_positions, d_model):
    """The frequencies are rounded to float32 before the angles become float64."""
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    angles = torch.arange(n_positions).double()[:, None] * frequencies.double()
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(1)[:, :d_model].float()


def sinusoidal_encoding__i_for_2i(n_positions, d_model):
    """The exponent is -i / d_model, not -2i / d_model."""
    i = torch.arange((d_model + 1) // 2, dtype=torch.float64)
    angles = torch.arange(n_positions).double()[:, None] * 10000.0 ** (-i / d_model)
    pairs = torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1)
    return pairs.flatten(1)[:, :d_model].float()


def sinusoidal_encoding__column_for_pair(n_positions, d_model):
    """The column's number j stands where i, the pair's number, should."""
    table = torch.zeros(n_positions, d_model)
    for t in range(n_positions):
        for j in range(d_model):
            angle = t * 10000 ** (-2 * j / d_model)
            table[t, j] = math.cos(angle) if j % 2 else math.sin(angle)
    return table


def sinusoidal_encoding__own_frequency_for_each_column(n_positions, d_model):
    """Each column has a frequency of its own: sine and cosine of a pair differ."""
    columns = torch.arange(d_model, dtype=torch.float64)
    frequencies = 10000.0 ** (-columns / d_model)
    angles = torch.arange(n_positions).double()[:, None] * frequencies
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos()).float()


def sinusoidal_encoding__sines_then_cosines(n_positions, d_model):
    """All sines stand first, then all cosines: the half-split layout."""
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = torch.arange(n_positions).double()[:, None] * 10000.0 ** (-i / d_model)
    both = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return both[:, :d_model].float()


def sinusoidal_encoding__cosine_first(n_positions, d_model):
    """The cosine stands in column 2i and the sine in column 2i + 1."""
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = torch.outer(torch.arange(n_positions).double(), 10000.0 ** (-i / d_model))
    pairs = torch.stack([angles.cos(), angles.sin()], dim=-1)
    return pairs.reshape(n_positions, -1)[:, :d_model].float()


def sinusoidal_encoding__repeated_as_a_block(n_positions, d_model):
    """`repeat` gives f0 f1 f0 f1, where `repeat_interleave` gives f0 f0 f1 f1."""
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    frequencies = (10000.0 ** (-i / d_model)).repeat(2)[:d_model]
    angles = torch.arange(n_positions)[:, None] * frequencies
    result = angles.sin()
    result[:, 1::2] = angles[:, 1::2].cos()
    return result.float()


def sinusoidal_encoding__odd_width_fails(n_positions, d_model):
    """Raises for an odd d_model: there are more cosines than columns for them."""
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = torch.arange(n_positions)[:, None] * 10000.0 ** (-i / d_model)
    result = torch.empty(n_positions, d_model)
    result[:, 0::2], result[:, 1::2] = angles.sin(), angles.cos()
    return result


def sinusoidal_encoding__odd_width_rounded_up(n_positions, d_model):
    """For an odd d_model the exponent is divided by d_model + 1."""
    even = d_model + d_model % 2
    return sinusoidal_encoding(n_positions, even)[:, :d_model]


# ---- apply_rotary


def apply_rotary__half_split(x, positions):
    """Pair i is columns i and i + d_k / 2: the other layout."""
    d_k = x.shape[-1]
    i = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-i / d_k)
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


def apply_rotary__pairs_not_put_back(x, positions):
    """The right pairs turn, but all first numbers stand before all second ones."""
    d_k = x.shape[-1]
    i = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-i / d_k)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


def apply_rotary__positions_ignored(x, positions):
    """Token j always gets position j: `positions` is not used."""
    tokens = torch.arange(x.shape[-2], device=x.device)
    return apply_rotary(x, tokens)


def apply_rotary__new_a_in_b(x, positions):
    """`a` is a view of the result: the second line reads the number already turned."""
    d_k = x.shape[-1]
    i = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-i / d_k)
    result = x.double()
    result = result.clone()
    a, b = result[..., 0::2], result[..., 1::2]
    result[..., 0::2] = a * angles.cos() - b * angles.sin()
    result[..., 1::2] = a * angles.sin() + b * angles.cos()
    return result.to(x.dtype)


def apply_rotary__writes_into_x(x, positions):
    """The turned pairs are right, but they are written into x, an input."""
    turned = apply_rotary(x, positions)
    x[..., 0::2] = turned[..., 0::2]
    x[..., 1::2] = turned[..., 1::2]
    return x


def apply_rotary__float32_angles(x, positions):
    """The angles are computed in float32: large ones have lost their digits."""
    i = torch.arange(0, x.shape[-1], 2, device=x.device).float()
    angles = positions.float()[:, None] * 10000.0 ** (-i / x.shape[-1])
    cos, sin = angles.cos().double(), angles.sin().double()
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2).to(x.dtype)


def apply_rotary__positions_in_the_dtype_of_x(x, positions):
    """Positions get the dtype of x: in float16 3001 becomes 3000."""
    rounded = positions.to(x.dtype)
    return apply_rotary(x, rounded.double())


def apply_rotary__repeat(x, positions):
    """`repeat` gives the angles as f0 f1 f0 f1, where each should stand twice."""
    d_k = x.shape[-1]
    i = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = (positions[:, None] * 10000.0 ** (-i / d_k)).repeat(1, 2)
    crossed = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return (x * angles.cos() + crossed * angles.sin()).to(x.dtype)


def apply_rotary__encoding_added(x, positions):
    """Adds sines and cosines to x; nothing is turned."""
    table = sinusoidal_encoding(int(positions.max()) + 1, x.shape[-1])
    return x + table.to(x)[positions]


def apply_rotary__frequencies_on_the_cpu(x, positions):
    """The frequencies have no device: they stay on the CPU, wherever x is."""
    d_k = x.shape[-1]
    frequencies = 10000.0 ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    angles = positions.unsqueeze(-1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2).to(x.dtype)


def apply_rotary__complex_of_float32(x, positions):
    """Turned as complex numbers of float32: an x of float64 loses half its digits."""
    d_k = x.shape[-1]
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    i = torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device)
    angles = positions.unsqueeze(-1) * 10000.0 ** (-i / d_k)
    turned = pairs * torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def apply_rotary__one_sequence_squeezed(x, positions):
    """A leading dimension of size 1 is removed at the end."""
    return apply_rotary(x, positions).squeeze(0)
