"""Wrong answers to lesson 06's exercises; each docstring says what is wrong."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.masking import masked_attention, masked_softmax
from course_utils.lessons.multi_head import (
    merge_heads,
    multi_head_attention,
    split_heads,
)

# ---- split_heads


def split_heads__view(x, n_heads):
    """`view` alone: the heads get pieces of the tokens in a row, not of each token."""
    *leading, tokens, d_model = x.shape
    return x.reshape(*leading, n_heads, tokens, d_model // n_heads)


def split_heads__heads_after_tokens(x, n_heads):
    """(..., tokens, heads, d_k): the heads do not stand before the tokens."""
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads))


def split_heads__transpose_1_2(x, n_heads):
    """Dimensions 1 and 2 are counted from the front: right for one leading one only."""
    x = x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads)
    return x.transpose(1, 2)


def split_heads__every_nth_number(x, n_heads):
    """Head h gets the numbers h, h + n_heads, ... of each token, not a piece."""
    return x.unflatten(-1, (-1, n_heads)).movedim(-1, -3)


def split_heads__pieces_of_n_heads(x, n_heads):
    """`split` takes the size of a piece: d_k heads of n_heads numbers."""
    return torch.stack(x.split(n_heads, dim=-1), dim=-3)


def split_heads__stacked_in_front(x, n_heads):
    """The heads become dimension 0, before the leading dimensions."""
    return torch.stack(x.chunk(n_heads, dim=-1))


def split_heads__tokens_cut(x, n_heads):
    """Cuts the sequence into pieces, not the vectors: each head gets some tokens."""
    return torch.stack(x.chunk(n_heads, dim=-2), dim=-3)


def split_heads__one_head_squeezed(x, n_heads):
    """With one head the dimension of the heads is removed."""
    return torch.stack(x.chunk(n_heads, dim=-1), dim=-3).squeeze(-3)


def split_heads__table_of_float32(x, n_heads):
    """The heads are written into a tensor of float32 on the CPU, whatever x is."""
    d_k = x.shape[-1] // n_heads
    heads = torch.zeros(*x.shape[:-2], n_heads, x.shape[-2], d_k)
    for h in range(n_heads):
        heads[..., h, :, :] = x[..., h * d_k : (h + 1) * d_k]
    return heads


def split_heads__last_head_empty(x, n_heads):
    """The loop ends one head early: the last head is zeros."""
    d_k = x.shape[-1] // n_heads
    heads = x.new_zeros(*x.shape[:-2], n_heads, x.shape[-2], d_k)
    for h in range(n_heads - 1):
        heads[..., h, :, :] = x[..., h * d_k : (h + 1) * d_k]
    return heads


# ---- merge_heads


def merge_heads__only_reshape(x):
    """`reshape` without `transpose`: mixes the tokens of one head into a row."""
    *leading, n_heads, tokens, d_k = x.shape
    return x.reshape(*leading, tokens, n_heads * d_k)


def merge_heads__view_after_transpose(x):
    """`view` raises on a transposed tensor: its numbers do not lie in a row."""
    x = x.transpose(-3, -2)
    return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def merge_heads__transpose_1_2(x):
    """Dimensions 1 and 2 are counted from the front: right for one leading one only."""
    return x.transpose(1, 2).flatten(-2)


def merge_heads__numbers_side_by_side(x):
    """The first numbers of all heads stand first: the heads lie between each other."""
    return x.movedim(-3, -1).flatten(-2)


def merge_heads__list_of_x(x):
    """`list(x)` goes over dimension 0: the heads only without leading dimensions."""
    return torch.cat(list(x), dim=-1)


def merge_heads__summed(x):
    """Adds the heads up: the result is d_k wide."""
    return x.sum(dim=-3)


def merge_heads__without_head_0(x):
    """The loop begins at head 1: head 0 is forgotten."""
    heads = [x[..., h, :, :] for h in range(1, x.shape[-3])]
    return torch.cat(heads, dim=-1)


def merge_heads__turned_in_place(x):
    """The result is right, but `transpose_` turns the input itself."""
    return x.transpose_(-3, -2).flatten(-2)


def merge_heads__float32_buffer(x):
    """The heads are copied into a tensor of float32 on the CPU, whatever x is."""
    *leading, n_heads, tokens, d_k = x.shape
    merged = torch.empty(*leading, tokens, n_heads * d_k)
    for h in range(n_heads):
        merged[..., h * d_k : (h + 1) * d_k] = x[..., h, :, :]
    return merged


def merge_heads__squeezed(x):
    """`squeeze` removes dimensions of size 1: one token, or a batch of one."""
    return x.transpose(-3, -2).flatten(-2).squeeze()


# ---- multi_head_attention


def multi_head_attention__scale_of_all_heads(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Divides by the root of the width of all heads together, not of one head."""
    q, k, v = queries @ w_q, data @ w_k, data @ w_v
    q = q / q.shape[-1] ** 0.5
    q, k, v = (split_heads(x, n_heads) for x in (q, k, v))
    scores = q @ k.mT
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    weights = masked_softmax(scores, mask)
    return merge_heads(weights @ v) @ w_o, weights


