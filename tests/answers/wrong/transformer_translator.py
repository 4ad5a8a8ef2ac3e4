"""Wrong answers to lesson 10's exercises; each docstring says what is wrong."""

import torch
import torch.nn.functional as F

from course_utils.lessons.transformer_block import post_norm_block, pre_norm_block

# ---- shift_right


def shift_right__unchanged(targets, start_id):
    """Returns the targets as they are."""
    return targets.clone()


def shift_right__roll(targets, start_id):
    """The last target comes round to the front, where the start token should be."""
    return torch.roll(targets, 1, dims=-1)


def shift_right__left(targets, start_id):
    """Shifted to the left, with the start token at the end."""
    return torch.cat([targets[..., 1:], torch.full_like(targets[..., :1], start_id)], -1)


def shift_right__twice(targets, start_id):
    """Two start tokens: every word comes one step too late."""
    return F.pad(targets, (2, 0), value=start_id)[..., : targets.shape[-1]]


def shift_right__too_long(targets, start_id):
    """The last target is kept, so the result is one longer."""
    return F.pad(targets, (1, 0), value=start_id)


def shift_right__batch_only(targets, start_id):
    """Dimension 1 is taken for time: right for a batch only."""
    first = torch.full_like(targets[:, :1], start_id)
    return torch.cat([first, targets[:, :-1]], dim=1)


def shift_right__zeros(targets, start_id):
    """The first column is 0, whatever the start token is."""
    read = torch.zeros_like(targets)
    read[..., 1:] = targets[..., :-1]
    return read


def shift_right__written_over(targets, start_id):
    """Writes the start token over the first target and shifts nothing."""
    read = targets.clone()
    read[..., 0] = start_id
    return read


def shift_right__in_place(targets, start_id):
    """Right, but the targets themselves are changed."""
    targets[..., 1:] = targets[..., :-1].clone()
    targets[..., 0] = start_id
    return targets


def shift_right__zeros_on_the_cpu(targets, start_id):
    """`torch.full` makes the first column on the CPU, as int64."""
    first = torch.full((*targets.shape[:-1], 1), start_id)
    return torch.cat([first, targets[..., :-1]], dim=-1)


def shift_right__overlapping_copy(targets, start_id):
    """Shifts the sentences, not the words: dim 0."""
    first = torch.full_like(targets[:1], start_id)
    return torch.cat([first, targets[:-1]], dim=0)


# ---- decoder_block


