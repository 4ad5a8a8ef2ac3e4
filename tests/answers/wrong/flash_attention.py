"""Wrong answers to lesson 14's exercises; each docstring says what is wrong."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.flash_attention import (
    blocks,
    merge_blocks,
    online_softmax,
    tiled_attention,
    tiled_attention_backward,
    what_is_visible,
)
from course_utils.lessons.masking import masked_attention

INF = float("inf")

# ---- online_softmax


def online_softmax__sum_not_rescaled(scores, block_k):
    """The old sum keeps the old maximum."""
    m, s = scores.new_full(scores.shape[:-1], -INF), 0
    for block in scores.split(block_k, -1):
        m = torch.maximum(m, block.amax(-1))
        s = s + torch.exp(block - m.masked_fill(m == -INF, 0)[..., None]).sum(-1)
    return m, s


def online_softmax__maximum_of_the_first_block(scores, block_k):
    """The maximum of the first block is used for all blocks."""
    m = scores[..., :block_k].amax(dim=-1)
    s = 0
    for block in scores.split(block_k, -1):
        s = s + torch.exp(block - m.masked_fill(m == -INF, 0)[..., None]).sum(-1)
    return m, s


def online_softmax__maximum_of_the_last_block(scores, block_k):
    """The maximum forgets all blocks but the last one."""
    m, s = scores.new_full(scores.shape[:-1], -INF), 0
    for block in scores.split(block_k, -1):
        new = block.amax(-1)
        shift = new.masked_fill(new == -INF, 0)
        s = s * torch.exp(m - shift) + torch.exp(block - shift[..., None]).sum(-1)
        m = new
    return m, s


def online_softmax__tail_dropped(scores, block_k):
    """Only whole blocks are read."""
    m = scores.new_full(scores.shape[:-1], -INF)
    s = torch.zeros_like(m)
    for i in range(scores.shape[-1] // block_k):
        block = scores[..., i * block_k : (i + 1) * block_k]
        new = torch.maximum(m, block.amax(-1))
        shift = new.masked_fill(new == -INF, 0)
        s = s * torch.exp(m - shift) + torch.exp(block - shift[..., None]).sum(-1)
        m = new
    return m, s


def online_softmax__padded_with_zeros(scores, block_k):
    """The last block is filled up with scores of 0, which count."""
    return online_softmax(F.pad(scores, (0, -scores.shape[-1] % block_k)), block_k)


def online_softmax__all_at_once(scores, block_k):
    """Computes with all scores of a row at the same time."""
    m = scores.amax(dim=-1)
    shift = m.masked_fill(m == -INF, 0)
    return m, torch.exp(scores - shift.unsqueeze(-1)).sum(dim=-1)


def online_softmax__nan_for_hidden(scores, block_k):
    """-inf - (-inf) is NaN where a row has seen nothing."""
    m = scores.new_full(scores.shape[:-1], -INF)
    s = torch.zeros_like(m)
    for columns in blocks(scores.shape[-1], block_k):
        new = torch.maximum(m, scores[..., columns].amax(dim=-1))
        s = s * torch.exp(m - new) + torch.exp(scores[..., columns] - new[..., None]).sum(-1)
        m = new
    return m, s


def online_softmax__sum_of_exp(scores, block_k):
    """No maximum is subtracted."""
    m, s = scores.new_full(scores.shape[:-1], -INF), 0
    for block in scores.split(block_k, -1):
        m, s = torch.maximum(m, block.amax(-1)), s + torch.exp(block).sum(-1)
    return m, s


def online_softmax__one_row_only(scores, block_k):
    """One maximum for all rows."""
    m = scores.max()
    s = sum(torch.exp(block - m).sum(-1) for block in scores.split(block_k, -1))
    return m.expand(scores.shape[:-1]), s


def online_softmax__sum_first(scores, block_k):
    """The two results in the wrong order."""
    m, s = online_softmax(scores, block_k)
    return s, m


def online_softmax__log_sum_exp(scores, block_k):
    """Returns the log-sum-exp in place of the sum."""
    m, s = online_softmax(scores, block_k)
    return m, m + torch.log(s)


def online_softmax__from_zero(scores, block_k):
    """The maximum starts at 0, which is above negative scores."""
    m = scores.new_zeros(scores.shape[:-1])
    total = torch.zeros_like(m)
    for columns in blocks(scores.shape[-1], block_k):
        new = torch.maximum(m, scores[..., columns].amax(dim=-1))
        total = total * torch.exp(m - new) + torch.exp(scores[..., columns] - new.unsqueeze(-1)).sum(dim=-1)
        m = new
    return m, total


def online_softmax__two_passes(scores, block_k):
    """Right numbers, but all scores are read for the maximum before any is summed."""
    m = scores.amax(dim=-1)
    shift = m.masked_fill(m == -INF, 0).unsqueeze(-1)
    parts = [torch.exp(scores[..., columns] - shift).sum(dim=-1) for columns in blocks(scores.shape[-1], block_k)]
    return m, sum(parts)


def online_softmax__two_passes_in_blocks(scores, block_k):
    """As `two_passes`; the maximum is found block by block, too."""
    m = scores.new_full(scores.shape[:-1], -INF)
    for block in scores.split(block_k, dim=-1):
        m = torch.maximum(m, block.amax(dim=-1))
    shift = m.masked_fill(m == -INF, 0).unsqueeze(-1)
    return m, sum(torch.exp(block - shift).sum(dim=-1) for block in scores.split(block_k, dim=-1))


def online_softmax__numbers_of_python(scores, block_k):
    """`float` cuts the gradient and works for one row only."""
    m, s = -INF, 0.0
    for score in scores.flatten().tolist():
        new = max(m, score)
        s = s * math.exp(m - new) + math.exp(score - new) if new > -INF else 0.0
        m = new
    return torch.tensor(m), torch.tensor(s)


# ---- merge_blocks


def merge_blocks__mean(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Both blocks count the same."""
    return (outputs_a + outputs_b) / 2, torch.logaddexp(log_sum_exp_a, log_sum_exp_b)


