"""Right answers to lesson 01's exercises, in many forms."""

from functools import partial
from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

# ---- rnn_step


def rnn_step__formula(x, h, w_x, w_h, b):
    return torch.tanh(x @ w_x + h @ w_h + b)


def rnn_step__one_product(x, h, w_x, w_h, b):
    both = torch.cat([x, h], dim=-1) @ torch.cat([w_x, w_h])
    return torch.tanh(both + b)


def rnn_step__linear(x, h, w_x, w_h, b):
    return F.tanh(F.linear(x, w_x.T, b) + F.linear(h, w_h.T))


def rnn_step__einsum(x, h, w_x, w_h, b):
    read = torch.einsum("...i,ij->...j", x, w_x)
    kept = torch.einsum("...i,ij->...j", h, w_h)
    return (read + kept + b).tanh()


def rnn_step__cell_of_pytorch(x, h, w_x, w_h, b):
    cell = nn.RNNCell(*w_x.shape, device="meta")
    parts = {"weight_ih": w_x.T, "weight_hh": w_h.T, "bias_ih": b}
    parts["bias_hh"] = torch.zeros_like(b)
    flat = x.reshape(-1, x.shape[-1]), h.reshape(-1, h.shape[-1])
    return torch.func.functional_call(cell, parts, flat).reshape(h.shape)


def rnn_step__rnn_tanh_cell(x, h, w_x, w_h, b):
    rows, states = x.reshape(-1, x.shape[-1]), h.reshape(-1, h.shape[-1])
    zero = torch.zeros_like(b)
    new = torch.rnn_tanh_cell(rows, states, w_x.T, w_h.T, b, zero)
    return new.reshape(h.shape)


def rnn_step__addmm(x, h, w_x, w_h, b):
    first = torch.addmm(b, x.reshape(-1, x.shape[-1]), w_x)
    total = torch.addmm(first, h.reshape(-1, h.shape[-1]), w_h)
    return torch.tanh(total).reshape(h.shape)


def rnn_step__unit_by_unit(x, h, w_x, w_h, b):
    units = []
    for j in range(len(b)):
        total = (x * w_x[:, j]).sum(dim=-1) + (h * w_h[:, j]).sum(dim=-1)
        units.append(torch.tanh(total + b[j]))
    return torch.stack(units, dim=-1)


def rnn_step__row_by_row(x, h, w_x, w_h, b):
    xs, hs = x.reshape(-1, x.shape[-1]), h.reshape(-1, h.shape[-1])
    new = [torch.tanh(w_x.T @ r + w_h.T @ s + b) for r, s in zip(xs, hs, strict=True)]
    return torch.stack(new).reshape(h.shape)


def rnn_step__broadcast_products(x, h, w_x, w_h, b):
    read = (x.unsqueeze(-1) * w_x).sum(dim=-2)
    kept = (h.unsqueeze(-1) * w_h).sum(dim=-2)
    return torch.tanh(b + read + kept)


def rnn_step__by_sigmoid(x, h, w_x, w_h, b):
    z = x @ w_x + h @ w_h + b
    return 2 * torch.sigmoid(2 * z) - 1


def rnn_step__float64_and_back(x, h, w_x, w_h, b):
    x64, h64, w_x64, w_h64, b64 = (v.double() for v in (x, h, w_x, w_h, b))
    return torch.tanh(x64 @ w_x64 + h64 @ w_h64 + b64).to(h.dtype)


class Elman(nn.Module):
    """One recurrent step as a module."""

    def forward(self, x, h, w_x, w_h, b):
        return (torch.matmul(x, w_x) + torch.matmul(h, w_h)).add(b).tanh()


rnn_step__module = Elman()


# ---- last_valid_state


def last_valid_state__gather(states, lengths):
    last = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, last).squeeze(-2)


def last_valid_state__mask(states, lengths):
    positions = torch.arange(states.shape[-2], device=lengths.device)
    mask = positions == (lengths - 1)[..., None]
    return states[mask].reshape(*lengths.shape, states.shape[-1])


def last_valid_state__flat_rows(states, lengths):
    flat = states.reshape(-1, *states.shape[-2:])
    rows = torch.arange(len(flat), device=states.device)
    chosen = flat[rows, lengths.reshape(-1) - 1]
    return chosen.reshape(*lengths.shape, states.shape[-1])