def decoder_block__sees_the_future(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The self-attention is not causal."""
    x = norm_1(x + self_attention(x))
    x = norm_2(x + cross_attention(x, states, mask=mask))
    return norm_3(x + mlp(x))


def decoder_block__everything_causal(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The cross-attention is causal too."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states, mask, True))
    return norm_3(x + mlp(x))


def decoder_block__masks_exchanged(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The causal mask is in the cross-attention, instead of the source's."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states, is_causal=True))
    return norm_3(x + mlp(x))


def decoder_block__padding_is_read(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The mask is not used."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states))
    return norm_3(x + mlp(x))


def decoder_block__never_looks_at_the_source(
    x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3
):
    """Keys and values of the cross-attention come from the decoder."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, x))
    return norm_3(x + mlp(x))


def decoder_block__two_norms(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """One norm after both attentions: norm_2 is not used."""
    x = x + self_attention(x, is_causal=True)
    x = norm_1(x + cross_attention(x, states, mask=mask))
    return norm_3(x + mlp(x))


def decoder_block__third_norm_missing(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """Ends with the addition."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states, mask=mask))
    return x + mlp(x)


def decoder_block__no_residual_at_the_cross_attention(
    x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3
):
    """The result of the cross-attention replaces x."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(cross_attention(x, states, mask=mask))
    return norm_3(x + mlp(x))


def decoder_block__no_residuals(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """No addition anywhere."""
    x = norm_1(self_attention(x, is_causal=True))
    x = norm_2(cross_attention(x, states, mask=mask))
    return norm_3(mlp(x))


def decoder_block__pre_norm(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The norms stand before the parts."""
    x = x + self_attention(norm_1(x), is_causal=True)
    return pre_norm_block(x, lambda y: cross_attention(y, states, mask=mask), mlp, norm_2, norm_3)


def decoder_block__parallel(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """Both attentions ask with the block's input."""
    both = self_attention(x, is_causal=True) + cross_attention(x, states, mask=mask)
    x = norm_2(norm_1(x + both))
    return norm_3(x + mlp(x))


def decoder_block__residual_around_both(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The second addition adds the block's input."""
    y = norm_1(x + self_attention(x, is_causal=True))
    y = norm_2(x + cross_attention(y, states, mask=mask))
    return norm_3(y + mlp(y))


def decoder_block__cross_first(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """The cross-attention comes before the self-attention, each with its norm."""
    x = norm_2(x + cross_attention(x, states, mask=mask))
    return post_norm_block(x, lambda y: self_attention(y, is_causal=True), mlp, norm_1, norm_3)


def decoder_block__squeezed(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    """Right until a size is 1."""
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, states, mask=mask))
    return norm_3(x + mlp(x)).squeeze()


# ---- beam_search


def run(
    next_logits,
    start,
    stop_id,
    beam_size,
    max_length,
    alpha,
    *,
    score=lambda total, n, alpha: total / n**alpha,
    places=lambda beam_size, n_ended: beam_size - n_ended,
    values=lambda logits: logits.float().log_softmax(dim=-1),
    last=lambda n, max_length: n == max_length,
):
    """A right search, of which the wrong answers below change one thing."""
    rows, sums, out = start.unsqueeze(0), torch.zeros(1, device=start.device), []
    for n in range(1, max_length + 1):
        table = sums.unsqueeze(1) + values(next_logits(rows))
        flat, index = table.flatten().sort(descending=True, stable=True)
        k = places(beam_size, len(out))
        flat, index = flat[:k], index[:k]
        words = index % table.shape[1]
        rows = torch.cat([rows[index // table.shape[1]], words.unsqueeze(1)], dim=1)
        over = (words == stop_id) | last(n, max_length)
        for row, total, is_over in zip(rows.tolist(), flat.tolist(), over.tolist(), strict=True):
            if is_over:
                out.append((row[len(start) :], score(total, n, alpha)))
        rows, sums = rows[~over], flat[~over]
        if len(rows) == 0:
            break
    return sorted(out, key=lambda o: o[1], reverse=True)


def beam_search__no_normalisation(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """The score is the sum, whatever alpha is."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, score=lambda total, n, alpha: total)


def beam_search__always_the_mean(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Divided by the length, without alpha."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, score=lambda total, n, alpha: total / n)


def beam_search__penalty_of_another_paper(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Divides by ((5 + n) / 6) ** alpha, as Wu et al. 2016 do."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, score=lambda total, n, alpha: total / ((5 + n) / 6) ** alpha)


def beam_search__start_counts(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """The length counts `start` too."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, score=lambda total, n, alpha: total / (n + len(start)) ** alpha)


def beam_search__places_are_given_away(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Ended sentences free their places: more than beam_size results."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, places=lambda beam_size, n_ended: beam_size)


def beam_search__ended_apart(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Ended sentences take no place, and only the best beam_size are returned."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, places=lambda beam_size, n_ended: beam_size)[:beam_size]


def beam_search__ended_ones_compete(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """An ended sentence loses its place to a continuation with a larger sum."""
    held = [([], 0.0, False)]  # tokens, sum, ended
    for n in range(1, max_length + 1):
        going = [(tokens, total) for tokens, total, over in held if not over]
        if not going:
            break
        rows = torch.tensor([[*start.tolist(), *tokens] for tokens, _ in going], device=start.device)
        logs = next_logits(rows).float().log_softmax(dim=-1).tolist()
        new = [
            ([*tokens, w], total + log, w == stop_id or n == max_length)
            for (tokens, total), row in zip(going, logs, strict=True)
            for w, log in enumerate(row)
        ]
        held = sorted([h for h in held if h[2]] + new, key=lambda h: -h[1])[:beam_size]
    return sorted(((t, total / len(t) ** alpha) for t, total, _ in held), key=lambda o: -o[1])


def beam_search__logits(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Adds logits instead of log-probabilities."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, values=lambda logits: logits.float())


def beam_search__probabilities(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Adds probabilities."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, values=lambda logits: logits.float().softmax(dim=-1))


def beam_search__sums_in_half_precision(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Logits in float16 stay in float16."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, values=lambda logits: logits.log_softmax(dim=-1).half().float())


def beam_search__cut_off_ones_are_lost(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Sentences without a stop token are not returned."""
    args = next_logits, start, stop_id, beam_size, max_length, alpha
    return run(*args, last=lambda n, max_length: False)


def beam_search__best_only(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Returns the best sentence, not all of them."""
    return run(next_logits, start, stop_id, beam_size, max_length, alpha)[0]


def beam_search__without_the_stop_token(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Takes the stop token out of the results."""
    found = run(next_logits, start, stop_id, beam_size, max_length, alpha)
    return [([t for t in tokens if t != stop_id], score) for tokens, score in found]


def beam_search__one_token_more(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """One token more than max_length."""
    return run(next_logits, start, stop_id, beam_size, max_length + 1, alpha)


def beam_search__start_in_the_result(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """The results begin with `start`."""
    found = run(next_logits, start, stop_id, beam_size, max_length, alpha)
    return [(start.tolist() + tokens, score) for tokens, score in found]


def beam_search__worst_first(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Sorted from the worst to the best."""
    found = run(next_logits, start, stop_id, beam_size, max_length, alpha)
    return sorted(found, key=lambda f: f[1])


def beam_search__equal_beams_at_the_start(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Starts with beam_size copies of `start`, so the same sentence comes several times."""
    rows = start.repeat(beam_size, 1)
    sums, out = torch.zeros(beam_size, device=start.device), []
    for n in range(1, max_length + 1):
        table = sums.unsqueeze(1) + next_logits(rows).float().log_softmax(dim=-1)
        flat, index = table.flatten().sort(descending=True, stable=True)
        k = beam_size - len(out)
        flat, words = flat[:k], index[:k] % table.shape[1]
        rows = torch.cat([rows[index[:k] // table.shape[1]], words[:, None]], dim=1)
        over = (words == stop_id) | (n == max_length)
        for i in over.nonzero().flatten().tolist():
            out.append((rows[i, len(start) :].tolist(), flat[i].item() / n**alpha))
        rows, sums = rows[~over], flat[~over]
        if len(rows) == 0:
            break
    return sorted(out, key=lambda o: o[1], reverse=True)


def beam_search__greedy(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Greedy decoding, whatever beam_size is."""
    return run(next_logits, start, stop_id, 1, max_length, alpha)


def beam_search__topk_in_each_row(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """After the first step each sentence keeps its own best continuation."""
    rows, sums, out = start.unsqueeze(0), torch.zeros(1, device=start.device), []
    for n in range(1, max_length + 1):
        table = sums.unsqueeze(1) + next_logits(rows).float().log_softmax(dim=-1)
        if n == 1:
            flat, words = table[0].sort(descending=True, stable=True)
            flat, words = flat[:beam_size], words[:beam_size]
            rows = rows.repeat(len(words), 1)
        else:
            flat, words = table.max(dim=1)
        rows = torch.cat([rows, words[:, None]], dim=1)
        over = (words == stop_id) | (n == max_length)
        for i in over.nonzero().flatten().tolist():
            out.append((rows[i, len(start) :].tolist(), flat[i].item() / n**alpha))
        rows, sums = rows[~over], flat[~over]
        if len(rows) == 0:
            break
    return sorted(out, key=lambda o: o[1], reverse=True)


def beam_search__each_row_asked_alone(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    """Asks `next_logits` for one row after the other: more calls than promised."""

    def one_by_one(rows):
        return torch.cat([next_logits(row[None]) for row in rows])

    return run(one_by_one, start, stop_id, beam_size, max_length, alpha)
