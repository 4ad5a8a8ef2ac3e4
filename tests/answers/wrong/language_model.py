"""Wrong answers to lesson 09's exercises; each docstring says what is wrong."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F

from course_utils.lessons.language_model import merge_pair, sample_next

# ---- encode_bpe


def encode_bpe__ord(text, merges):
    """Numbers of characters, not bytes: 你 becomes 20320, which is the id of some merge."""
    ids = [ord(c) for c in text]
    for pair, new in merges.items():
        ids = merge_pair(ids, pair, new)
    return ids


def encode_bpe__reversed_order(text, merges):
    """The merges are applied backwards, the last one first."""
    ids = list(text.encode())
    while known := [pair for pair in pairwise(ids) if pair in merges]:
        pair = max(known, key=merges.get)
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def encode_bpe__backwards_once(text, merges):
    """Goes once through the merges, the last one first."""
    ids = list(text.encode())
    for pair in reversed(merges):
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def encode_bpe__leftmost_pair(text, merges):
    """Merges the pair that comes first in the text, not the one learned first."""
    ids = list(text.encode())
    while True:
        for pair in pairwise(ids):
            if pair in merges:
                ids = merge_pair(ids, pair, merges[pair])
                break
        else:
            return ids


def encode_bpe__one_pass_over_the_text(text, merges):
    """Walks once over the text and merges what it meets: later merges never happen."""
    ids = list(text.encode())
    merged, i = [], 0
    while i < len(ids):
        pair = tuple(ids[i : i + 2])
        if pair in merges:
            merged.append(merges[pair])
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def encode_bpe__first_place_only(text, merges):
    """Each merge is done at the first place where its pair stands, and nowhere else."""
    ids = list(text.encode())
    for pair, new in merges.items():
        for i, found in enumerate(pairwise(ids)):
            if found == pair:
                ids[i : i + 2] = [new]
                break
    return ids


def encode_bpe__greedy_longest(text, merges):
    """Takes the longest token that fits from the left."""
    tokens = {bytes([i]): i for i in range(256)}
    names = {i: bytes([i]) for i in range(256)}
    for (a, b), new in merges.items():
        names[new] = names[a] + names[b]
        tokens[names[new]] = new
    data, ids = text.encode(), []
    while data:
        n = max(n for n in range(1, len(data) + 1) if data[:n] in tokens)
        ids.append(tokens[data[:n]])
        data = data[n:]
    return ids


def encode_bpe__no_spaces(text, merges):
    """Splits at spaces and loses them."""
    ids = []
    for word in text.split():
        piece = list(word.encode())
        for pair, new in merges.items():
            piece = merge_pair(piece, pair, new)
        ids += piece
    return ids


def encode_bpe__latin_1(text, merges):
    """Encodes in latin-1, which has no Chinese; what it lacks becomes a question mark."""
    ids = list(text.encode("latin-1", errors="replace"))
    for pair, new in merges.items():
        ids = merge_pair(ids, pair, new)
    return ids


def encode_bpe__tokens_in_place_of_ids(text, merges):
    """Returns the tokens as bytes, not their ids."""
    tokens = [bytes([i]) for i in text.encode()]
    names = {i: bytes([i]) for i in range(256)}
    for (a, b), new in merges.items():
        names[new] = names[a] + names[b]
        merged = []
        for token in tokens:
            if merged and merged[-1] == names[a] and token == names[b]:
                merged[-1] = names[new]
            else:
                merged.append(token)
        tokens = merged
    return tokens


def encode_bpe__ranks(text, merges):
    """Numbers the merges from 0, so a merge looks like a byte."""
    ids = list(text.encode())
    while known := [pair for pair in pairwise(ids) if pair in merges]:
        pair = min(known, key=merges.get)
        ids = merge_pair(ids, pair, merges[pair] - 256)
    return ids


def encode_bpe__smallest_pair(text, merges):
    """`min` without a key compares the old ids."""
    ids = list(text.encode())
    while known := [pair for pair in pairwise(ids) if pair in merges]:
        ids = merge_pair(ids, min(known), merges[min(known)])
    return ids


# ---- embed_tokens


def embed_tokens__minus_1(tokens, table):
    """Counts the ids from 1."""
    return table[tokens - 1]


def embed_tokens__columns(tokens, table):
    """Takes columns instead of rows."""
    return table[:, tokens].movedim(0, -1)


def embed_tokens__scaled(tokens, table):
    """Multiplied by the root of the width, as in 2017."""
    return table[tokens] * math.sqrt(table.shape[-1])


def embed_tokens__padding_idx(tokens, table):
    """Row 0 gets no gradient."""
    return F.embedding(tokens, table, padding_idx=0)


def embed_tokens__take(tokens, table):
    """Single numbers, not rows."""
    return torch.take(table, tokens)


def embed_tokens__detached(tokens, table):
    """The table cannot learn."""
    return table.detach()[tokens]


def embed_tokens__float32(tokens, table):
    """Always float32."""
    return F.one_hot(tokens, len(table)).float() @ table.float()


def embed_tokens__squeezed(tokens, table):
    """A batch of one loses its dimension."""
    return table[tokens].squeeze()


def embed_tokens__mean(tokens, table):
    """One vector for the text, the mean: what an embedding bag does."""
    return table[tokens].mean(dim=-2)


def embed_tokens__python_numbers(tokens, table):
    """Goes through Python's numbers: new tensors, no gradients."""
    return torch.tensor([[table[i].tolist() for i in row] for row in tokens.tolist()])


