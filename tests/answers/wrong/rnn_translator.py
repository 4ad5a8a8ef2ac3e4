"""Wrong answers to lesson 01's exercises, as learners write them."""

import torch
import torch.nn.functional as F

# ---- rnn_step


def rnn_step__bias_forgotten(x, h, w_x, w_h, b):
    """The bias `b` is not added."""
    return torch.tanh(torch.matmul(x, w_x) + torch.matmul(h, w_h))


def rnn_step__weights_transposed(x, h, w_x, w_h, b):
    """Both weights are transposed, as nn.Linear stores them; `w_x` then rarely fits."""
    return torch.tanh(F.linear(x, w_x) + F.linear(h, w_h) + b)


def rnn_step__weights_stacked_in_the_wrong_order(x, h, w_x, w_h, b):
    """[x, h] side by side meets [w_h; w_x], so x and h meet each other's weights."""
    both = torch.cat([x, h], dim=-1)
    w = torch.cat([w_h, w_x], dim=0)
    return torch.tanh(both @ w + b)


def rnn_step__tanh_of_each_product(x, h, w_x, w_h, b):
    """Each product has a tanh of its own, where one tanh of the whole sum is asked."""
    return torch.tanh(x @ w_x) + torch.tanh(h @ w_h + b)


def rnn_step__mm(x, h, w_x, w_h, b):
    """torch.mm takes only matrices: exactly one leading dimension, else it raises."""
    return torch.tanh(torch.mm(x, w_x) + torch.mm(h, w_h) + b)


def rnn_step__no_bias_and_sigmoid(x, h, w_x, w_h, b):
    """Two faults: the bias is forgotten, and a sigmoid is there instead of the tanh."""
    z = x @ w_x + h @ w_h
    return 1 / (1 + torch.exp(-z))


def rnn_step__old_state_detached(x, h, w_x, w_h, b):
    """The values are right, but `h` is detached, so no gradient reaches it."""
    return torch.tanh(x @ w_x + h.detach() @ w_h + b)


def rnn_step__squeezed(x, h, w_x, w_h, b):
    """`squeeze()` removes every dimension of size 1, such as that of a batch of one."""
    new = x.unsqueeze(-2) @ w_x + h.unsqueeze(-2) @ w_h + b
    return torch.tanh(new).squeeze()


def rnn_step__writes_into_the_old_state(x, h, w_x, w_h, b):
    """The new state is written over `h`, which changes the caller's tensor."""
    h[...] = torch.tanh(x @ w_x + h @ w_h + b)
    return h


# ---- last_valid_state


def last_valid_state__lengths_not_minus_1(states, lengths):
    """Takes position `lengths`, one too far; it raises where no padding follows."""
    index = lengths[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, index).squeeze(-2)


def last_valid_state__every_length_for_every_row(states, lengths):
    """Each row is indexed with all lengths: a batch of B gives (B, B, hidden)."""
    return states[:, lengths - 1]


def last_valid_state__loop_over_one_batch_dimension(states, lengths):
    """A loop over rows: right for one leading dimension, it raises for none or two."""
    rows = []
    for i in range(len(lengths)):
        rows.append(states[i, lengths[i] - 1])
    return torch.stack(rows)


def last_valid_state__index_not_expanded(states, lengths):
    """The index of `gather` has size 1 along hidden: only the first unit comes out."""
    index = (lengths - 1).unsqueeze(-1).unsqueeze(-1)
    return states.gather(-2, index).squeeze(-2)


def last_valid_state__counted_from_the_end(states, lengths):
    """Position -lengths: counted from the right end, not from the left."""
    last = (states.shape[-2] - lengths)[..., None, None]
    last = last.expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, last).squeeze(-2)


def last_valid_state__one_hot_product(states, lengths):
    """The other states are multiplied by 0, but 0 times NaN in padding is NaN."""
    chosen = F.one_hot(lengths - 1, states.shape[-2]).to(states.dtype)
    return torch.einsum("...t,...th->...h", chosen, states)


def last_valid_state__sum_of_valid_and_nan(states, lengths):
    """Two faults: adds up all valid states, and multiplies NaN in padding by 0."""
    valid = torch.arange(states.shape[-2], device=states.device) < lengths[..., None]
    return (states * valid[..., None]).sum(dim=-2)


def last_valid_state__squeezed(states, lengths):
    """`squeeze()` also removes a batch of one, or the hidden dimension, of size 1."""
    index = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return torch.gather(states, -2, index).squeeze()