def last_valid_state__list_of_rows(states, lengths):
    flat = states.reshape(-1, *states.shape[-2:])
    numbers = lengths.reshape(-1).tolist()
    chosen = [row[n - 1] for row, n in zip(flat, numbers, strict=True)]
    return torch.stack(chosen).view(lengths.shape + states.shape[-1:])


def last_valid_state__take_along_dim(states, lengths):
    last = lengths.long()[..., None, None] - 1
    return torch.take_along_dim(states, last, dim=-2)[..., 0, :]


def last_valid_state__where_and_sum(states, lengths):
    positions = torch.arange(1, states.shape[-2] + 1).to(lengths.device)
    is_last = positions == lengths.unsqueeze(-1)
    return torch.where(is_last.unsqueeze(-1), states, 0).sum(dim=-2)


def last_valid_state__index_select(states, lengths):
    time, hidden = states.shape[-2:]
    n = lengths.numel()
    first = torch.arange(n, device=lengths.device) * time
    index = first + lengths.reshape(n) - 1
    chosen = states.reshape(n * time, hidden).index_select(0, index)
    return chosen.reshape(*lengths.shape, hidden)


def last_valid_state__recursion(states, lengths):
    def one(table, length):
        if length.dim() == 0:
            return table[int(length) - 1]
        pairs = zip(table, length, strict=True)
        return torch.stack([one(t, n) for t, n in pairs])

    return one(states, lengths)


def last_valid_state__step_by_step(states, lengths):
    state = states[..., 0, :]
    for t in range(1, states.shape[-2]):
        goes_on = (t < lengths).unsqueeze(-1)
        state = torch.where(goes_on, states[..., t, :], state)
    return state


def last_valid_state__largest_of_one(states, lengths):
    positions = torch.arange(states.shape[-2], device=states.device)
    others = positions != lengths[..., None] - 1
    return states.masked_fill(others[..., None], -torch.inf).amax(dim=-2)


def last_valid_state__masked_select(states, lengths):
    one_hot = F.one_hot(lengths.long() - 1, states.shape[-2]).bool()
    chosen = states.masked_select(one_hot.unsqueeze(-1))
    return chosen.reshape(states.shape[:-2] + states.shape[-1:])


def last_valid_state__vmap(states, lengths):
    def one(table, length):
        return table.index_select(0, length.reshape(1) - 1).squeeze(0)

    for _ in range(lengths.dim()):
        one = torch.vmap(one)
    return one(states, lengths)


# ---- masked_cross_entropy


def masked_cross_entropy__formula(logits, targets, lengths):
    positions = torch.arange(targets.shape[-1], device=targets.device)
    valid = positions < lengths.unsqueeze(-1)
    return F.cross_entropy(logits[valid], targets[valid])


def masked_cross_entropy__log_softmax(logits, targets, lengths):
    valid = torch.arange(targets.shape[-1]).to(lengths.device) < lengths[..., None]
    log_p = torch.log_softmax(logits[valid], dim=-1)
    return -log_p.gather(-1, targets[valid].unsqueeze(-1)).mean()


def masked_cross_entropy__logsumexp(logits, targets, lengths):
    valid = torch.arange(targets.shape[-1], device=targets.device) < lengths[..., None]
    z, y = logits[valid], targets[valid]
    z = z - z.max(dim=-1, keepdim=True).values
    right = z[torch.arange(len(y), device=y.device), y]
    return (z.logsumexp(dim=-1) - right).mean()


def masked_cross_entropy__sentence_by_sentence(logits, targets, lengths):
    total, count = 0.0, 0
    flat = logits.reshape(-1, *logits.shape[-2:])
    ids = targets.reshape(-1, targets.shape[-1])
    for z, y, n in zip(flat, ids, lengths.reshape(-1).tolist(), strict=True):
        if n > 0:
            total = total + F.cross_entropy(z[:n], y[:n], reduction="sum")
            count += n
    return total / count


def masked_cross_entropy__token_by_token(logits, targets, lengths):
    losses = []
    time, size = logits.shape[-2:]
    for row, n in enumerate(lengths.reshape(-1).tolist()):
        for t in range(n):
            z = logits.reshape(-1, time, size)[row, t]
            target = int(targets.reshape(-1, time)[row, t])
            losses.append(-torch.log_softmax(z, dim=0)[target])
    return torch.stack(losses).mean()