def merge_blocks__sum(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Outputs are divided already: they cannot be added."""
    return outputs_a + outputs_b, torch.logaddexp(log_sum_exp_a, log_sum_exp_b)


def merge_blocks__logarithms_added(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Adds the logarithms, which multiplies the sums."""
    outputs, _ = merge_blocks(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b)
    return outputs, log_sum_exp_a + log_sum_exp_b


def merge_blocks__base_2(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """The log-sum-exp has the base 2."""
    outputs, _ = merge_blocks(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b)
    return outputs, torch.logaddexp2(log_sum_exp_a, log_sum_exp_b)


def merge_blocks__overflow(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """exp of the log-sum-exps is infinite where they are large."""
    a, b = torch.exp(log_sum_exp_a)[..., None], torch.exp(log_sum_exp_b)[..., None]
    outputs = (a * outputs_a + b * outputs_b) / (a + b).clamp(min=1e-30)
    return outputs, torch.log(a + b).squeeze(-1)


def merge_blocks__nan(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """NaN where a query sees nothing at all."""
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    a, b = torch.exp(log_sum_exp_a - lse), torch.exp(log_sum_exp_b - lse)
    return a[..., None] * outputs_a + b[..., None] * outputs_b, lse


def merge_blocks__crossed(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """The share of A goes to B."""
    return merge_blocks(outputs_b, log_sum_exp_a, outputs_a, log_sum_exp_b)


def merge_blocks__winner(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Only the block with more weight counts."""
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    wins = (log_sum_exp_a > log_sum_exp_b)[..., None]
    return torch.where(wins, outputs_a, outputs_b), lse


def merge_blocks__logarithms_as_weights(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """The logarithms themselves are taken for weights."""
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    total = log_sum_exp_a + log_sum_exp_b
    outputs = log_sum_exp_a[..., None] * outputs_a + log_sum_exp_b[..., None] * outputs_b
    return outputs / total[..., None], lse


def merge_blocks__infinite_shares(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """The shares are made from sums that may be infinite."""
    a, b = log_sum_exp_a.exp().unsqueeze(-1), log_sum_exp_b.exp().unsqueeze(-1)
    return (a * outputs_a + b * outputs_b) / (a + b), torch.logaddexp(log_sum_exp_a, log_sum_exp_b)


def merge_blocks__one_share_for_all(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """One share for all queries: that of the mean."""
    lse = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    share = torch.sigmoid(log_sum_exp_a.mean() - log_sum_exp_b.mean())
    return share * outputs_a + (1 - share) * outputs_b, lse


def merge_blocks__maximum(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """The larger log-sum-exp is taken for that of both."""
    outputs, _ = merge_blocks(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b)
    return outputs, torch.maximum(log_sum_exp_a, log_sum_exp_b)


def merge_blocks__squeezed(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b):
    """Sizes of 1 are lost."""
    outputs, lse = merge_blocks(outputs_a, log_sum_exp_a, outputs_b, log_sum_exp_b)
    return outputs.squeeze(), lse


# ---- tiled_attention


def _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, update, finish):
    """The loops of all wrong answers below: `update` gets state, scores and values."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    found = []
    for rows in blocks(queries.shape[-2], block_q):
        q = queries[..., rows, :].to(wide) * queries.shape[-1] ** -0.5
        m = q.new_full((*q.shape[:-1], 1), -INF)
        state = m, torch.zeros_like(m), q.new_zeros(*q.shape[:-1], values.shape[-1])
        for columns in blocks(keys.shape[-2], block_k):
            k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)
            state = update(state, visible.hide(q @ k.mT, rows, columns), v)
        out, lse = finish(*state)
        found.append((out.to(values.dtype), lse.squeeze(-1)))
    return torch.cat([o for o, _ in found], -2), torch.cat([x for _, x in found], -1)


def _update(state, scores, v):
    m, total, acc = state
    new = torch.maximum(m, scores.amax(-1, keepdim=True))
    shift = new.masked_fill(new == -INF, 0)
    p, old = torch.exp(scores - shift), torch.exp(m - shift)
    return new, total * old + p.sum(-1, keepdim=True), acc * old + p @ v


def _finish(m, total, acc):
    return acc / total.masked_fill(total == 0, 1), m + total.log()


def tiled_attention__acc_not_rescaled(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The accumulator keeps the old maximum."""

    def update(state, scores, v):
        new, total, _ = _update(state, scores, v)
        p = torch.exp(scores - new.masked_fill(new == -INF, 0))
        return new, total, state[2] + p @ v

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, update, _finish)


def tiled_attention__sum_not_rescaled(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The sum keeps the old maximum."""

    def update(state, scores, v):
        new, _, acc = _update(state, scores, v)
        p = torch.exp(scores - new.masked_fill(new == -INF, 0))
        return new, state[1] + p.sum(-1, keepdim=True), acc

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, update, _finish)


def tiled_attention__maximum_not_updated(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The maximum stays that of the first block with a visible key."""

    def update(state, scores, v):
        new, total, acc = _update(state, scores, v)
        return torch.where(state[0] == -INF, new, state[0]), total, acc

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, update, _finish)


def tiled_attention__base_2(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The log-sum-exp in base 2."""

    def finish(m, total, acc):
        out, lse = _finish(m, total, acc)
        return out, lse / math.log(2)

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, _update, finish)


def tiled_attention__log_of_the_sum(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The log-sum-exp lacks the maximum."""

    def finish(m, total, acc):
        return _finish(m, total, acc)[0], total.log()

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, _update, finish)


def tiled_attention__maximum_plus_sum(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The logarithm of the sum is forgotten."""

    def finish(m, total, acc):
        return _finish(m, total, acc)[0], m + total

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, _update, finish)


def tiled_attention__half_log_sum_exp(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The log-sum-exp gets the dtype of the inputs."""
    outputs, log_sum_exp = tiled_attention(
        queries, keys, values, mask=mask, is_causal=is_causal, align=align, block_q=block_q, block_k=block_k
    )
    return outputs, log_sum_exp.to(queries.dtype)


def tiled_attention__always_to_the_end(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """`align` is ignored: always to the end."""
    what_is_visible(queries, keys, mask, is_causal, align)
    return _tiles(queries, keys, values, mask, is_causal, "end", block_q, block_k, _update, _finish)


def tiled_attention__nan_rows(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """0 / 0 where a query sees nothing."""

    def finish(m, total, acc):
        return acc / total, m + total.log()

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, _update, finish)


def tiled_attention__softmax_of_each_tile(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """A softmax of each tile on its own; the outputs are added."""

    def update(state, scores, v):
        new, total, _ = _update(state, scores, v)
        return new, total, state[2] + torch.softmax(scores, dim=-1).nan_to_num(0) @ v

    def finish(m, total, acc):
        return acc, m + total.log()

    return _tiles(queries, keys, values, mask, is_causal, align, block_q, block_k, update, finish)


def tiled_attention__whole_matrix(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """Right numbers, but the whole matrix of scores is made."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    everything = slice(0, queries.shape[-2]), slice(0, keys.shape[-2])
    scores = visible.hide(queries.to(wide) @ keys.to(wide).mT / queries.shape[-1] ** 0.5, *everything)
    outputs = masked_attention(queries, keys, values, scores != -INF)[0]
    return outputs, torch.logsumexp(scores, dim=-1)


def tiled_attention__no_scale(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The scores are not divided by √d_k."""
    scaled = queries * queries.shape[-1] ** 0.5
    settings = {"mask": mask, "is_causal": is_causal, "align": align}
    return tiled_attention(scaled, keys, values, block_q=block_q, block_k=block_k, **settings)


def tiled_attention__scaled_twice(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The scores are divided by d_k."""
    scaled = queries * queries.shape[-1] ** -0.5
    settings = {"mask": mask, "is_causal": is_causal, "align": align}
    return tiled_attention(scaled, keys, values, block_q=block_q, block_k=block_k, **settings)


def tiled_attention__tail_unmasked(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """The last block is filled up with keys of zeros, which take weight."""
    rest = -keys.shape[-2] % block_k
    if mask is not None:
        mask = F.pad(mask.expand(*mask.shape[:-1], keys.shape[-2]), (0, rest), value=True)
    if is_causal and align == "end":
        return tiled_attention(queries, keys, values, mask=mask, is_causal=True, block_q=block_q, block_k=block_k)
    keys, values = (F.pad(x, (0, 0, 0, rest)) for x in (keys, values))
    settings = {"mask": mask, "is_causal": is_causal, "align": align}
    return tiled_attention(queries, keys, values, block_q=block_q, block_k=block_k, **settings)


def tiled_attention__top_left(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """`align` is ignored: always to the start."""
    settings = {"mask": mask, "is_causal": is_causal, "align": "start"}
    return tiled_attention(queries, keys, values, block_q=block_q, block_k=block_k, **settings)


def tiled_attention__not_causal(
    queries, keys, values, *, mask=None, is_causal=False, align="end", block_q=256, block_k=256
):
    """`is_causal` is ignored."""
    return tiled_attention(queries, keys, values, mask=mask, align=align, block_q=block_q, block_k=block_k)


# ---- tiled_attention_backward


def _back(
    grad_outputs,
    queries,
    keys,
    values,
    outputs,
    log_sum_exp,
    mask,
    is_causal,
    align,
    block_q,
    block_k,
    weights_of=lambda s, lse: torch.exp(s - lse),
    scores_of=lambda p, dp, delta: p * (dp - delta),
    scales=(1, 1),
    empty=INF,
):
    """The loops of all wrong answers below, each with one of these parts changed."""
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    wide = torch.promote_types(queries.dtype, torch.float32)
    scale = queries.shape[-1] ** -0.5
    delta = (outputs.to(wide) * grad_outputs.to(wide)).sum(-1, keepdim=True)
    lse = log_sum_exp.masked_fill(log_sum_exp == -INF, empty).unsqueeze(-1)
    dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (queries, keys, values))
    for i in blocks(queries.shape[-2], block_q):
        for j in blocks(keys.shape[-2], block_k):
            q, do = queries[..., i, :].to(wide), grad_outputs[..., i, :].to(wide)
            k, v = keys[..., j, :].to(wide), values[..., j, :].to(wide)
            p = weights_of(visible.hide(q @ k.mT * scale, i, j), lse[..., i, :])
            ds = scores_of(p, do @ v.mT, delta[..., i, :])
            dq[..., i, :] += ds @ k * scale ** scales[0]
            dk[..., j, :] += ds.mT @ q * scale ** scales[1]
            dv[..., j, :] += p.mT @ do
    return dq.to(queries.dtype), dk.to(keys.dtype), dv.to(values.dtype)


def tiled_attention_backward__no_delta(
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
    """delta is forgotten."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scores_of=lambda p, dp, delta: p * dp,
    )


def tiled_attention_backward__delta_added(
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
    """delta is added, not subtracted."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scores_of=lambda p, dp, delta: p * (dp + delta),
    )


def tiled_attention_backward__delta_of_the_tile(
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
    """The sum of weights times grad_weights goes over one tile, not over the row."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scores_of=lambda p, dp, delta: p * (dp - (p * dp).sum(-1, keepdim=True)),
    )


def tiled_attention_backward__no_softmax(
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
    """The gradient of the weights is taken for that of the scores."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scores_of=lambda p, dp, delta: dp,
    )


def tiled_attention_backward__no_scale_for_keys(
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
    """The gradient of the keys lacks the scale."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scales=(1, 0),
    )


def tiled_attention_backward__no_scale_for_queries(
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
    """The gradient of the queries lacks the scale."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scales=(0, 1),
    )


def tiled_attention_backward__no_scale_at_all(
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
    """Both gradients lack the scale."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scales=(0, 0),
    )


def tiled_attention_backward__scaled_twice(
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
    """The scale is there twice in the gradient of the keys."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        scales=(1, 2),
    )


def tiled_attention_backward__softmax_of_the_tile(
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
    """The weights of each tile sum to one."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        weights_of=lambda s, lse: torch.softmax(s, dim=-1).nan_to_num(0),
    )


def tiled_attention_backward__base_2(
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
    """The log-sum-exp is taken for one of base 2."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        weights_of=lambda s, lse: torch.exp2(s - lse),
    )


def tiled_attention_backward__nan_rows(
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
    """NaN where a query sees nothing."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        block_q,
        block_k,
        empty=-INF,
    )


def tiled_attention_backward__not_causal(
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
    """`is_causal` is ignored."""
    return _back(grad_outputs, queries, keys, values, outputs, log_sum_exp, mask, False, align, block_q, block_k)


def tiled_attention_backward__no_mask(
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
    """`mask` is ignored."""
    return _back(grad_outputs, queries, keys, values, outputs, log_sum_exp, None, is_causal, align, block_q, block_k)


def tiled_attention_backward__keys_and_values_exchanged(
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
    """The gradients of keys and values in the wrong order."""
    settings = {"mask": mask, "is_causal": is_causal, "align": align, "block_q": block_q, "block_k": block_k}
    dq, dk, dv = tiled_attention_backward(grad_outputs, queries, keys, values, outputs, log_sum_exp, **settings)
    return dq, dv, dk


def tiled_attention_backward__whole_matrix(
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
    """Right numbers, but the whole matrix of weights is made."""
    return _back(
        grad_outputs,
        queries,
        keys,
        values,
        outputs,
        log_sum_exp,
        mask,
        is_causal,
        align,
        queries.shape[-2],
        keys.shape[-2],
    )


# ---- memory_traffic


def memory_traffic__rounded_down(n_queries, n_keys, d_k, d_v, block_q):
    """The shorter last block is forgotten."""
    return n_queries // block_q * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1)


def memory_traffic__one_block_more(n_queries, n_keys, d_k, d_v, block_q):
    """One block too many where block_q divides."""
    return (n_queries // block_q + 1) * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1)


def memory_traffic__keys_once(n_queries, n_keys, d_k, d_v, block_q):
    """Keys and values are loaded once only."""
    return (n_queries + n_keys) * (d_k + d_v) + n_queries


def memory_traffic__no_log_sum_exp(n_queries, n_keys, d_k, d_v, block_q):
    """The log-sum-exp is forgotten."""
    return -(-n_queries // block_q) * n_keys * (d_k + d_v) + n_queries * (d_k + d_v)


def memory_traffic__only_keys(n_queries, n_keys, d_k, d_v, block_q):
    """The values are forgotten."""
    return -(-n_queries // block_q) * n_keys * d_k + n_queries * (d_k + d_v + 1)


def memory_traffic__queries_again_and_again(n_queries, n_keys, d_k, d_v, block_q):
    """All queries are loaded for each block."""
    n_blocks = -(-n_queries // block_q)
    return n_blocks * (n_keys * (d_k + d_v) + n_queries * d_k) + n_queries * (d_v + 1)


def memory_traffic__bytes(n_queries, n_keys, d_k, d_v, block_q):
    """Bytes of float32, not numbers."""
    n_blocks = -(-n_queries // block_q)
    return 4 * (n_blocks * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1))


def memory_traffic__plain(n_queries, n_keys, d_k, d_v, block_q):
    """That of plain attention, which stores the matrix."""
    return 6 * n_queries * n_keys + (n_queries + n_keys) * (d_k + d_v)


def memory_traffic__each_query(n_queries, n_keys, d_k, d_v, block_q):
    """Every query loads all keys: the blocks play no part."""
    return n_queries * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1)


def memory_traffic__a_fraction(n_queries, n_keys, d_k, d_v, block_q):
    """A shorter last block loads a part of the keys."""
    return int(n_queries / block_q * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1))


def memory_traffic__blocks_of_keys(n_queries, n_keys, d_k, d_v, block_q):
    """Counts blocks of keys, not of queries."""
    return -(-n_keys // block_q) * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1)


def memory_traffic__stored_after_each_block(n_queries, n_keys, d_k, d_v, block_q):
    """The outputs are stored once for each block of queries."""
    n_blocks = -(-n_queries // block_q)
    return n_queries * d_k + n_blocks * (n_keys * (d_k + d_v) + n_queries * (d_v + 1))


def memory_traffic__a_float(n_queries, n_keys, d_k, d_v, block_q):
    """`/` makes a float."""
    return math.ceil(n_queries / block_q) * n_keys * (d_k + d_v) + n_queries * (d_k + d_v + 1) / 1