def embed_tokens__one_hot_of_the_wrong_width(tokens, table):
    """As many columns as the table has columns, and then a product with the wrong side."""
    return F.one_hot(tokens, table.shape[1]).to(table.dtype) @ table.T


def embed_tokens__normalised(tokens, table):
    """All vectors get length 1."""
    return F.normalize(table[tokens], dim=-1)


# ---- next_token_loss


def next_token_loss__not_shifted(logits, tokens):
    """Compares the logits with the token that was just read."""
    return F.cross_entropy(logits.flatten(0, -2), tokens.flatten())


def next_token_loss__shifted_twice(logits, tokens):
    """Two places instead of one."""
    return F.cross_entropy(logits[..., :-2, :].flatten(0, -2), tokens[..., 2:].flatten())


def next_token_loss__backwards(logits, tokens):
    """Predicts the token before."""
    return F.cross_entropy(logits[..., 1:, :].flatten(0, -2), tokens[..., :-1].flatten())


def next_token_loss__rolled(logits, tokens):
    """The last logits must predict the first token."""
    return F.cross_entropy(logits.flatten(0, -2), tokens.roll(-1, dims=-1).flatten())


def next_token_loss__sum(logits, tokens):
    """The sum."""
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), tokens[..., 1:].flatten(), reduction="sum")


def next_token_loss__over_all_tokens(logits, tokens):
    """Divides by the number of all tokens."""
    log_p = logits[..., :-1, :].log_softmax(-1).gather(-1, tokens[..., 1:, None])
    return -log_p.sum() / tokens.numel()


def next_token_loss__softmax_first(logits, tokens):
    """A softmax before cross_entropy, which does its own."""
    p = logits[..., :-1, :].softmax(-1)
    return F.cross_entropy(p.flatten(0, -2), tokens[..., 1:].flatten())


def next_token_loss__log_of_softmax(logits, tokens):
    """-log(softmax): a probability that is rounded to 0 gives infinity."""
    p = logits[..., :-1, :].softmax(-1).gather(-1, tokens[..., 1:, None])
    return -p.log().mean()


def next_token_loss__small_number_added(logits, tokens):
    """A small number against log(0): a sure mistake costs 21 nats at the most."""
    p = logits[..., :-1, :].softmax(-1).gather(-1, tokens[..., 1:, None])
    return -(p + 1e-9).log().mean()


def next_token_loss__bits(logits, tokens):
    """In bits."""
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), tokens[..., 1:].flatten()) / math.log(2)


def next_token_loss__ignores_id_0(logits, tokens):
    """Takes the id 0 for padding."""
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), tokens[..., 1:].flatten(), ignore_index=0)


def next_token_loss__one_batch_dimension(logits, tokens):
    """Right with exactly one leading dimension."""
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])


def next_token_loss__item(logits, tokens):
    """A Python number, which nothing can be learned from."""
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), tokens[..., 1:].flatten()).item()


# ---- sample_next