def masked_cross_entropy__concatenated(logits, targets, lengths):
    numbers = lengths.flatten().tolist()
    z = logits.reshape(-1, *logits.shape[-2:])
    y = targets.reshape(-1, targets.shape[-1])
    words = torch.cat([row[:n] for row, n in zip(z, numbers, strict=True)])
    ids = torch.cat([row[:n] for row, n in zip(y, numbers, strict=True)])
    return F.nll_loss(words.log_softmax(-1), ids)


def masked_cross_entropy__ignore_index(logits, targets, lengths):
    positions = torch.arange(targets.shape[-1], device=targets.device)
    padding = positions >= lengths.unsqueeze(-1)
    z = logits.masked_fill(padding.unsqueeze(-1), 0)
    y = targets.masked_fill(padding, -100)
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1))


def masked_cross_entropy__reduction_none(logits, targets, lengths):
    steps = torch.arange(targets.shape[-1], device=targets.device)
    valid = steps < lengths.unsqueeze(-1)
    z = torch.where(valid[..., None], logits, torch.zeros_like(logits))
    y = torch.where(valid, targets, 0)
    losses = F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="none")
    return (losses * valid.flatten()).sum() / valid.sum()


def masked_cross_entropy__masked_select(logits, targets, lengths):
    steps = torch.arange(targets.shape[-1], device=targets.device)
    valid = steps.lt(lengths[..., None])
    z = torch.masked_select(logits, valid[..., None]).view(-1, logits.shape[-1])
    return nn.CrossEntropyLoss()(z, torch.masked_select(targets, valid))


def masked_cross_entropy__packed(logits, targets, lengths):
    numbers = lengths.reshape(-1)
    z = logits.reshape(-1, *logits.shape[-2:])[numbers > 0]
    y = targets.reshape(-1, targets.shape[-1])[numbers > 0]
    n = numbers[numbers > 0].cpu()
    pack = partial(pack_padded_sequence, batch_first=True, enforce_sorted=False)
    return F.cross_entropy(pack(z, n).data, pack(y, n).data)


def masked_cross_entropy__one_hot(logits, targets, lengths):
    steps = torch.arange(targets.shape[-1], device=targets.device)
    valid = steps < lengths.unsqueeze(-1)
    z = logits[valid]
    right = F.one_hot(targets[valid], z.shape[-1]).to(z.dtype)
    return -(right * z.log_softmax(dim=-1)).sum() / len(z)


def masked_cross_entropy__float64_and_back(logits, targets, lengths):
    steps = torch.arange(targets.shape[-1], device=targets.device)
    rows = (steps < lengths.unsqueeze(-1)).nonzero(as_tuple=True)
    loss = F.cross_entropy(logits[rows].double(), targets[rows])
    return loss.to(logits.dtype)


def masked_cross_entropy__categorical(logits, targets, lengths):
    steps = torch.arange(targets.shape[-1], device=targets.device)
    valid = steps < lengths.unsqueeze(-1)
    z = logits[valid]
    z = z - z.amax(dim=-1, keepdim=True)
    distribution = torch.distributions.Categorical(logits=z)
    return distribution.log_prob(targets[valid]).mean().neg()


# ---- greedy_decode


def greedy_decode__lists_and_mask(step, state, start_tokens, stop_id, max_length):
    tokens = start_tokens
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sentences: list[list[int]] = [[] for _ in tokens]
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        for row in (~ended).nonzero().flatten().tolist():
            sentences[row].append(int(tokens[row]))
    return sentences


def greedy_decode__while_loop(step, state, start_tokens, stop_id, max_length):
    answers = [[] for _ in range(len(start_tokens))]
    open_rows = set(range(len(start_tokens)))
    tokens, count = start_tokens, 0
    while open_rows and count < max_length:
        logits, state = step(tokens, state)
        tokens = torch.max(logits, dim=-1).indices
        count += 1
        for row, token in enumerate(tokens.tolist()):
            if token == stop_id:
                open_rows.discard(row)
            elif row in open_rows:
                answers[row].append(token)
    return answers


