"""Right answers to lesson 14's exercises, in many forms."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.lessons.flash_attention import (
    blocks,
    causal_offset,
    what_is_visible,
)
from course_utils.lessons.flash_attention import online_softmax as courses_online
from course_utils.lessons.masking import require_fit

INF = float("inf")

# ---- online_softmax


def online_softmax__slices(scores, block_k):
    m = torch.full_like(scores[..., 0], -INF)
    s = torch.zeros_like(scores[..., 0])
    for start in range(0, scores.shape[-1], block_k):
        x = scores[..., start : start + block_k]
        new = torch.maximum(m, x.max(dim=-1).values)
        safe = torch.where(new == -INF, torch.zeros_like(new), new)
        s = s * torch.exp(m - safe) + torch.exp(x - safe[..., None]).sum(-1)
        m = new
    return m, s


def online_softmax__split(scores, block_k):
    state = []
    for block in scores.split(block_k, dim=-1):
        new = torch.maximum(state[0], block.amax(-1)) if state else block.amax(-1)
        shift = new.clamp(min=torch.finfo(scores.dtype).min)
        part = (block - shift.unsqueeze(-1)).exp().sum(-1)
        if state:
            part = part + state[1] * (state[0] - shift).exp()
        state = [new, part]
    return tuple(state)


def online_softmax__each_block_first(scores, block_k):
    """The sum of each block with its own maximum, and both rescaled."""
    m = scores.new_full(scores.shape[:-1], -INF)
    s = scores.new_zeros(scores.shape[:-1])
    for columns in blocks(scores.shape[-1], block_k):
        block = scores[..., columns]
        its_max = block.amax(dim=-1)
        its_sum = torch.exp(block - torch.nan_to_num(its_max, neginf=0.0)[..., None])
        new = torch.maximum(m, its_max)
        shift = torch.nan_to_num(new, neginf=0.0)
        old = torch.nan_to_num(its_max, neginf=0.0)
        its_sum = its_sum.sum(dim=-1) * torch.exp(old - shift)
        s = s * torch.exp(m - shift) + its_sum
        m = new
    return m, s


def online_softmax__logsumexp(scores, block_k):
    """Keeps the maximum and the log-sum-exp."""
    m = scores.new_full(scores.shape[:-1], -INF)
    total = scores.new_full(scores.shape[:-1], -INF)
    for block in torch.split(scores, block_k, -1):
        m = torch.maximum(m, block.amax(-1))
        lse = torch.logsumexp(block, dim=-1)
        both = torch.maximum(total, lse)
        shift = both.masked_fill(both == -INF, 0).detach()
        total = shift + torch.log(torch.exp(total - shift) + torch.exp(lse - shift))
    return m, torch.exp(total - m.masked_fill(m == -INF, 0))


def online_softmax__reduce(scores, block_k):
    def join(state, block):
        m, s = state
        new = torch.maximum(m, block.amax(dim=-1))
        shift = new.masked_fill(new.isneginf(), 0)
        return new, s * (m - shift).exp() + (block - shift[..., None]).exp().sum(-1)

    empty = scores[..., 0].new_full(scores.shape[:-1], -INF)
    return reduce(join, scores.split(block_k, -1), (empty, torch.zeros_like(empty)))


def online_softmax__mask_after(scores, block_k):
    m = torch.full(scores.shape[:-1], -INF, dtype=scores.dtype, device=scores.device)
    s = torch.zeros_like(m)
    n = scores.shape[-1]
    for i in range(math.ceil(n / block_k)):
        block = scores[..., i * block_k : min(n, (i + 1) * block_k)]
        new = torch.maximum(m, torch.amax(block, dim=-1))
        nothing = new == -INF
        shift = torch.where(nothing, 0.0, new)
        s = torch.exp(m - shift) * s
        s = s + torch.exp(block - shift.unsqueeze(-1)).sum(dim=-1)
        m = new
    return m, s


def online_softmax__one_score_after_the_other(scores, block_k):
    m = scores[..., 0]
    s = (m != -INF).to(scores.dtype)
    for i in range(1, scores.shape[-1]):
        x = scores[..., i]
        new = torch.maximum(m, x)
        shift = new.masked_fill(new == -INF, 0)
        s = s * torch.exp(m - shift) + torch.exp(x - shift)
        m = new
    return m, s


def online_softmax__while(scores, block_k):
    start, m, s = 0, scores.new_full(scores.shape[:-1], -INF), 0.0
    while start < scores.shape[-1]:
        block = scores[..., start : start + block_k]
        new = torch.maximum(m, block.amax(-1))
        shift = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        s = s * torch.exp(m - shift) + torch.exp(block - shift[..., None]).sum(-1)
        m, start = new, start + block_k
    return m, s


def online_softmax__narrow_and_einsum(scores, block_k):
    n = scores.size(-1)
    m = scores.new_full(scores.shape[:-1], -INF)
    s = scores.new_zeros(scores.shape[:-1])
    for start in range(0, n, block_k):
        block = scores.narrow(-1, start, min(block_k, n - start))
        new = torch.max(m, block.max(-1)[0])
        shift = torch.nan_to_num(new, neginf=0)
        s = s * (m - shift).exp()
        s = s + torch.einsum("...k->...", (block - shift[..., None]).exp())
        m = new
    return m, s


def online_softmax__keepdim(scores, block_k):
    m = torch.full_like(scores[..., :1], -INF)
    s = torch.zeros_like(m)
    for columns in blocks(scores.shape[-1], block_k):
        block = scores[..., columns]
        new = torch.maximum(m, block.amax(dim=-1, keepdim=True))
        shift = new.masked_fill(new == -INF, 0)
        s = s * torch.exp(m - shift)
        s = s + torch.exp(block - shift).sum(dim=-1, keepdim=True)
        m = new
    return m[..., 0], s[..., 0]


# ---- merge_blocks


def merge_blocks__logaddexp(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    safe = torch.where(lse == -INF, torch.zeros_like(lse), lse)
    a = torch.exp(log_sum_exp_a - safe)[..., None]
    b = torch.exp(log_sum_exp_b - safe)[..., None]
    return a * outputs_a + b * outputs_b, lse


def merge_blocks__stack(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    both = torch.stack([log_sum_exp_a, log_sum_exp_b])
    lse = torch.logsumexp(both, dim=0)
    shares = torch.exp(both - lse.masked_fill(lse == -INF, 0))
    outputs = torch.stack([outputs_a, outputs_b])
    return (shares.unsqueeze(-1) * outputs).sum(dim=0), lse


def merge_blocks__softmax(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    both = torch.stack([log_sum_exp_a, log_sum_exp_b], dim=-1)
    nothing = (both == -INF).all(dim=-1, keepdim=True)
    shares = torch.softmax(both.masked_fill(nothing, 0), dim=-1)
    shares = shares.masked_fill(nothing, 0).unsqueeze(-2)
    outputs = torch.stack([outputs_a, outputs_b], dim=-1)
    return (shares * outputs).sum(dim=-1), torch.logsumexp(both, dim=-1)


def merge_blocks__sigmoid(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    a, b = log_sum_exp_a, log_sum_exp_b
    nothing = (a == -INF) & (b == -INF)
    share = torch.sigmoid((a - b).masked_fill(nothing, 0)).unsqueeze(-1)
    return share * outputs_a + (1 - share) * outputs_b, torch.logaddexp(a, b)


def merge_blocks__maximum(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    m = torch.maximum(log_sum_exp_a, log_sum_exp_b)
    m = m.masked_fill(m == -INF, 0)
    a, b = torch.exp(log_sum_exp_a - m), torch.exp(log_sum_exp_b - m)
    total = a + b
    outputs = a[..., None] * outputs_a + b[..., None] * outputs_b
    safe = total.masked_fill(total == 0, 1)
    return outputs / safe[..., None], m + torch.log(total)


def merge_blocks__lerp(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    share_b = torch.exp(log_sum_exp_b - lse.masked_fill(lse == -INF, 0))
    return torch.lerp(outputs_a, outputs_b, share_b.unsqueeze(-1)), lse


def merge_blocks__einsum(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    shift = torch.nan_to_num(lse, neginf=0.0)
    a = torch.einsum("...q,...qd->...qd", (log_sum_exp_a - shift).exp(), outputs_a)
    b = torch.einsum("...q,...qd->...qd", (log_sum_exp_b - shift).exp(), outputs_b)
    return a + b, lse


def merge_blocks__online(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Two scores of a row of two."""
    both = torch.stack([log_sum_exp_a, log_sum_exp_b], dim=-1)
    largest, total = courses_online(both, 1)
    lse = largest + torch.log(total)
    shift = lse.masked_fill(lse == -INF, 0)
    a = torch.exp(log_sum_exp_a - shift).unsqueeze(-1)
    b = torch.exp(log_sum_exp_b - shift).unsqueeze(-1)
    return a * outputs_a + b * outputs_b, lse