def sample_next__temperature_on_probabilities(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Divides the probabilities: their proportions stay."""
    if temperature == 0:
        return logits.argmax(-1)
    p = torch.softmax(logits, dim=-1) / temperature
    return sample_next(p.log(), 1.0, top_k, top_p, generator)


def sample_next__softmax_of_probabilities(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Two softmaxes."""
    if temperature == 0:
        return logits.argmax(-1)
    return sample_next(logits.softmax(-1) / temperature, 1.0, top_k, top_p, generator)


def sample_next__multiplied(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Multiplies by the temperature."""
    if temperature == 0:
        return logits.argmax(-1)
    return sample_next(logits * temperature, 1.0, top_k, top_p, generator)


def sample_next__without_the_crossing_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """The token that crosses p is left out; only the first always stays."""
    if temperature == 0:
        return logits.argmax(-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = scores[..., :top_k].softmax(-1)
    if top_p is not None:
        keep = p.cumsum(-1) <= top_p
        keep[..., 0] = True
        p = p * keep
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__nothing_left(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Keeps what sums to less than p: where the first token has more, nothing is left."""
    if temperature == 0:
        return logits.argmax(-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = scores[..., :top_k].softmax(-1)
    if top_p is not None:
        p = p * (p.cumsum(-1) < top_p)
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__sum_before_above_0(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Asks for a sum before the token that is above 0, so the first one is dropped wherever others are left."""
    if temperature == 0:
        return logits.argmax(-1)
    p, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = p[..., :top_k].softmax(-1)
    if top_p is not None:
        before = p.cumsum(-1) - p
        keep = (before > 0) & (before < top_p)
        keep[..., 0] |= ~keep.any(dim=-1)
        p = p * keep
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__most_probable_dropped(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Sorted the wrong way round for top-p: the most probable tokens are dropped."""
    if temperature == 0:
        return logits.argmax(-1)
    p, ids = (logits / temperature).softmax(-1).sort(dim=-1, descending=True)
    p = p[..., :top_k]
    p = p / p.sum(-1, keepdim=True)
    if top_p is not None:
        q = p.flip(-1)
        p = (q * (q.cumsum(-1) - q < top_p)).flip(-1)
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__place_for_id(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Returns the place in the sorted row."""
    if temperature == 0:
        return logits.argmax(-1)
    p = (logits / temperature).sort(dim=-1, descending=True).values[..., :top_k].softmax(-1)
    if top_p is not None:
        p = p * (p.cumsum(-1) - p < top_p)
    return torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).reshape(logits.shape[:-1])


def sample_next__argmax(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Nothing is drawn."""
    return logits.argmax(dim=-1)


def sample_next__no_generator(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """The generator is not used."""
    return sample_next(logits, temperature, top_k, top_p)


def sample_next__one_draw_for_all_rows(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """The same random number for each row of the batch."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = scores[..., :top_k].softmax(-1)
    if top_p is not None:
        p = p * (p.cumsum(-1) - p < top_p)
    draw = torch.rand((), generator=generator) * p.sum(-1, keepdim=True)
    place = (p.cumsum(-1) <= draw).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
    return ids.gather(-1, place).squeeze(-1)


def sample_next__topk_of_pytorch(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """`topk` raises when k is larger than the number of tokens."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    if top_k is not None:
        smallest = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    return sample_next(logits, temperature, None, top_p, generator)


def sample_next__one_dimension(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """`multinomial` takes one or two dimensions; with more it raises."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, ids = (logits / temperature).sort(dim=-1, descending=True)
    p = scores[..., :top_k].softmax(-1)
    if top_p is not None:
        p = p * (p.cumsum(-1) - p < top_p)
    return ids.gather(-1, torch.multinomial(p, 1, generator=generator)).squeeze(-1)


def sample_next__divides_by_zero(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """At temperature 0 it divides by zero."""
    return sample_next(logits / temperature, 1.0, top_k, top_p, generator)


def sample_next__top_p_of_all(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """top_p looks at the probabilities of all tokens, before top_k."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    p, ids = (logits / temperature).softmax(-1).sort(dim=-1, descending=True)
    if top_p is not None:
        p = p * (p.cumsum(-1) - p < top_p)
    p = p[..., :top_k]
    place = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return ids.gather(-1, place.reshape(*logits.shape[:-1], 1)).squeeze(-1)


def sample_next__squeezed(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """All dimensions of size 1 are lost."""
    return sample_next(logits, temperature, top_k, top_p, generator).squeeze()