def last_valid_state__changes_the_lengths(states, lengths):
    """The result is right, but `lengths -= 1` changes the caller's lengths."""
    lengths -= 1
    index = lengths[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
    return states.gather(-2, index).squeeze(-2)


# ---- masked_cross_entropy


def masked_cross_entropy__mean_of_sentence_means(logits, targets, lengths):
    """Each sentence gets its own mean first, so tokens of short ones count more."""
    rows = logits.reshape(-1, *logits.shape[-2:])
    words = targets.reshape(-1, targets.shape[-1])
    means = []
    for i, n in enumerate(lengths.reshape(-1).tolist()):
        if n > 0:
            means.append(F.cross_entropy(rows[i, :n], words[i, :n]))
    return torch.stack(means).mean()


def masked_cross_entropy__ignore_index_0(logits, targets, lengths):
    """Skips targets of id 0 whatever the lengths: padding of other ids is counted."""
    vocabulary = logits.shape[-1]
    flat = logits.reshape(-1, vocabulary)
    return F.cross_entropy(flat, targets.reshape(-1), ignore_index=0)


def masked_cross_entropy__losses_times_mask(logits, targets, lengths):
    """Losses of padding are multiplied by 0: NaN stays NaN, and ids outside raise."""
    time, vocabulary = logits.shape[-2:]
    mask = torch.arange(time, device=targets.device) < lengths.unsqueeze(-1)
    flat = logits.reshape(-1, vocabulary), targets.reshape(-1)
    losses = F.cross_entropy(*flat, reduction="none").reshape(targets.shape)
    return (losses * mask).sum() / mask.sum()


def masked_cross_entropy__softmax_twice(logits, targets, lengths):
    """`F.cross_entropy` takes logits, but is given probabilities: softmax twice."""
    positions = torch.arange(targets.shape[-1], device=targets.device)
    mask = positions < lengths[..., None]
    probabilities = torch.softmax(logits, dim=-1)
    return F.cross_entropy(probabilities[mask], targets[mask])


def masked_cross_entropy__divided_by_all_positions(logits, targets, lengths):
    """The sum over valid tokens is divided by all positions, padding included."""
    positions = torch.arange(targets.shape[-1], device=targets.device)
    valid = positions < lengths[..., None]
    total = F.cross_entropy(logits[valid], targets[valid], reduction="sum")
    return total / targets.numel()


def masked_cross_entropy__one_batch_dimension_and_not_divided(logits, targets, lengths):
    """Two faults: only one leading dimension works, and the sum is never divided."""
    loss = 0
    for i in range(len(lengths)):
        n = lengths[i]
        loss += F.cross_entropy(logits[i, :n], targets[i, :n], reduction="sum")
    return loss


def masked_cross_entropy__ignore_index_of_padding(logits, targets, lengths):
    """The loss is right, but NaN logits at padding get a gradient of NaN, not 0."""
    positions = torch.arange(targets.shape[-1], device=targets.device)
    padding = positions >= lengths.unsqueeze(-1)
    words = targets.masked_fill(padding, -100).reshape(-1)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), words)


def masked_cross_entropy__log_of_softmax(logits, targets, lengths):
    """log(softmax) in two steps: a small probability becomes 0, and the loss inf."""
    positions = torch.arange(targets.shape[-1], device=targets.device)
    valid = positions < lengths.unsqueeze(-1)
    p = torch.softmax(logits[valid], dim=-1)
    right = p.gather(-1, targets[valid].unsqueeze(-1))
    return -torch.log(right).mean()


def masked_cross_entropy__positions_on_the_cpu(logits, targets, lengths):
    """`torch.arange` has no device: on the CPU, though the inputs may be on a GPU."""
    valid = torch.arange(targets.shape[-1]) < lengths.unsqueeze(-1)
    return F.cross_entropy(logits[valid], targets[valid])


# ---- greedy_decode


def greedy_decode__any_ended_stops(step, state, start_tokens, stop_id, max_length):
    """The loop ends when one sentence has ended: the longer ones are cut short."""
    sentences = [[] for _ in start_tokens]
    tokens = start_tokens
    for _ in range(max_length):
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        if (tokens == stop_id).any():
            break
        for sentence, token in zip(sentences, tokens.tolist(), strict=True):
            sentence.append(token)
    return sentences