def merge_blocks__where_at_the_end(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    nothing = torch.isneginf(log_sum_exp_a) & torch.isneginf(log_sum_exp_b)
    one = torch.where(nothing, 0.0, log_sum_exp_a)
    two = torch.where(nothing, 0.0, log_sum_exp_b)
    lse = torch.logaddexp(one, two)
    merged = torch.exp(one - lse)[..., None] * outputs_a
    merged = merged + torch.exp(two - lse)[..., None] * outputs_b
    nothing_seen = torch.full_like(lse, -INF)
    return merged, torch.where(nothing, nothing_seen, lse)


merge_blocks__lambda = lambda outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b: (  # noqa: E731
    torch.exp(log_sum_exp_a - torch.logaddexp(log_sum_exp_a, log_sum_exp_b)).nan_to_num(0).unsqueeze(-1) * outputs_a
    + torch.exp(log_sum_exp_b - torch.logaddexp(log_sum_exp_a, log_sum_exp_b)).nan_to_num(0).unsqueeze(-1) * outputs_b,
    torch.logaddexp(log_sum_exp_a, log_sum_exp_b),
)

# ---- tiled_attention


def tiled_attention__lists(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Collects the blocks and joins them at the end."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    outputs, sums = [], []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide) / queries.shape[-1] ** 0.5
        m = torch.full_like(q[..., 0], -INF)
        total, acc = torch.zeros_like(m), 0
        for columns in blocks(keys.shape[-2], block_k):
            s = visible.hide(q @ keys[..., columns, :].to(wide).mT, rows, columns)
            new = torch.maximum(m, s.amax(-1))
            shift = torch.where(new == -INF, 0.0, new)
            p, old = torch.exp(s - shift[..., None]), torch.exp(m - shift)
            total = total * old + p.sum(-1)
            acc = acc * old[..., None] + p @ values[..., columns, :].to(wide)
            m = new
        safe = torch.where(total == 0, 1.0, total)
        outputs.append((acc / safe[..., None]).to(values.dtype))
        sums.append(m + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


def tiled_attention__merged(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Attention to each block of keys on its own; the outputs are merged."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    parts = []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide) * queries.shape[-1] ** -0.5
        out, lse = q.new_zeros(*q.shape[:-1], values.shape[-1]), q.new_full(q.shape[:-1], -INF)
        for columns in blocks(keys.shape[-2], block_k):
            s = visible.hide(q @ keys[..., columns, :].to(wide).mT, rows, columns)
            its_lse = torch.logsumexp(s, dim=-1)
            weights = torch.exp(s - its_lse.masked_fill(its_lse == -INF, 0)[..., None])
            its_out = weights @ values[..., columns, :].to(wide)
            out, lse = merge_blocks__logaddexp(out, lse, its_out, its_lse)
        parts.append((out.to(values.dtype), lse))
    return torch.cat([o for o, _ in parts], -2), torch.cat([x for _, x in parts], -1)


def tiled_attention__keys_outside(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """The order of 2022: keys outside; the running things of all queries are kept."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    scale = 1 / math.sqrt(queries.shape[-1])
    acc = torch.zeros(*queries.shape[:-1], values.shape[-1], dtype=wide, device=queries.device)
    m = torch.full_like(acc[..., 0], -INF)
    total = torch.zeros_like(m)
    for columns in blocks(keys.shape[-2], block_k):
        k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)
        for rows in blocks(queries.shape[-2], block_q):
            s = (queries[..., rows, :].to(wide) @ k.mT) * scale
            s = visible.hide(s, rows, columns)
            new = torch.maximum(m[..., rows], s.amax(dim=-1))
            shift = new.masked_fill(new == -INF, 0)
            old = torch.exp(m[..., rows] - shift)
            p = torch.exp(s - shift.unsqueeze(-1))
            total[..., rows] = total[..., rows] * old + p.sum(dim=-1)
            acc[..., rows, :] = acc[..., rows, :] * old.unsqueeze(-1) + p @ v
            m[..., rows] = new
    outputs = acc / total.masked_fill(total == 0, 1).unsqueeze(-1)
    return outputs.to(values.dtype), m + torch.log(total)


def tiled_attention__own_masks(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Builds the causal mask of each tile by hand."""
    n_q, n_k = queries.shape[-2], keys.shape[-2]
    offset = causal_offset(n_q, n_k, align)
    shape = torch.Size((*queries.shape[:-1], n_k))
    if mask is not None:
        require_fit(mask, shape)
        mask = mask.expand(shape)
    wide = torch.promote_types(queries.dtype, torch.float32)
    outputs = torch.zeros(*queries.shape[:-1], values.shape[-1], dtype=values.dtype, device=values.device)
    lse = torch.full(queries.shape[:-1], -INF, dtype=wide, device=queries.device)
    for i in range(0, n_q, block_q):
        q = queries[..., i : i + block_q, :].to(wide)
        m = torch.full(q.shape[:-1], -INF, dtype=wide, device=q.device)
        total = torch.zeros_like(m)
        acc = torch.zeros(*q.shape[:-1], values.shape[-1], dtype=wide, device=q.device)
        for j in range(0, n_k, block_k):
            k, v = keys[..., j : j + block_k, :].to(wide), values[..., j : j + block_k, :].to(wide)
            s = torch.einsum("...qd,...kd->...qk", q, k) / queries.shape[-1] ** 0.5
            if is_causal:
                row = torch.arange(i, i + s.shape[-2], device=s.device)[:, None]
                column = torch.arange(j, j + s.shape[-1], device=s.device)
                s = torch.where(column <= row + offset, s, -INF)
            if mask is not None:
                s = torch.where(mask[..., i : i + block_q, j : j + block_k], s, -INF)
            new = torch.maximum(m, s.amax(-1))
            shift = torch.nan_to_num(new, neginf=0.0)
            p = torch.exp(s - shift[..., None])
            alpha = torch.exp(m - shift)
            total = alpha * total + p.sum(-1)
            acc = alpha[..., None] * acc + torch.einsum("...qk,...kd->...qd", p, v)
            m = new
        outputs[..., i : i + block_q, :] = torch.nan_to_num(acc / total[..., None]).to(values.dtype)
        lse[..., i : i + block_q] = m + total.log()
    return outputs, lse


def tiled_attention__row_after_row(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Blocks of one query: any block is allowed to be smaller."""
    return tiled_attention__lists(
        queries, keys, values, mask=mask, is_causal=is_causal, align=align, block_q=1, block_k=block_k
    )


def tiled_attention__pytorchs_on_each_tile(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    rows_out, rows_lse = [], []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide)
        merged = []
        for columns in blocks(keys.shape[-2], block_k):
            k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)
            scores = visible.hide(q @ k.mT / q.shape[-1] ** 0.5, rows, columns)
            seen = scores != -INF
            its = F.scaled_dot_product_attention(q, k, v, attn_mask=seen), scores.logsumexp(-1)
            merged = merge_blocks__softmax(merged[0], merged[1], its[0], its[1]) if merged else its
        rows_out.append(merged[0].to(values.dtype)), rows_lse.append(merged[1])
    return torch.cat(rows_out, dim=-2), torch.cat(rows_lse, dim=-1)


def tiled_attention__last_keys_first(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    outputs = values.new_zeros(*queries.shape[:-1], values.shape[-1])
    lse = queries.new_zeros(queries.shape[:-1], dtype=wide)
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide)
        m = q.new_full((*q.shape[:-1], 1), -INF)
        total = torch.zeros_like(m)
        acc = q.new_zeros(*q.shape[:-1], values.shape[-1])
        for columns in reversed(list(blocks(keys.shape[-2], block_k))):
            if visible.nothing(rows, columns):
                continue
            s = q @ keys[..., columns, :].to(wide).transpose(-1, -2) / math.sqrt(q.shape[-1])
            s = visible.hide(s, rows, columns)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            shift = new.masked_fill(new == -INF, 0)
            p, alpha = (s - shift).exp(), (m - shift).exp()
            total = total * alpha + p.sum(-1, keepdim=True)
            acc = acc * alpha + p @ values[..., columns, :].to(wide)
            m = new
        outputs[..., rows, :] = (acc / total.clamp(min=torch.finfo(wide).tiny)).to(values.dtype)
        lse[..., rows] = (m + total.log()).squeeze(-1)
    return outputs, lse


def tiled_attention__in_base_2(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """exp2 inside, as kernels do; the log-sum-exp is a natural logarithm again."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    scale = queries.shape[-1] ** -0.5 * math.log2(math.e)
    outputs, sums = [], []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide) * scale
        m = q.new_full(q.shape[:-1], -INF)
        total, acc = torch.zeros_like(m), q.new_zeros(*q.shape[:-1], values.shape[-1])
        for columns in blocks(keys.shape[-2], block_k):
            s = visible.hide(q @ keys[..., columns, :].to(wide).mT, rows, columns)
            new = torch.maximum(m, s.amax(-1))
            shift = new.masked_fill(new == -INF, 0)
            alpha, p = torch.exp2(m - shift), torch.exp2(s - shift[..., None])
            total = total * alpha + p.sum(-1)
            acc = acc * alpha[..., None] + p @ values[..., columns, :].to(wide)
            m = new
        outputs.append((acc / total.masked_fill(total == 0, 1)[..., None]).to(values.dtype))
        sums.append((m + total.log2()) * math.log(2))
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


def tiled_attention__divided_all_the_time(
    queries,
    keys,
    values,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Keeps outputs that are divided already, and undoes the division."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    outputs, sums = [], []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide) * queries.shape[-1] ** -0.5
        m = q.new_full(q.shape[:-1], -INF)
        total, out = torch.zeros_like(m), q.new_zeros(*q.shape[:-1], values.shape[-1])
        for columns in blocks(keys.shape[-2], block_k):
            s = visible.hide(q @ keys[..., columns, :].to(wide).mT, rows, columns)
            new = torch.maximum(m, s.amax(-1))
            shift = new.masked_fill(new == -INF, 0)
            old, p = total * torch.exp(m - shift), torch.exp(s - shift[..., None])
            total = old + p.sum(-1)
            out = out * old[..., None] + p @ values[..., columns, :].to(wide)
            out = out / total.masked_fill(total == 0, 1)[..., None]
            m = new
        outputs.append(out.to(values.dtype)), sums.append(m + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


# ---- tiled_attention_backward


def _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp):
    wide = torch.promote_types(queries.dtype, torch.float32)
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    delta = (outputs.to(wide) * grad_outputs.to(wide)).sum(-1)
    return wide, visible, delta, torch.where(log_sum_exp == -INF, INF, log_sum_exp)


def tiled_attention_backward__one_pass(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Adds into three tensors of zeros."""
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale = queries.shape[-1] ** -0.5
    grads = [torch.zeros_like(x, dtype=wide) for x in (queries, keys, values)]
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            p = torch.exp(visible.hide(q @ k.mT * scale, i, j) - lse[..., i, None])
            ds = p * (do @ v.mT - delta[..., i, None]) * scale
            grads[0][..., i, :] += ds @ k
            grads[1][..., j, :] += ds.mT @ q
            grads[2][..., j, :] += p.mT @ do
    return tuple(g.to(x.dtype) for g, x in zip(grads, (queries, keys, values), strict=True))


def tiled_attention_backward__queries_first(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale = 1 / math.sqrt(queries.shape[-1])

    def tile(i, j):
        q, do = queries[..., i, :].to(wide) * scale, grad_outputs[..., i, :].to(wide)
        k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
        p = torch.exp(visible.hide(q @ k.mT, i, j) - lse[..., i].unsqueeze(-1))
        return q, k, do, p, p * (do @ v.mT - delta[..., i].unsqueeze(-1))

    rows, columns = list(blocks(queries.shape[-2], block_q)), list(blocks(keys.shape[-2], block_k))

    def added(terms):
        return reduce(torch.add, terms)

    grad_q = [added(t[4] @ t[1] for t in (tile(i, j) for j in columns)) * scale for i in rows]
    grad_k, grad_v = [], []
    for j in columns:
        grad_k.append(added(ds.mT @ q for q, _, _, _, ds in (tile(i, j) for i in rows)))
        grad_v.append(added(p.mT @ do for _, _, do, p, _ in (tile(i, j) for i in rows)))
    grads = (torch.cat(g, dim=-2) for g in (grad_q, grad_k, grad_v))
    return tuple(g.to(x.dtype) for g, x in zip(grads, (queries, keys, values), strict=True))


def tiled_attention_backward__einsum(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale = queries.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for j in blocks(keys.shape[-2], block_k):
        for i in blocks(queries.shape[-2], block_q):
            if visible.nothing(i, j):
                continue
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            s = visible.hide(torch.einsum("...id,...jd->...ij", q, k) * scale, i, j)
            p = (s - lse[..., i, None]).exp()
            dp = torch.einsum("...id,...jd->...ij", do, v)
            ds = p * (dp - delta[..., i, None])
            dv[..., j, :] += torch.einsum("...ij,...id->...jd", p, do)
            dk[..., j, :] += torch.einsum("...ij,...id->...jd", ds, q) * scale
            dq[..., i, :] += torch.einsum("...ij,...jd->...id", ds, k) * scale
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__autograd_of_each_tile(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """PyTorch goes back through the product of each tile; the softmax is done by hand."""
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q = queries[..., i, :].to(wide).detach().requires_grad_()
            k = keys[..., j, :].to(wide).detach().requires_grad_()
            do, v = grad_outputs[..., i, :].to(wide), values[..., j, :].to(wide)
            with torch.enable_grad():
                s = q @ k.mT / q.shape[-1] ** 0.5
            p = torch.exp(visible.hide(s.detach(), i, j) - lse[..., i, None])
            ds = p * (do @ v.mT - delta[..., i, None])
            one, two = torch.autograd.grad(s, (q, k), ds)
            dq[..., i, :] += one
            dk[..., j, :] += two
            dv[..., j, :] += p.mT @ do
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__row_after_row(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    return tiled_attention_backward__one_pass(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask=mask,
        is_causal=is_causal,
        align=align,
        block_q=1,
        block_k=block_k,
    )


def tiled_attention_backward__index_add(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale = queries.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            p = torch.exp(visible.hide(scale * (q @ k.mT), i, j) - lse[..., i, None])
            ds = scale * p * (do @ v.mT - delta[..., i, None])
            dq[..., i, :].add_(ds @ k)
            dk[..., j, :].add_(ds.mT @ q)
            dv[..., j, :].add_(p.mT @ do)
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__weights_hidden_afterwards(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """Hides by zeros in the weights, after the exponential of hidden scores."""
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale = queries.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            s = q @ k.mT * scale
            hidden = visible.hide(s, i, j) == -INF
            p = torch.exp(s - lse[..., i, None]).masked_fill(hidden, 0)
            ds = p * (do @ v.mT - delta[..., i, None])
            dq[..., i, :] += ds @ k * scale
            dk[..., j, :] += ds.mT @ q * scale
            dv[..., j, :] += p.mT @ do
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__delta_of_the_block(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    """delta is made anew for each block of queries."""
    wide = torch.promote_types(queries.dtype, torch.float32)
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
        delta = torch.einsum("...d,...d->...", do, outputs[..., i, :].to(wide))
        nothing = torch.isneginf(log_sum_exp[..., i])[..., None]
        lse = log_sum_exp[..., i, None].masked_fill(nothing, 0)
        for j in blocks(keys.shape[-2], block_k):
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            s = visible.hide(q @ k.mT / math.sqrt(q.shape[-1]), i, j)
            p = torch.exp(s - lse)
            ds = p * (do @ v.mT - delta[..., None]) / math.sqrt(q.shape[-1])
            dq[..., i, :] += ds @ k
            dk[..., j, :] += ds.mT @ q
            dv[..., j, :] += p.mT @ do
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__in_base_2(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    *,
    mask=None,
    is_causal=False,
    align="end",
    block_q=256,
    block_k=256,
):
    wide, visible, delta, lse = _prepared(grad_outputs, queries, keys, mask, is_causal, align, outputs, log_sum_exp)
    scale, log2_e = queries.shape[-1] ** -0.5, 1 / math.log(2)
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            s = visible.hide(q @ k.mT * scale, i, j)
            p = torch.exp2(s * log2_e - lse[..., i, None] * log2_e)
            ds = p * (do @ v.mT - delta[..., i, None])
            dq[..., i, :] += scale * (ds @ k)
            dk[..., j, :] += scale * (ds.mT @ q)
            dv[..., j, :] += p.mT @ do
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


# ---- memory_traffic


def memory_traffic__ceil(n_queries, n_keys, d_k, d_v, block_q):
    n_blocks = (n_queries + block_q - 1) // block_q
    return n_queries * (d_k + d_v + 1) + n_blocks * n_keys * (d_k + d_v)


def memory_traffic__blocks(n_queries, n_keys, d_k, d_v, block_q):
    moved = 0
    for _ in range(min(-(-n_queries // block_q), 10**4)):
        moved += n_keys * d_k + n_keys * d_v
    if -(-n_queries // block_q) > 10**4:
        moved = -(-n_queries // block_q) * n_keys * (d_k + d_v)
    return moved + n_queries * d_k + n_queries * d_v + n_queries


def memory_traffic__divmod(n_queries, n_keys, d_k, d_v, block_q):
    whole, rest = divmod(n_queries, block_q)
    times = whole + (rest > 0)
    return n_queries * d_k + times * n_keys * (d_k + d_v) + n_queries * (d_v + 1)


def memory_traffic__minus_minus(n_queries, n_keys, d_k, d_v, block_q):
    return -(-n_queries // block_q) * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1)


def memory_traffic__len_of_range(n_queries, n_keys, d_k, d_v, block_q):
    times = len(range(0, n_queries, block_q))
    loaded = n_queries * d_k + times * (n_keys * d_k + n_keys * d_v)
    stored = n_queries * d_v + n_queries
    return loaded + stored


def memory_traffic__math_ceil(n_queries, n_keys, d_k, d_v, block_q):
    times = math.ceil(n_queries / block_q)
    return sum((n_queries * d_k, times * n_keys * d_k, times * n_keys * d_v, n_queries * d_v, n_queries))


def memory_traffic__first_and_others(n_queries, n_keys, d_k, d_v, block_q):
    again = (n_queries - 1) // block_q
    once = (n_queries + n_keys) * d_k + (n_queries + n_keys) * d_v + n_queries
    return once + again * n_keys * (d_k + d_v)


def memory_traffic__named(n_queries, n_keys, d_k, d_v, block_q):
    times = 1 + (n_queries - 1) // block_q
    moved = {
        "queries": n_queries * d_k,
        "keys": times * n_keys * d_k,
        "values": times * n_keys * d_v,
        "outputs": n_queries * d_v,
        "log-sum-exp": n_queries,
    }
    return sum(moved.values())


def memory_traffic__numpy(n_queries, n_keys, d_k, d_v, block_q):
    times = -(-n_queries // block_q)
    counts = np.array([n_queries, times * n_keys, times * n_keys, n_queries, n_queries], dtype=object)
    return int(counts @ np.array([d_k, d_k, d_v, d_v, 1], dtype=object))


def memory_traffic__last_block_apart(n_queries, n_keys, d_k, d_v, block_q):
    whole = (n_queries - 1) // block_q
    last = n_queries - whole * block_q
    block = block_q * (d_k + d_v + 1) + n_keys * (d_k + d_v)
    return whole * block + last * (d_k + d_v + 1) + n_keys * (d_k + d_v)