def greedy_decode__columns_then_cut(step, state, start_tokens, stop_id, max_length):
    columns = []
    tokens = start_tokens
    seen = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    while len(columns) < max_length and not bool(seen.all()):
        logits, state = step(tokens, state)
        tokens = logits.argmax(-1)
        columns.append(tokens.tolist())
        seen = torch.logical_or(seen, tokens.eq(stop_id))
    rows = [[column[i] for column in columns] for i in range(len(start_tokens))]
    return [list(takewhile(lambda token: token != stop_id, row)) for row in rows]


def greedy_decode__table_of_stops(step, state, start_tokens, stop_id, max_length):
    batch = start_tokens.shape[0]
    table = start_tokens.new_full((batch, max_length + 1), stop_id)
    tokens = start_tokens
    for t in range(max_length):
        if (table[:, :t] == stop_id).any(dim=1).all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=1)
        table[:, t] = tokens
    return [row[: row.index(stop_id)] for row in table.tolist()]


def greedy_decode__recursion(step, state, start_tokens, stop_id, max_length):
    def write(tokens, state, ended, left):
        if left == 0 or all(ended):
            return [[] for _ in ended]
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        words = tokens.tolist()
        ended = [e or w == stop_id for e, w in zip(ended, words, strict=True)]
        rest = write(tokens, state, ended, left - 1)
        both = zip(ended, words, rest, strict=True)
        return [[] if e else [w, *more] for e, w, more in both]

    return write(start_tokens, state, [False] * len(start_tokens), max_length)


def greedy_decode__generator(step, state, start_tokens, stop_id, max_length):
    def spoken():
        tokens, now = start_tokens, state
        for _ in range(max_length):
            logits, now = step(tokens, now)
            tokens = logits.topk(1, dim=-1).indices.squeeze(-1)
            yield tokens.tolist()

    sentences = [[] for _ in start_tokens]
    alive = [True] * len(sentences)
    if not any(alive):
        return sentences
    for words in spoken():
        alive = [a and w != stop_id for a, w in zip(alive, words, strict=True)]
        for sentence, a, word in zip(sentences, alive, words, strict=True):
            if a:
                sentence.append(word)
        if not any(alive):
            break
    return sentences


def greedy_decode__ended_rows_read_stop(step, state, start_tokens, stop_id, max_length):
    tokens = start_tokens
    ended = torch.zeros(tokens.shape, dtype=torch.bool, device=tokens.device)
    columns = []
    for _ in range(max_length):
        if bool(ended.all()):
            break
        logits, state = step(tokens, state)
        tokens = torch.where(ended, stop_id, logits.argmax(dim=-1))
        ended = tokens == stop_id
        columns.append(tokens)
    if not columns:
        return [[] for _ in range(len(start_tokens))]
    table = torch.stack(columns, dim=1)
    return [[t for t in row if t != stop_id] for row in table.tolist()]


def greedy_decode__count_of_ended(step, state, start_tokens, stop_id, max_length):
    batch = len(start_tokens)
    lengths: list[int | None] = [None] * batch
    columns, tokens = [], start_tokens
    for t in range(max_length):
        if lengths.count(None) == 0:
            break
        result = step(tokens, state)
        tokens, state = result[0].argmax(dim=-1), result[1]
        columns.append(tokens)
        for row in range(batch):
            if lengths[row] is None and tokens[row].item() == stop_id:
                lengths[row] = t
    return [[c[i].item() for c in columns[: lengths[i]]] for i in range(batch)]


class Writer:
    """Greedy decoding as an object."""

    def __call__(self, step, state, start_tokens, stop_id, max_length):
        self.sentences = {row: [] for row in range(len(start_tokens))}
        self.writing = list(self.sentences)
        tokens = start_tokens
        for _ in range(max_length):
            if not self.writing:
                break
            logits, state = step(tokens, state)
            tokens = logits.argmax(dim=-1)
            self.keep(tokens.cpu().numpy(), stop_id)
        return list(self.sentences.values())

    def keep(self, tokens, stop_id):
        self.writing = [row for row in self.writing if tokens[row] != stop_id]
        for row in self.writing:
            self.sentences[row].append(int(tokens[row]))


greedy_decode__callable_object = Writer()