def greedy_decode__one_list_for_all(step, state, start_tokens, stop_id, max_length):
    """`[[]] * n` is n times the same list: every sentence holds the words of all."""
    sentences = [[]] * len(start_tokens)
    done = [False] * len(start_tokens)
    tokens = start_tokens
    for _ in range(max_length):
        if all(done):
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        for i, token in enumerate(tokens.tolist()):
            done[i] = done[i] or token == stop_id
            if not done[i]:
                sentences[i].append(token)
    return sentences


def greedy_decode__keeps_the_stop_token(step, state, start_tokens, stop_id, max_length):
    """The stop token is appended before the sentence is marked as ended."""
    sentences = [[] for _ in start_tokens]
    done = [False] * len(start_tokens)
    tokens = start_tokens
    for _ in range(max_length):
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        for i, token in enumerate(tokens.tolist()):
            if not done[i]:
                sentences[i].append(token)
            if token == stop_id:
                done[i] = True
        if all(done):
            break
    return sentences


def greedy_decode__state_not_passed_on(step, state, start_tokens, stop_id, max_length):
    """The new state is thrown away: every step starts from the first state."""
    tokens = start_tokens
    finished = torch.zeros_like(start_tokens, dtype=torch.bool)
    out = [[] for _ in start_tokens]
    for _ in range(max_length):
        logits, _new_state = step(tokens, state)
        tokens = logits.argmax(-1)
        finished |= tokens == stop_id
        if finished.all():
            break
        for i in range(len(out)):
            if not finished[i]:
                out[i].append(tokens[i].item())
    return out


def greedy_decode__drops_stop_only(step, state, start_tokens, stop_id, max_length):
    """Only stop tokens are left out: words that a sentence writes after it stay."""
    tokens, columns = start_tokens, []
    ended = torch.zeros_like(start_tokens, dtype=torch.bool)
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        columns.append(tokens.tolist())
    rows = [[column[i] for column in columns] for i in range(len(start_tokens))]
    return [[token for token in row if token != stop_id] for row in rows]


def greedy_decode__start_kept_no_stop(step, state, start_tokens, stop_id, max_length):
    """Two faults: answers begin with the start token, and `step` never stops early."""
    written = [start_tokens]
    for _ in range(max_length):
        logits, state = step(written[-1], state)
        written.append(logits.argmax(dim=-1))
    rows = torch.stack(written, dim=1).tolist()
    return [row[: row.index(stop_id)] if stop_id in row else row for row in rows]


def greedy_decode__start_token_may_stop(step, state, start_tokens, stop_id, max_length):
    """A start token that equals `stop_id` ends its sentence before the first word."""
    tokens = start_tokens
    ended = tokens == stop_id
    sentences = [[] for _ in tokens]
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        for i, token in enumerate(tokens.tolist()):
            if not ended[i]:
                sentences[i].append(token)
    return sentences


def greedy_decode__changes_start_tokens(step, state, start_tokens, stop_id, max_length):
    """New tokens are written into `start_tokens`, which changes the caller's tensor."""
    tokens = start_tokens
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sentences = [[] for _ in tokens]
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens[:] = logits.argmax(dim=-1)
        ended = ended | (tokens == stop_id)
        for i, token in enumerate(tokens.tolist()):
            if not ended[i]:
                sentences[i].append(token)
    return sentences


def greedy_decode__tokens_on_the_cpu(step, state, start_tokens, stop_id, max_length):
    """The next tokens are a new tensor without a device: on the CPU, not on a GPU."""
    tokens = start_tokens
    ended = [False] * len(tokens)
    sentences = [[] for _ in tokens]
    for _ in range(max_length):
        if all(ended):
            break
        logits, state = step(tokens, state)
        best = logits.argmax(dim=-1).tolist()
        for i, token in enumerate(best):
            ended[i] = ended[i] or token == stop_id
            if not ended[i]:
                sentences[i].append(token)
        tokens = torch.tensor(best)
    return sentences


def greedy_decode__list_of_tensors(step, state, start_tokens, stop_id, max_length):
    """The sentences hold tensors without dimensions, not Python ints."""
    tokens = start_tokens
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sentences = [[] for _ in tokens]
    for _ in range(max_length):
        if ended.all():
            break
        logits, state = step(tokens, state)
        tokens = torch.argmax(logits, dim=1)
        ended = ended | (tokens == stop_id)
        for sentence, token, end in zip(sentences, tokens, ended, strict=True):
            if not end:
                sentence.append(token)
    return sentences
