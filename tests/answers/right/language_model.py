"""Right answers to lesson 09's exercises, in many forms."""

import re
from functools import reduce
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.lessons.language_model import merge_pair

# ---- encode_bpe


def encode_bpe__smallest_rank(text, merges):
    ids = list(text.encode("utf-8"))
    while len(ids) > 1:
        pair = min(pairwise(ids), key=lambda pair: merges.get(pair, float("inf")))
        if pair not in merges:
            break
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def encode_bpe__one_merge_after_the_other(text, merges):
    ids = list(text.encode())
    for pair, new in merges.items():
        ids = merge_pair(ids, pair, new)
    return ids


def encode_bpe__reduce(text, merges):
    return reduce(lambda ids, item: merge_pair(ids, *item), merges.items(), [*text.encode()])


def encode_bpe__own_loop(text, merges):
    ids = [byte for byte in bytes(text, "utf-8")]
    for (first, second), new in merges.items():
        i = 0
        while i < len(ids) - 1:
            if ids[i] == first and ids[i + 1] == second:
                ids[i : i + 2] = [new]
            i += 1
    return ids


def encode_bpe__sets(text, merges):
    ids = list(text.encode())
    while possible := set(pairwise(ids)) & merges.keys():
        pair = min(possible, key=merges.get)
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def encode_bpe__recursion(text, merges):
    def again(ids):
        ranks = [merges[pair] for pair in pairwise(ids) if pair in merges]
        if not ranks:
            return ids
        new = min(ranks)
        (pair,) = (p for p, i in merges.items() if i == new)
        return again(merge_pair(ids, pair, new))

    return again(list(text.encode("utf8")))


def encode_bpe__leftmost_one_at_a_time(text, merges):
    ids = list(text.encode())
    while True:
        places = [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]
        if not places:
            return ids
        new, i = min(places)
        ids = [*ids[:i], new, *ids[i + 2 :]]


def encode_bpe__as_letters(text, merges):
    line = "".join(map(chr, text.encode()))
    for (first, second), new in merges.items():
        line = line.replace(chr(first) + chr(second), chr(new))
    return [ord(letter) for letter in line]


def encode_bpe__regular_expressions(text, merges):
    line = text.encode().decode("latin-1")
    for (first, second), new in merges.items():
        line = re.sub(re.escape(chr(first) + chr(second)), chr(new).replace("\\", r"\\"), line)
    return list(map(ord, line))


def encode_bpe__numpy_bytes(text, merges):
    ids = np.frombuffer(text.encode(), dtype=np.uint8).tolist()
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = merge_pair(ids, pair, new)
    return ids


def encode_bpe__stack(text, merges):
    ids = list(text.encode())
    for (first, second), new in merges.items():
        stack, joined = [], False
        for i in ids:
            if stack and stack[-1] == first and i == second and not joined:
                stack[-1], joined = new, True
            else:
                stack.append(i)
                joined = False
        ids = stack
    return ids


# ---- embed_tokens


def embed_tokens__index(tokens, table):
    return table[tokens]


def embed_tokens__embedding(tokens, table):
    return F.embedding(tokens, table)


def embed_tokens__one_hot(tokens, table):
    return F.one_hot(tokens, table.shape[0]).to(table.dtype) @ table


def embed_tokens__einsum(tokens, table):
    one_hot = F.one_hot(tokens, len(table)).to(table.dtype)
    return torch.einsum("...v,vd->...d", one_hot, table)


def embed_tokens__eye(tokens, table):
    eye = torch.eye(len(table), dtype=table.dtype, device=table.device)
    return eye[tokens] @ table


def embed_tokens__index_select(tokens, table):
    rows = table.index_select(0, tokens.reshape(-1))
    return rows.reshape(*tokens.shape, table.shape[1])


def embed_tokens__comparison(tokens, table):
    ids = torch.arange(len(table), device=tokens.device)
    return (tokens.unsqueeze(-1) == ids).to(table.dtype) @ table


def embed_tokens__gather(tokens, table):
    places = tokens.reshape(-1, 1).expand(-1, table.shape[1])
    return table.gather(0, places).reshape(*tokens.shape, -1)


