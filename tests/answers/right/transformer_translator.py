"""Right answers to lesson 10's exercises, in many forms."""

import heapq

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.lessons.masking import causal_mask
from course_utils.lessons.transformer_block import post_norm_block

# ---- shift_right


def shift_right__cat(targets, start_id):
    first = torch.full_like(targets[..., :1], start_id)
    return torch.cat((first, targets[..., :-1]), dim=-1)


def shift_right__roll_then_write(targets, start_id):
    read = targets.roll(1, dims=-1)
    read[..., 0] = start_id
    return read


def shift_right__pad(targets, start_id):
    return F.pad(targets[..., :-1], (1, 0), value=start_id)


def shift_right__new_tensor(targets, start_id):
    read = torch.empty_like(targets)
    read[..., 0] = start_id
    read[..., 1:] = targets[..., :-1]
    return read


def shift_right__clone(targets, start_id):
    read = targets.clone()
    read[..., 1:] = targets[..., :-1]
    read[..., :1] = start_id
    return read


def shift_right__new_full(targets, start_id):
    first = targets.new_full((*targets.shape[:-1], 1), start_id)
    return torch.cat([first, targets], dim=-1)[..., :-1]


def shift_right__loop_over_time(targets, start_id):
    columns = list(targets.unbind(dim=-1))
    columns = [torch.full_like(columns[0], start_id), *columns[:-1]]
    return torch.stack(columns, dim=-1)


def shift_right__where(targets, start_id):
    place = torch.arange(targets.shape[-1], device=targets.device)
    before = targets[..., (place - 1).clamp(min=0)]
    return before.masked_fill(place == 0, start_id)


def shift_right__lists(targets, start_id):
    rows = targets.reshape(-1, targets.shape[-1]).tolist()
    rows = [[start_id, *row[:-1]] for row in rows]
    read = torch.tensor(rows, dtype=targets.dtype, device=targets.device)
    return read.reshape(targets.shape)


def shift_right__recursion(targets, start_id):
    if targets.dim() > 1:
        return torch.stack([shift_right__recursion(row, start_id) for row in targets])
    read = torch.zeros_like(targets)
    for t in range(len(targets)):
        read[t] = targets[t - 1] if t else start_id
    return read


# ---- decoder_block