def multi_head_attention__w_o_forgotten(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The outputs are not multiplied by w_o."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    heads, weights = masked_attention(q, k, v, mask)
    return merge_heads(heads), weights


def multi_head_attention__merged_by_reshape(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The heads are merged by `reshape` alone: tokens and heads are mixed up."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    heads, weights = masked_attention(q, k, v, mask)
    return heads.reshape(*queries.shape[:-1], -1) @ w_o, weights


def multi_head_attention__mean_of_the_weights(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Returns the mean of the heads' weights, as PyTorch's module does."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    heads, weights = masked_attention(q, k, split_heads(data @ w_v, n_heads), mask)
    return merge_heads(heads) @ w_o, weights.mean(dim=-3)


def multi_head_attention__mask_not_used(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The mask is never used."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    return merge_heads(weights @ v) @ w_o, weights


def multi_head_attention__mask_upside_down(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Hides where the mask is True."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    hidden = None if mask is None else ~mask
    heads, weights = masked_attention(q, k, v, hidden)
    return merge_heads(heads) @ w_o, weights


def multi_head_attention__nan_in_empty_rows(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """A query that may attend to nothing gets NaN, not zeros."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = F.softmax(scores, dim=-1)
    return merge_heads(weights @ v) @ w_o, weights


def multi_head_attention__another_dimension_for_the_mask(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """`unsqueeze(-3)` for the heads, also in a mask that has that dimension."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
    weights = masked_softmax(scores, mask.unsqueeze(-3))
    return merge_heads(weights @ v) @ w_o, weights


def multi_head_attention__mask_of_the_first_head(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The mask of the first head is used for all heads."""
    if mask is not None and mask.dim() > 2:
        mask = mask[..., :1, :, :]
    return multi_head_attention(queries, data, w_q, w_k, w_v, w_o, n_heads, mask)


def multi_head_attention__keys_from_the_queries(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Keys and values come from the queries: right for self-attention only."""
    q, k, v = (split_heads(queries @ w, n_heads) for w in (w_q, w_k, w_v))
    heads, weights = masked_attention(q, k, v, mask)
    return merge_heads(heads) @ w_o, weights


def multi_head_attention__d_k_for_d_v(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Cuts the values into pieces of d_k too: fails where d_v is not d_k."""
    d_k = w_q.shape[-1] // n_heads

    def cut(x):
        return x.reshape(*x.shape[:-1], n_heads, d_k).transpose(-3, -2)

    q, k, v = cut(queries @ w_q), cut(data @ w_k), cut(data @ w_v)
    heads, weights = masked_attention(q, k, v, mask)
    return merge_heads(heads) @ w_o, weights


def multi_head_attention__heads_stacked_in_front(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The weights of the heads are stacked as dimension 0, before leading ones."""
    outputs, weights = [], []
    q, k, v = (w.chunk(n_heads, dim=1) for w in (w_q, w_k, w_v))
    for h in range(n_heads):
        see = mask
        if mask is not None and mask.dim() > 2:
            see = mask[..., h % mask.shape[-3], :, :]
        head, w = masked_attention(queries @ q[h], data @ k[h], data @ v[h], see)
        outputs.append(head)
        weights.append(w)
    return torch.cat(outputs, dim=-1) @ w_o, torch.stack(weights)


def multi_head_attention__mean_and_whole_scale(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """Two faults: the scale of all heads together, and the mean of the weights."""
    factor = n_heads**-0.5
    outputs, weights = multi_head_attention(
        queries * factor,
        data,
        w_q,
        w_k,
        w_v,
        w_o,
        n_heads,
        mask,
    )
    return outputs, weights.mean(dim=-3)


def multi_head_attention__weights_detached(
    queries,
    data,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    mask=None,
):
    """The weights are returned detached: no gradient flows through them."""
    q, k = split_heads(queries @ w_q, n_heads), split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    heads, weights = masked_attention(q, k, v, mask)
    return merge_heads(heads) @ w_o, weights.detach()


# ---- attention_matrix_bytes


def attention_matrix_bytes__one_head(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """The number of heads is forgotten."""
    return batch * n_queries * n_keys * bytes_per_number


def attention_matrix_bytes__one_sequence(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """The batch is forgotten."""
    return n_heads * n_queries * n_keys * bytes_per_number


def attention_matrix_bytes__square(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """As many keys as queries are taken: n_queries squared."""
    return batch * n_heads * n_queries**2 * bytes_per_number


def attention_matrix_bytes__always_four(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """Every number has 4 bytes: bytes_per_number is not used."""
    return 4 * batch * n_heads * n_queries * n_keys


def attention_matrix_bytes__only_numbers(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """Counts the numbers, not their bytes."""
    return math.prod((batch, n_heads, n_queries, n_keys))


def attention_matrix_bytes__megabytes(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """Mebibytes: divided by 1024 twice."""
    return batch * n_heads * n_queries * n_keys * bytes_per_number / 1024**2


def attention_matrix_bytes__tensor(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """A tensor, not a whole number of Python."""
    return torch.tensor([batch, n_heads, n_queries, n_keys, bytes_per_number]).prod()


def attention_matrix_bytes__int32(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """Multiplied in int32: from 2 GiB on the number is another one."""
    sizes = torch.tensor([batch, n_heads, n_queries, n_keys, bytes_per_number])
    return sizes.int().cumprod(0, dtype=torch.int32)[-1].item()


def attention_matrix_bytes__float32(
    n_queries,
    n_keys,
    n_heads,
    bytes_per_number,
    batch=1,
):
    """Multiplied in float32: large results lose their last digits."""
    sizes = [batch, n_heads, n_queries, n_keys, bytes_per_number]
    return int(torch.tensor(sizes, dtype=torch.float32).prod())