def embed_tokens__loop(tokens, table):
    if tokens.dim() == 0:
        return table[int(tokens)]
    return torch.stack([embed_tokens__loop(row, table) for row in tokens])


def embed_tokens__module(tokens, table):
    return torch.func.functional_call(nn.Embedding(*table.shape, device="meta"), {"weight": table}, (tokens,))


def embed_tokens__columns_of_the_transposed(tokens, table):
    return table.T[:, tokens].movedim(0, -1)


# ---- next_token_loss


def next_token_loss__cross_entropy(logits, tokens):
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), tokens[..., 1:].flatten())


def next_token_loss__reshape(logits, tokens):
    n_ids = logits.shape[-1]
    predicted = logits[..., :-1, :].reshape(-1, n_ids)
    return F.cross_entropy(predicted, tokens[..., 1:].reshape(-1), reduction="mean")


def next_token_loss__log_softmax_gather(logits, tokens):
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, tokens[..., 1:, None]).mean()


def next_token_loss__logsumexp(logits, tokens):
    predicted, following = logits[..., :-1, :], tokens[..., 1:].unsqueeze(-1)
    return (predicted.logsumexp(dim=-1) - predicted.gather(-1, following).squeeze(-1)).mean()


def next_token_loss__nll(logits, tokens):
    log_p = F.log_softmax(logits, dim=-1)[..., :-1, :]
    return F.nll_loss(log_p.reshape(-1, log_p.shape[-1]), tokens[..., 1:].reshape(-1))


def next_token_loss__ignored_target(logits, tokens):
    following = F.pad(tokens[..., 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1), ignore_index=-100)


def next_token_loss__narrow(logits, tokens):
    n = tokens.shape[-1] - 1
    predicted, following = logits.narrow(-2, 0, n), tokens.narrow(-1, 1, n)
    return nn.CrossEntropyLoss()(predicted.flatten(end_dim=-2), following.flatten())


def next_token_loss__one_hot(logits, tokens):
    right = F.one_hot(tokens[..., 1:], logits.shape[-1]).to(logits.dtype)
    return -(torch.log_softmax(logits[..., :-1, :], -1) * right).sum(-1).mean()


def next_token_loss__loop(logits, tokens):
    rows, ids = logits.reshape(-1, *logits.shape[-2:]), tokens.reshape(-1, tokens.shape[-1])
    losses = [
        F.cross_entropy(row[:-1], following[1:], reduction="sum") for row, following in zip(rows, ids, strict=True)
    ]
    return torch.stack(losses).sum() / (len(ids) * (ids.shape[1] - 1))


def next_token_loss__token_by_token(logits, tokens):
    steps = range(tokens.shape[-1] - 1)
    losses = [-logits[..., t, :].log_softmax(-1).gather(-1, tokens[..., t + 1, None]) for t in steps]
    return torch.stack(losses).mean()


def next_token_loss__movedim(logits, tokens):
    predicted = logits[..., :-1, :].reshape(-1, tokens.shape[-1] - 1, logits.shape[-1])
    following = tokens[..., 1:].reshape(predicted.shape[:2])
    return F.cross_entropy(predicted.movedim(-1, 1), following)


# ---- sample_next