def decoder_block__three_lines(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    x = norm_1(x + self_attention(x, is_causal=True))
    x = norm_2(x + cross_attention(x, data=states, mask=mask))
    return norm_3(x + mlp(x))


def decoder_block__own_causal_mask(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    n = x.shape[-2]
    later = causal_mask(n, n, device=x.device)
    a = norm_1(self_attention(x, mask=later) + x)
    b = norm_2(cross_attention(a, states, mask) + a)
    return norm_3(mlp(b) + b)


def decoder_block__by_position(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    looked = self_attention(x, None, None, True)
    x = norm_1(x + looked)
    looked = cross_attention(x, states, mask, False)
    x = norm_2(x + looked)
    return norm_3(x + mlp(x))


def decoder_block__data_is_x(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    x = norm_1(torch.add(x, self_attention(x, x, is_causal=True)))
    x = norm_2(torch.add(x, cross_attention(x, states, mask=mask)))
    return norm_3(torch.add(x, mlp(x)))


def decoder_block__one_expression(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    return norm_3(
        (y := norm_2((z := norm_1(x + self_attention(x, is_causal=True))) + cross_attention(z, states, mask=mask)))
        + mlp(y)
    )


def decoder_block__loop(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    parts = [
        (lambda y: self_attention(y, is_causal=True), norm_1),
        (lambda y: cross_attention(y, states, mask=mask), norm_2),
        (mlp, norm_3),
    ]
    for part, norm in parts:
        x = norm(x + part(x))
    return x


def decoder_block__inner_function(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    def add_and_norm(vectors, result, norm):
        return norm(vectors + result)

    x = add_and_norm(x, self_attention(x, is_causal=True), norm_1)
    x = add_and_norm(x, cross_attention(x, states, mask=mask), norm_2)
    return add_and_norm(x, mlp(x), norm_3)


def decoder_block__lesson_08s_block(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    x = norm_1(x + self_attention(x, is_causal=True))
    return post_norm_block(x, lambda y: cross_attention(y, states, mask=mask), mlp, norm_2, norm_3)


def decoder_block__no_mask_apart(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    x = norm_1(x + self_attention(x, is_causal=True))
    hidden = {} if mask is None else {"mask": mask}
    x = norm_2(x + cross_attention(x, states, **hidden))
    return norm_3(x + mlp(x))


def decoder_block__all_words_one_mask(x, states, mask, self_attention, cross_attention, mlp, norm_1, norm_2, norm_3):
    tokens = torch.arange(x.shape[-2], device=x.device)
    past = tokens <= tokens.unsqueeze(1)
    x = norm_1(x + self_attention(x, x, past, False))
    x = norm_2(x + cross_attention(x, states, mask, is_causal=False))
    return norm_3(x + mlp(x))


# ---- beam_search


def beam_search__lists(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    beams, ended = [([], 0.0)], []
    for n in range(1, max_length + 1):
        rows = [torch.cat([start, start.new_tensor(words)]) for words, _ in beams]
        log_probs = F.log_softmax(next_logits(torch.stack(rows)).float(), dim=-1)
        candidates = []
        for (words, total), row in zip(beams, log_probs.tolist(), strict=True):
            for token, value in enumerate(row):
                candidates.append(([*words, token], total + value))
        candidates.sort(key=lambda c: -c[1])
        beams = []
        for words, total in candidates[: beam_size - len(ended)]:
            beams.append((words, total))
        finished = [b for b in beams if b[0][-1] == stop_id or n == max_length]
        beams = [b for b in beams if b[0][-1] != stop_id and n < max_length]
        ended += [(words, total / n**alpha) for words, total in finished]
        if not beams:
            break
    return sorted(ended, key=lambda e: -e[1])


def beam_search__heapq(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    rows, totals, ended = start[None], [0.0], []
    while len(rows):
        n = rows.shape[1] - len(start) + 1
        values = next_logits(rows).float().log_softmax(-1).tolist()
        candidates = (
            (totals[i] + value, -i, -token) for i, row in enumerate(values) for token, value in enumerate(row)
        )
        best = heapq.nlargest(beam_size - len(ended), candidates)
        new_rows, totals = [], []
        for total, i, token in best:
            row = torch.cat([rows[-i], rows.new_tensor([-token])])
            if -token == stop_id or n == max_length:
                ended.append((row[len(start) :].tolist(), total / n**alpha))
            else:
                new_rows.append(row)
                totals.append(total)
        rows = torch.stack(new_rows) if new_rows else rows[:0]
    ended.sort(key=lambda e: e[1], reverse=True)
    return ended


def beam_search__sort(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    sequences = start.reshape(1, -1)
    totals = torch.zeros(1, 1, device=start.device)
    results = []
    for step in range(max_length):
        logits = next_logits(sequences).float()
        n_words = logits.shape[-1]
        scores = (totals + logits - logits.logsumexp(-1, keepdim=True)).reshape(-1)
        values, places = scores.sort(descending=True, stable=True)
        free = beam_size - len(results)
        keep_sequences, keep_totals = [], []
        for value, place in zip(values[:free], places[:free], strict=True):
            beam, word = divmod(int(place), n_words)
            word = torch.tensor([word], device=start.device)
            sequence = torch.cat([sequences[beam], word])
            if int(word) == stop_id or step + 1 == max_length:
                tokens = sequence.tolist()[len(start) :]
                results.append((tokens, value.item() / len(tokens) ** alpha))
            else:
                keep_sequences.append(sequence)
                keep_totals.append(value)
        if not keep_sequences:
            break
        sequences = torch.stack(keep_sequences)
        totals = torch.stack(keep_totals).unsqueeze(1)
    return sorted(results, key=lambda r: r[1], reverse=True)


def beam_search__numpy(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    words, sums, done = [[]], np.zeros(1, dtype=np.float32), []
    prefix = start.tolist()
    for n in range(1, max_length + 1):
        rows = torch.tensor([prefix + w for w in words], device=start.device)
        log_probs = torch.log_softmax(next_logits(rows).float(), -1)
        table = sums[:, None] + np.array(log_probs.tolist(), dtype=np.float32)
        order = np.argsort(-table, axis=None, kind="stable")[: beam_size - len(done)]
        new_words, new_sums = [], []
        for place in order:
            i, token = np.unravel_index(place, table.shape)
            sentence = [*words[i], int(token)]
            if token == stop_id or n == max_length:
                done.append((sentence, float(table[i, token]) / n**alpha))
            else:
                new_words.append(sentence)
                new_sums.append(table[i, token])
        if not new_words:
            break
        words, sums = new_words, np.array(new_sums, dtype=np.float32)
    return sorted(done, key=lambda d: -d[1])


def beam_search__recursion(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    def go_on(rows, sums, places):
        n = rows.shape[1] - len(start) + 1
        log_probs = torch.log_softmax(next_logits(rows).float(), dim=1)
        totals = (sums[:, None] + log_probs).flatten().tolist()
        best = sorted(range(len(totals)), key=lambda p: (-totals[p], p))[:places]
        ended, row_list, sum_list = [], [], []
        for place in best:
            parent, word = divmod(place, log_probs.shape[1])
            row = [*rows[parent].tolist(), word]
            if word == stop_id or n == max_length:
                ended.append((row[len(start) :], totals[place] / n**alpha))
            else:
                row_list.append(row)
                sum_list.append(totals[place])
        if not row_list:
            return ended
        more = torch.tensor(row_list, device=start.device)
        sums = torch.tensor(sum_list, device=start.device)
        return ended + go_on(more, sums, places - len(ended))

    found = go_on(start.unsqueeze(0), torch.zeros(1, device=start.device), beam_size)
    return sorted(found, key=lambda f: f[1], reverse=True)


def beam_search__divmod_of_tensors(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    open_rows = start.unsqueeze(0)
    open_sums = torch.zeros(1, device=start.device)
    results = []
    for n in range(1, max_length + 1):
        log_p = torch.log_softmax(next_logits(open_rows).to(torch.float32), dim=-1)
        table = open_sums[:, None] + log_p
        flat, index = torch.sort(table.view(-1), descending=True, stable=True)
        n_free = beam_size - len(results)
        flat, index = flat[:n_free], index[:n_free]
        parent = torch.div(index, table.shape[1], rounding_mode="floor")
        token = index.remainder(table.shape[1])
        rows = torch.cat([open_rows.index_select(0, parent), token[:, None]], dim=1)
        last = n == max_length
        is_open = (token != stop_id).tolist()
        for row, value, goes_on in zip(rows.tolist(), flat.tolist(), is_open, strict=True):
            if last or not goes_on:
                results.append((row[start.shape[0] :], value / n**alpha))
        if last or not any(is_open):
            break
        keep = torch.tensor(is_open, device=start.device)
        open_rows, open_sums = rows[keep], flat[keep]
    results.sort(key=lambda r: -r[1])
    return results


def beam_search__classes(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    class Beam:
        def __init__(self, tokens, total):
            self.tokens, self.total = tokens, total

        def ended(self):
            return self.tokens[-1:] == [stop_id] or len(self.tokens) == max_length

        def score(self):
            return self.total / len(self.tokens) ** alpha

    held, results = [Beam([], 0.0)], []
    while held:
        rows = torch.stack([torch.cat([start, start.new_tensor(b.tokens)]) for b in held])
        values = torch.log_softmax(next_logits(rows).float(), dim=-1).tolist()
        everything = [
            Beam([*b.tokens, token], b.total + value)
            for b, row in zip(held, values, strict=True)
            for token, value in enumerate(row)
        ]
        everything.sort(key=lambda b: b.total, reverse=True)
        kept = everything[: beam_size - len(results)]
        results += [b for b in kept if b.ended()]
        held = [b for b in kept if not b.ended()]
    results.sort(key=lambda b: b.score(), reverse=True)
    return [(b.tokens, b.score()) for b in results]


def beam_search__repeated_maximum(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    rows, sums, out = start.unsqueeze(0), torch.zeros(1, device=start.device), []
    for n in range(1, max_length + 1):
        log_probs = torch.log_softmax(next_logits(rows).float(), dim=-1)
        totals = sums.unsqueeze(1) + log_probs
        values = totals.flatten().tolist()
        picks = []
        for _ in range(min(beam_size - len(out), len(values))):
            place = max((p for p in range(len(values)) if p not in picks), key=values.__getitem__)
            picks.append(place)
        pairs = [divmod(place, log_probs.shape[1]) for place in picks]
        grown = [(torch.cat([rows[i], rows.new_tensor([w])]), totals[i, w]) for i, w in pairs]
        finished = [n == max_length or w == stop_id for _, w in pairs]
        for (row, total), is_finished in zip(grown, finished, strict=True):
            if is_finished:
                out.append((row[len(start) :].tolist(), total.item() / n**alpha))
        grown = [g for g, f in zip(grown, finished, strict=True) if not f]
        if not grown:
            break
        rows = torch.stack([row for row, _ in grown])
        sums = torch.stack([total for _, total in grown])
    return sorted(out, key=lambda o: o[1], reverse=True)


def beam_search__float64(next_logits, start, stop_id, beam_size, max_length, alpha=1.0):
    rows, sums, out = start[None, :], [0.0], []
    for n in range(1, max_length + 1):
        values = next_logits(rows).float().double().log_softmax(dim=-1).tolist()
        table = [(s + v, i, w) for i, s in enumerate(sums) for w, v in enumerate(values[i])]
        table.sort(key=lambda t: (-round(t[0], 9), t[1], t[2]))
        table = table[: beam_size - len(out)]
        grown = [[*rows[i].tolist(), w] for _, i, w in table]
        going = [(g, t[0]) for g, t in zip(grown, table, strict=True)]
        out += [(g[len(start) :], s / n**alpha) for g, s in going if g[-1] == stop_id or n == max_length]
        going = [(g, s) for g, s in going if g[-1] != stop_id]
        if not going or n == max_length:
            break
        rows = torch.tensor([g for g, _ in going], device=start.device)
        sums = [s for _, s in going]
    return sorted(out, key=lambda o: o[1], reverse=True)