def sample_next__minus_infinity(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if top_k is not None:
        smallest = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if top_p is not None:
        ordered, order = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        gone = p.cumsum(-1) - p >= top_p
        logits = torch.empty_like(logits).scatter(-1, order, ordered.masked_fill(gone, -torch.inf))
    p = logits.softmax(-1)
    drawn = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return drawn.reshape(p.shape[:-1])


def sample_next__shifted_cumsum(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature <= 0:
        return torch.argmax(logits, dim=-1)
    p, ids = torch.softmax(logits / temperature, -1).sort(-1, descending=True)
    if top_k:
        p = p[..., :top_k]
        p = p / p.sum(-1, keepdim=True)
    if top_p:
        gone = p.cumsum(-1) >= top_p
        gone[..., 1:] = gone[..., :-1].clone()
        gone[..., 0] = False
        p = p.masked_fill(gone, 0)
    place = torch.multinomial(p.flatten(0, -2) if p.dim() > 1 else p[None], 1, generator=generator)
    return ids.gather(-1, place.reshape(*p.shape[:-1], 1))[..., 0]


def sample_next__gumbel(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    scores, ids = scores[..., :top_k], ids[..., :top_k]
    if top_p is not None:
        p = scores.softmax(dim=-1)
        scores = scores.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf)
    noise = torch.empty_like(scores).exponential_(generator=generator)
    place = (scores - noise.log()).argmax(dim=-1, keepdim=True)
    return ids.gather(-1, place).squeeze(-1)


def sample_next__inverse_of_the_sum(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1)
    p, ids = (logits / temperature).softmax(-1).sort(dim=-1, descending=True)
    keep = torch.ones_like(p, dtype=torch.bool)
    if top_k is not None:
        keep[..., top_k:] = False
    p = (p * keep) / (p * keep).sum(-1, keepdim=True)
    if top_p is not None:
        p = p * (p.cumsum(-1) - p < top_p)
    ends = p.cumsum(-1)
    draw = torch.rand(*p.shape[:-1], 1, generator=generator, device=p.device) * ends[..., -1:]
    place = (ends <= draw).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
    return ids.gather(-1, place)[..., 0]


def sample_next__row_by_row(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if logits.dim() > 1:
        rows = [sample_next__row_by_row(row, temperature, top_k, top_p, generator) for row in logits]
        return torch.stack(rows)
    if temperature == 0:
        return logits.argmax()
    order = logits.argsort(descending=True)[:top_k]
    p = torch.softmax(logits[order] / temperature, dim=0)
    if top_p is not None:
        n = int((p.cumsum(0) < top_p).sum()) + 1
        order, p = order[:n], p[:n]
    return order[torch.multinomial(p, 1, generator=generator)[0]]


def sample_next__searchsorted(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1)
    p, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = p[..., :top_k].softmax(-1)
    if top_p is not None:
        last = torch.searchsorted(p.cumsum(-1), torch.full_like(p[..., :1], top_p))
        p = p.masked_fill(torch.arange(p.shape[-1], device=p.device) > last, 0)
    flat = p.reshape(-1, p.shape[-1])
    place = flat.multinomial(1, generator=generator).view(*logits.shape[:-1], 1)
    return torch.take_along_dim(ids, place, dim=-1).squeeze(-1)


def sample_next__loop_for_top_p(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if not temperature:
        return logits.argmax(-1)
    p, ids = (logits / temperature).softmax(-1).sort(-1, descending=True)
    if top_k is not None:
        p = p[..., :top_k]
    p = p / p.sum(-1, keepdim=True)
    if top_p is not None:
        total, parts = torch.zeros_like(p[..., 0]), []
        for share in p.unbind(-1):
            parts.append(torch.where(total < top_p, share, 0))
            total = total + share
        p = torch.stack(parts, dim=-1)
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__with_replacement(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.max(dim=-1).indices
    leading, n = logits.shape[:-1], logits.shape[-1]
    flat = logits.reshape(-1, n) / temperature
    ordered, ids = torch.topk(flat, n if top_k is None else min(top_k, n), dim=-1)
    p = ordered.softmax(-1)
    if top_p is not None:
        p[(p.cumsum(-1) - p) >= top_p] = 0.0
    place = torch.multinomial(p, 1, replacement=True, generator=generator)
    return torch.gather(ids, 1, place).reshape(leading)


def sample_next__categorical_if_no_generator(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1)
    p, ids = (logits.double() / temperature).sort(dim=-1, descending=True)
    p = p[..., :top_k].softmax(-1)
    if top_p is not None:
        p = torch.where(p.cumsum(-1) - p < top_p - 1e-12, p, torch.zeros_like(p))
    if generator is None:
        place = torch.distributions.Categorical(probs=p).sample()
    else:
        place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).reshape(p.shape[:-1])
    return ids.gather(-1, place.unsqueeze(-1)).squeeze(-1)
