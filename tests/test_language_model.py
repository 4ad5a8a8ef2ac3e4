"""Lesson 09: tokens that come back as text, a model that is GPT-2, draws with the right shares, and heads that copy."""

import itertools
import json
import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import language_model as benchmark
from course_utils.benchmarks import measured
from course_utils.corpora import english, gpt2
from course_utils.lessons import language_model as lesson
from course_utils.lessons.language_model import (
    GPT2,
    CopyModel,
    LanguageModel,
    Tokenizer,
    attend_rotary,
    attention_maps,
    copy_accuracy,
    encode_bpe,
    from_gpt2,
    generate,
    learn_merges,
    merge_pair,
    next_token_loss,
    ngram_bits,
    repeats,
    sample_next,
    split_pieces,
    total_bits,
    train_copying,
    window_loss,
    windows,
)
from course_utils.lessons.masking import causal_mask, masked_attention
from course_utils.lessons.multi_head import MultiHeadAttention, attend, attend_in_steps
from course_utils.lessons.self_attention import apply_rotary
from tests.helpers import few, generator, ids, loud, numbers, seeds

TEXT = (
    "The sea is wide, and the sailors sail. She sells sea shells on the sea shore; the shells that she sells "
    "are sea shells, I'm sure. The sailors' sails are wide, they're seen from the shore! 2024 and 2025 are years."
)
# What `tokenizers` 0.23.3 (Hugging Face) learns from this text with GPT-2's way to cut it, and how it then cuts a
# sentence. Ġ is a space, Ģ and Ķ are bytes that cannot be printed.
THEIR_MERGES = (
    "Ġ s|h e|r e|Ġs e|l s|Ġ t|l ls|Ġ a|Ġt he|a i|Ġs he|Ġs ai|Ġse a|r s|Ġa re|Ġshe lls|Ġsai l|0 2|2 02|T he|d e|h o|"
    "i de|n d|o rs|w ide|Ġ 202|Ġ wide|Ġs ho|Ġse lls"
)
SENTENCE = "Sea shells, the sailor's sea — 12 sails!"
THEIR_TOKENS = "S e a Ġshells , Ġthe Ġsail o r ' s Ġsea Ġ â Ģ Ķ Ġ 1 2 Ġsai ls !"

# ------------------------------------------------------------------ tokens

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@few
@given(any_text)
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text)) == text


@few
@given(any_text, st.integers(0, 60))
def test_any_text_comes_back(text: str, n_merges: int) -> None:
    tokenizer = Tokenizer(learn_merges([TEXT, text], n_merges))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(encode_bpe(text, tokenizer.merges)) == text


def in_the_order_of_learning(text: str, merges: dict[tuple[int, int], int]) -> list[int]:
    """The other way to say it: each merge at all its places, one merge after the other."""
    found = list(text.encode())
    for pair, new in merges.items():
        found = merge_pair(found, pair, new)
    return found


@few
@given(st.text("aab "), st.text("aaab ", min_size=1), st.integers(0, 30))
def test_encoding_is_one_merge_after_the_other(learned: str, text: str, n_merges: int) -> None:
    merges = learn_merges([learned, TEXT], n_merges)
    assert encode_bpe(text, merges) == in_the_order_of_learning(text, merges)


def counts_of_pairs(texts: list[str], merges: dict[tuple[int, int], int]) -> Counter:
    """Counted anew, in all pieces."""
    pieces = Counter(piece for text in texts for piece in split_pieces(text))
    counts: Counter = Counter()
    for piece, times in pieces.items():
        for pair in pairwise(in_the_order_of_learning(piece, merges)):
            counts[pair] += times
    return counts


def test_each_merge_is_the_most_frequent_pair_of_its_time() -> None:
    """By counting everything anew; of equally frequent ones it is the smallest."""
    merges = learn_merges([TEXT], 60)
    assert 30 < len(merges) < 60 and list(merges.values()) == list(range(256, 256 + len(merges)))
    for i, pair in enumerate(merges):
        counts = counts_of_pairs([TEXT], dict(itertools.islice(merges.items(), i)))
        best = max(counts.values())
        assert best >= 2 and pair == min(p for p, n in counts.items() if n == best)


def test_learning_stops_where_no_pair_stands_twice() -> None:
    assert learn_merges(["abc abd"], 100).keys() <= {(97, 98), (32, 97), (32, 256)}
    assert learn_merges([], 5) == {}
    assert learn_merges(["x"], 5) == {}


def theirs_are_most_frequent(merges: dict[tuple[int, int], int], texts: list[str]) -> None:
    """Two libraries may only differ in which of equally frequent pairs goes first."""
    for i, pair in enumerate(merges):
        counts = counts_of_pairs(texts, dict(itertools.islice(merges.items(), i)))
        assert counts[pair] == max(counts.values())


def test_merges_and_tokens_are_those_of_a_library() -> None:
    merges = gpt2.read_merges(THEIR_MERGES.replace("|", "\n"))
    theirs_are_most_frequent(merges, [TEXT])
    theirs, ours = Tokenizer(merges), Tokenizer(learn_merges([TEXT], 30))
    assert len(merges) == 30 and len({*theirs.tokens} & {*ours.tokens}) >= 256 + 25
    assert [theirs.tokens[i] for i in theirs.encode(SENTENCE)] == [as_bytes(token) for token in THEIR_TOKENS.split()]


def test_merges_and_tokens_of_the_manual_are_those_of_a_library() -> None:
    """The same with the library itself, where it is installed."""
    tokenizers = pytest.importorskip("tokenizers")
    splits = english.splits()
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=256 + 100, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(splits.train, trainer)
    pairs = json.loads(library.to_str())["model"]["merges"]
    merges = gpt2.read_merges("\n".join(" ".join(pair) for pair in pairs))
    theirs_are_most_frequent(dict(itertools.islice(merges.items(), 20)), splits.train)
    ours = learn_merges(splits.train, 100)
    assert len(merges) == len(ours) == 100
    assert len({*Tokenizer(merges).tokens} & {*Tokenizer(ours).tokens}) >= 256 + 95
    strange = "naïve 数据 🙂\n\tx = {'a': 1}: don't  we'll x_y __a__\r\n  "
    tokenizer = Tokenizer(merges)
    for text in (*splits.held_out, strange):
        names = [tokenizer.tokens[i] for i in tokenizer.encode(text)]
        assert names == [as_bytes(token) for token in library.encode(text).tokens]


def as_bytes(token: str) -> bytes:
    letters = {chr(256 + i): byte for i, byte in enumerate(gpt2.their_bytes()[188:])}
    return bytes(letters.get(letter, ord(letter)) for letter in token)


def test_texts_are_a_row_with_ends() -> None:
    tokenizer = Tokenizer({})
    assert tokenizer.encode_all(["ab", "", "c"]).tolist() == [97, 98, 256, 256, 99, 256]
    assert tokenizer.decode([97, 256, 98]) == "ab" and len(tokenizer) == 257
    assert tokenizer.decode([195]) == "�"


# ------------------------------------------------------------------ the text


def test_no_paragraph_stands_twice_and_a_tenth_is_held_out() -> None:
    train, held_out = english.splits()
    paragraphs = [p.strip() for text in (*train, *held_out) for p in text.split("\n\n") if p.strip()]
    assert len(set(paragraphs)) == len(paragraphs) > 500
    lengths = [sum(map(len, part)) for part in (train, held_out)]
    assert 0.1 <= lengths[1] / sum(lengths) < 0.12


def test_repeated_paragraphs_are_removed() -> None:
    texts = ["a\n\n   b  \n\n\na\n", " b\n\na", "c\n\nd"]
    assert english.without_repetitions(texts) == ["a\n\n   b\n", "c\n\nd\n"]


def test_a_split_is_at_a_paragraph() -> None:
    texts = [f"{i} first\n\n{i} second\n\n{i} third\n" for i in range(4)]
    train, held_out = english.split(texts, 0.3)
    assert "".join(train + held_out) == "".join(texts)
    assert held_out[0].startswith("2 third") and len(held_out) == 2
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="cannot be split"):
            english.split(texts, share)


def test_without_internet_there_is_a_reason(monkeypatch, capsys) -> None:
    monkeypatch.setattr(english, "pinned_file", lambda *args: None)
    monkeypatch.setattr(gpt2, "pinned_file", lambda *args: None)
    assert english.shakespeare() == english.splits()
    assert gpt2.load() is None
    assert "no GPT-2 here" in capsys.readouterr().out


# ------------------------------------------------------------------ the model


def tiny(kind: type[LanguageModel] = LanguageModel, n_context: int = 9, **how) -> LanguageModel:
    torch.manual_seed(0)
    return loud(kind(11, 8, 2, 2, n_context, **how), 5)


def test_the_look_up_is_a_one_hot_product() -> None:
    tokens, table = ids(0, 7, 3, 4), numbers(1, 7, 5)
    assert torch.equal(lesson.embed_tokens(tokens, table), F.one_hot(tokens, 7).double() @ table)


@pytest.mark.parametrize("function", [attend, attend_in_steps])
@pytest.mark.parametrize("n_queries", [1, 3, 5])
def test_rotary_attention_turns_queries_and_keys(function, n_queries: int) -> None:
    q, k, v = numbers(0, 2, n_queries, 4), numbers(1, 2, 5, 4), numbers(2, 2, 5, 3)
    positions = torch.arange(5)
    q_turned, k_turned = apply_rotary(q, positions[5 - n_queries :]), apply_rotary(k, positions)
    wanted = masked_attention(q_turned, k_turned, v, causal_mask(n_queries, 5))[0]
    torch.testing.assert_close(attend_rotary(q, k, v, is_causal=True, attend=function), wanted)


@pytest.mark.parametrize("kind", [LanguageModel, GPT2])
def test_a_text_that_is_too_long_is_refused(kind) -> None:
    model = tiny(kind)
    assert model(ids(0, 11, 9)).shape == (9, 11)
    assert model(ids(0, 11, 2, 3, 4)).shape == (2, 3, 4, 11)
    with pytest.raises(ValueError, match="10 tokens, but the model reads at most 9"):
        model(ids(0, 11, 10))


@pytest.mark.parametrize("kind", [LanguageModel, GPT2])
def test_a_text_has_the_same_logits_alone_in_a_batch_and_up_to_every_token(kind) -> None:
    """There is no padding: the pieces of a batch are equally long. What comes later changes nothing."""
    model = tiny(kind).double()
    tokens = ids(1, 11, 4, 9)
    together = model(tokens)
    for row, logits in zip(tokens, together, strict=True):
        torch.testing.assert_close(model(row), logits, rtol=1e-10, atol=1e-10)
        for n in range(1, 9):
            torch.testing.assert_close(model(row[:n]), logits[:n], rtol=1e-10, atol=1e-10)


def test_positions_matter() -> None:
    for kind in (LanguageModel, GPT2):
        model = tiny(kind).double()
        assert (model(torch.tensor([3, 5, 1]))[-1] - model(torch.tensor([5, 3, 1]))[-1]).abs().max() > 1e-3


def test_another_attention_fits_in() -> None:
    model, tokens = tiny(), ids(2, 11, 2, 9)
    torch.manual_seed(0)
    other = loud(
        LanguageModel(11, 8, 2, 2, 9, attend=lambda *x, **how: attend_rotary(*x, **how, attend=attend_in_steps)), 5
    )
    torch.testing.assert_close(other(tokens), model(tokens), rtol=1e-4, atol=1e-5)


def test_one_table_at_both_ends() -> None:
    model = tiny()
    assert [name for name, p in model.named_parameters() if 11 in p.shape] == ["table"]
    loss = window_loss(model, ids(0, 11, 2, 9))
    (gradient,) = torch.autograd.grad(loss, model.table)
    assert (gradient.abs().sum(dim=1) > 0).all(), "each token learns at the output"


def test_weights_at_the_start() -> None:
    torch.manual_seed(0)
    model = LanguageModel(300, 64, 4, 4, 8)
    for name, weights in model.named_parameters():
        last = name.endswith(("attention.output.weight", "mlp.down.weight"))
        if weights.ndim == 2:
            assert weights.std().item() == pytest.approx(0.02 / (8**0.5 if last else 1), rel=0.1), name
        else:
            assert torch.equal(weights, torch.ones_like(weights) * name.endswith("gain")), name
    loss = window_loss(model, ids(0, 300, 4, 8)).item()
    assert loss == pytest.approx(math.log(300), rel=0.05)


# ------------------------------------------------------------------ GPT-2


def waves(shape: torch.Size, n: int, name: str) -> Tensor:
    """Numbers that everybody can make again, for parameter number n."""
    values = (torch.arange(shape.numel()) * (n + 1)).float().mul(0.7).sin().reshape(shape)
    return values * (0.5 if len(shape) == 2 else 0.3) + ("ln" in name and "weight" in name)


def their_weights(n_ids: int, d: int, n_layers: int, n_context: int) -> dict[str, Tensor]:
    """The names and shapes of Hugging Face's GPT-2."""
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (n_ids, d), "wpe.weight": (n_context, d)}
    for i in range(n_layers):
        for name, columns in (("ln_1", 0), ("attn.c_attn", 3), ("attn.c_proj", 1), ("ln_2", 0), ("mlp.c_fc", 4)):
            shapes[f"h.{i}.{name}.weight"] = (d, columns * d) if columns else (d,)
            shapes[f"h.{i}.{name}.bias"] = (max(columns, 1) * d,)
        shapes |= {f"h.{i}.mlp.c_proj.weight": (4 * d, d), f"h.{i}.mlp.c_proj.bias": (d,)}
    shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
    return {f"transformer.{name}": waves(torch.Size(s), n, name) for n, (name, s) in enumerate(shapes.items())}


class Conv1D(nn.Module):
    """Hugging Face's layer: its matrix is (in, out), the other way round than `nn.Linear`'s."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def their_logits(weights: dict[str, Tensor], n_heads: int, tokens: Tensor) -> Tensor:
    """GPT-2 as its paper and code describe it, made of PyTorch's functions only."""
    w = {name.removeprefix("transformer."): x for name, x in weights.items()}
    d = w["wte.weight"].shape[1]
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    for i in range(sum(name.endswith("ln_1.weight") for name in w)):

        def layer(name: str, i: int = i) -> Conv1D:
            return Conv1D(w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"])

        def norm(name: str, x: Tensor, i: int = i) -> Tensor:
            return F.layer_norm(x, (d,), w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"])

        qkv = layer("attn.c_attn")(norm("ln_1", x)).split(d, dim=-1)
        heads = [part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in qkv]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + layer("attn.c_proj")(mixed)
        x = x + layer("mlp.c_proj")(F.gelu(layer("mlp.c_fc")(norm("ln_2", x)), approximate="tanh"))
    return F.layer_norm(x, (d,), w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T


TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def test_logits_are_those_of_gpt2() -> None:
    """Computed once with `transformers` 5.24.0 (Hugging Face): GPT2LMHeadModel with these weights."""
    weights = their_weights(11, 8, 2, 7)
    logits = from_gpt2(weights, 2)(TOKENS)
    last = [-2.247123, -1.898967, -0.698424, 0.815620, 1.963557, 2.230116, 1.495647, 0.089827, -1.356310, -2.193644]
    fourth = [-0.728677, -1.924896, -2.257090, -1.576146, -0.187722, 1.284965, 2.180874, 2.097854, 1.073176, -0.433218]
    torch.testing.assert_close(logits[0, -1, :10], torch.tensor(last), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(logits[1, 3, :10], torch.tensor(fourth), rtol=1e-3, atol=1e-3)
    assert logits.square().sum().item() == pytest.approx(471.214, rel=1e-3)
    torch.testing.assert_close(logits, their_logits(weights, 2, TOKENS), rtol=1e-3, atol=1e-3)


@few
@given(seeds, st.sampled_from([1, 2, 4]), st.integers(1, 3))
def test_logits_are_gpt2s_for_random_weights(seed: int, n_heads: int, n_layers: int) -> None:
    shapes = their_weights(13, 8, n_layers, 6)
    weights = {name: numbers(seed + i, *x.shape).float() for i, (name, x) in enumerate(shapes.items())}
    tokens = ids(seed, 13, 2, 6)
    ours = from_gpt2(weights, n_heads).double()
    exact = {name: x.double() for name, x in weights.items()}
    torch.testing.assert_close(ours(tokens), their_logits(exact, n_heads, tokens))


def test_logits_and_loss_are_hugging_faces() -> None:
    """The same with the library itself, where it is installed."""
    transformers = pytest.importorskip("transformers")
    off = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=101, n_positions=33, n_embd=48, n_layer=3, n_head=4, **off)
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    ours, tokens = from_gpt2(theirs.state_dict(), 4), ids(0, 101, 3, 33)
    found = theirs(tokens, labels=tokens)
    torch.testing.assert_close(ours(tokens), found.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(next_token_loss(ours(tokens), tokens), found.loss)


def test_weights_that_are_no_gpt2_are_refused() -> None:
    weights = their_weights(11, 8, 2, 7)
    with pytest.raises(KeyError):
        from_gpt2({name: x for name, x in weights.items() if "h.1.mlp.c_fc.bias" not in name}, 2)
    with pytest.raises(RuntimeError, match="size mismatch"):
        from_gpt2({**weights, "transformer.ln_f.bias": torch.zeros(1)}, 2)


def test_the_smallest_gpt2_has_124_million_parameters() -> None:
    with torch.device("meta"):
        model = GPT2(50257, 768, 12, 12, 1024)
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def safetensors(tensors: dict[str, Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, x in tensors.items():
        data = x.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def test_published_files_are_read(monkeypatch) -> None:
    """With a small file of the same form: the first 256 rows of the table come in the order of the bytes."""
    weights = {name: x.contiguous() for name, x in their_weights(260, 8, 2, 7).items()}
    weights = {name.removeprefix("transformer."): x for name, x in weights.items()}
    weights["wte.weight"][:, 0] = torch.arange(260)
    files = {gpt2.WEIGHTS_PIN: safetensors(weights), gpt2.MERGES_PIN: b"#version: 0.2\n\xc4\xa0 t\nh e\n\xc4\xa0t he\n"}
    monkeypatch.setattr(gpt2, "pinned_file", lambda name, pin, *rest: files[pin])
    published = gpt2.load()
    assert published is not None
    assert published.merges == {(32, 116): 256, (104, 101): 257, (256, 257): 258}
    found = published.weights["wte.weight"][:, 0].int().tolist()
    assert found[ord("!")] == 0 and found[ord("~")] == 93 and found[0] == 188 and found[ord(" ")] == 220
    assert found[256:] == [256, 257, 258, 259]
    for name, x in published.weights.items():
        assert name == "wte.weight" or torch.equal(x, weights[name])


def test_bytes_are_in_gpt2s_order() -> None:
    assert sorted(gpt2.their_bytes()) == list(range(256))
    assert gpt2.their_bytes()[:3] == [33, 34, 35] and gpt2.their_bytes()[188:190] == [0, 1]


# ------------------------------------------------------------------ the loss, and batches without padding


@few
@given(seeds, st.integers(2, 6))
def test_the_loss_is_the_mean_over_what_is_predicted(seed: int, n_tokens: int) -> None:
    logits, tokens = numbers(seed, 3, n_tokens, 5), ids(seed, 5, 3, n_tokens)
    p = torch.softmax(logits, dim=-1)
    wanted = [-p[b, t, tokens[b, t + 1]].log() for b in range(3) for t in range(n_tokens - 1)]
    torch.testing.assert_close(next_token_loss(logits, tokens), torch.stack(wanted).mean())


def test_the_loss_of_a_batch_is_the_mean_of_its_texts() -> None:
    logits, tokens = numbers(0, 4, 6, 5), ids(1, 5, 4, 6)
    alone = [next_token_loss(z, x) for z, x in zip(logits, tokens, strict=True)]
    torch.testing.assert_close(next_token_loss(logits, tokens), torch.stack(alone).mean())


def test_windows_are_pieces_of_equal_length() -> None:
    row = torch.arange(50)
    batches = list(itertools.islice(windows(row, 7, 5, generator(0)), 40))
    assert all(batch.shape == (5, 7) for batch in batches)
    assert all(torch.equal(batch, batch[:, :1] + torch.arange(7)) for batch in batches)
    firsts = {int(piece[0]) for batch in batches for piece in batch}
    assert {0, 43} <= firsts <= set(range(44))
    assert torch.equal(next(windows(row, 50, 2, generator(0))), row.expand(2, 50))


@pytest.mark.parametrize("stride", [1, 3, 4, 8])
def test_total_bits_counts_every_token_once(stride: int) -> None:
    """Each token but the first, with all tokens before it that the window of its turn holds."""
    model, tokens = tiny().double(), ids(3, 11, 20)
    wanted, done = 0.0, 1
    for first in range(0, 20, stride):
        for t in range(done, min(first + 9, 20)):
            logits = model(tokens[first:t])[-1]
            wanted -= torch.log_softmax(logits, dim=-1)[tokens[t]].item() / math.log(2)
        done = max(done, min(first + 9, 20))
    assert total_bits(model, tokens, stride) == pytest.approx(wanted, rel=1e-6)
    in_nats = 8 * next_token_loss(model(tokens[:9]), tokens[:9]).item()
    assert total_bits(model, tokens[:9], stride) == pytest.approx(in_nats / math.log(2), rel=1e-6)


# ------------------------------------------------------------------ counting


def test_counts_by_hand() -> None:
    """Learned: a a b. With nothing, 1/2 each. Alone: a stands twice, b once, two kinds: (2 + 2 · ½) / (3 + 2)."""
    bits = ngram_bits([0, 0, 1], [0, 1], 2, 2)
    a, b = 3 / 5, 2 / 5
    # After a came a and b, once each: (1 + 2 · p(b)) / (2 + 2).
    b_after_a = (1 + 2 * b) / 4
    assert bits == pytest.approx([2, -math.log2(a) - math.log2(b), -math.log2(a) - math.log2(b_after_a)])


@few
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.lists(st.integers(0, 3), max_size=3))
def test_probabilities_of_counts_sum_to_one(learned: list[int], before: list[int]) -> None:
    for n in range(4):
        bits = [ngram_bits(learned, [*before, i], 3, 4)[n] for i in range(4)]
        rest = ngram_bits(learned, before, 3, 4)[n]
        assert sum(2 ** (rest - b) for b in bits) == pytest.approx(1)


# ------------------------------------------------------------------ drawing and writing

P = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])


def kept(probabilities: Tensor, top_k: int | None, top_p: float | None) -> list[int]:
    """The ids that may be drawn, one after the other, the most probable first."""
    order = probabilities.argsort(descending=True).tolist()[:top_k]
    total, result = 0.0, []
    among = probabilities[order].sum().item()
    for i in order:
        if top_p is None or total < top_p:
            result.append(i)
        total += probabilities[i].item() / among
    return result


@few
@given(
    seeds,
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([None, 1, 2, 5, 20]),
    st.sampled_from([None, 0.05, 0.33, 0.71, 0.999]),
)
def test_draws_have_the_right_shares(seed: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    logits = 2 * numbers(seed, 6)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    stay = kept(probabilities, top_k, top_p)
    wanted = torch.zeros(6, dtype=torch.float64).index_copy(0, torch.tensor(stay), probabilities[stay])
    drawn = sample_next(logits.expand(20_000, -1), temperature, top_k, top_p, generator(seed))
    found = torch.bincount(drawn, minlength=6) / 20_000
    torch.testing.assert_close(found.double(), wanted / wanted.sum(), rtol=0, atol=0.02)
    assert set(drawn.tolist()) <= set(stay)


def test_temperature_0_is_the_most_probable_token() -> None:
    logits = numbers(0, 2, 3, 7)
    assert torch.equal(sample_next(logits, 0.0), logits.argmax(dim=-1))
    assert sample_next(logits[0, 0], 0.0).shape == ()


class Fixed(LanguageModel):
    """After the id i always comes i + 1, whatever stands before; it notes how much it is given."""

    def __init__(self, n_ids: int, n_context: int) -> None:
        super().__init__(n_ids, 2, 1, 1, n_context)
        self.n_ids, self.given = n_ids, []

    def forward(self, tokens: Tensor) -> Tensor:
        self.given.append(tokens.tolist())
        return F.one_hot((tokens + 1) % self.n_ids, self.n_ids).float() * 100


def test_writing_stops_after_the_end() -> None:
    model = Fixed(10, 4)
    assert generate(model, torch.tensor([2]), 100, end=6).tolist() == [2, 3, 4, 5, 6]
    assert generate(model, torch.tensor([2, 3]), 2, end=6).tolist() == [2, 3, 4, 5]
    assert generate(model, torch.tensor([2]), 0).tolist() == [2]


def test_writing_never_gives_more_than_the_context() -> None:
    model = Fixed(10, 4)
    written = generate(model, torch.arange(6), 7).tolist()
    assert written == [i % 10 for i in range(13)]
    assert all(len(tokens) == 4 for tokens in model.given)
    assert model.given[-1] == [8, 9, 0, 1]


def test_writing_is_reproducible() -> None:
    model = tiny()
    one, other, another = (generate(model, torch.tensor([1]), 30, generator=generator(s)) for s in (0, 0, 1))
    assert torch.equal(one, other) and not torch.equal(one, another)


# ------------------------------------------------------------------ the trained model


def test_the_trained_model_is_kept(monkeypatch, tmp_path) -> None:
    """Trained once, then from the cache: the same weights and losses."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(lesson, "N_MERGES", 20)
    monkeypatch.setattr(lesson, "D_MODEL", 8)
    calls = []
    train = lesson.train_language_model
    monkeypatch.setattr(lesson, "train_language_model", lambda *a: calls.append(1) or train(*a, steps=3))
    one = lesson.manual_model([TEXT])
    other = lesson.manual_model([TEXT])
    assert len(calls) == 1 and one.losses == other.losses and len(one.losses) == 3
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    lesson.manual_model([TEXT, "another text"])
    assert len(calls) == 2


def test_training_is_reproducible_and_learns() -> None:
    row = ids(0, 3, 2000).cumsum(0) % 11
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        model = LanguageModel(11, 16, 1, 2, lesson.N_CONTEXT)
        losses.append(lesson.train_language_model(model, row, steps=40))
    assert losses[0] == losses[1] and losses[0][-1] < 0.7 * losses[0][0]


# ------------------------------------------------------------------ the head that copies


def test_repeats_are_what_they_promise() -> None:
    batch = next(repeats(200, generator(0)))
    assert set(batch.periods.tolist()) == set(range(lesson.SHORTEST, lesson.LONGEST + 1))
    for row, period, known in zip(batch.tokens.tolist(), batch.periods.tolist(), batch.known().tolist(), strict=True):
        assert len(row) == lesson.COPY_TIME and row[period:] == row[:-period]
        assert known == [t >= period for t in range(1, len(row))]
    longer = next(repeats(5, generator(0), lengths=(18, 20), time=44))
    assert longer.tokens.shape == (5, 44) and set(longer.periods.tolist()) <= {18, 19, 20}


class Copier(nn.Module):
    """Says what stood one period before, by looking at the row from outside."""

    def __init__(self, batch: lesson.Repeats) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, tokens: Tensor) -> Tensor:
        time = tokens.shape[1]
        places = (torch.arange(1, time + 1) % self.batch.periods.unsqueeze(1)).clamp(max=time - 1)
        return F.one_hot(tokens.gather(1, places), lesson.N_LETTERS).float()


def test_accuracy_counts_only_what_can_be_known() -> None:
    batch = next(repeats(50, generator(0)))
    assert copy_accuracy(Copier(batch), batch) == 1.0


def test_maps_are_the_weights_of_the_layers() -> None:
    torch.manual_seed(0)
    model = CopyModel(2, 8)
    tokens = ids(0, lesson.N_LETTERS, 3, 7)
    before = model(tokens)
    first, second = attention_maps(model, tokens)
    assert first.shape == second.shape == (3, 1, 7, 7)
    torch.testing.assert_close(first.sum(dim=-1), torch.ones(3, 1, 7))
    assert (first.triu(1) == 0).all() and torch.equal(model(tokens), before)
    layer, norm = next(iter(model.layers)), next(iter(model.norms))
    assert isinstance(layer, MultiHeadAttention)
    x = norm(model.embed(tokens))
    q, k, _ = layer.project(x, x)
    scores = apply_rotary(q, torch.arange(7)) @ apply_rotary(k, torch.arange(7)).mT / 8**0.5
    wanted = torch.softmax(scores.masked_fill(~causal_mask(7, 7), -torch.inf), dim=-1)
    torch.testing.assert_close(first, wanted)


def test_copying_is_reproducible() -> None:
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        results.append(train_copying(CopyModel(2, 16), seed=0, steps=30))
    assert results[0] == results[1] and len(results[0]) == 3


# ------------------------------------------------------------------ stored measurements


def test_pytorchs_model_is_ours() -> None:
    torch.manual_seed(0)
    theirs = benchmark.PyTorchModel(13, 8, 2, 2, 6).double()
    for weights in theirs.parameters():
        nn.init.normal_(weights, std=0.3)
    ours, tokens = benchmark.copied(theirs, 2).double(), ids(0, 13, 3, 6)
    torch.testing.assert_close(ours(tokens), theirs(tokens))
    size = [sum(p.numel() for p in model.parameters()) for model in (theirs, ours)]
    assert size[0] == size[1]


def test_a_training_step_is_as_fast_as_pytorchs() -> None:
    rows = measured("layers_language_model")["rows"]
    assert all(row["ours_to_pytorch"] <= 1.1 for row in rows if row["tokens"] <= 256) and len(rows) == 3


def test_stored_models_are_what_the_lesson_says() -> None:
    rows = measured("scaling")["rows"]
    by_width: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        by_width.setdefault((row["d_model"], row["steps"]), []).append(row["bits_per_byte"])
    assert all(len(bits) == 3 for bits in by_width.values())
    means = [sum(by_width[width, lesson.STEPS]) / 3 for width in (16, 32, 64, 128, 256)]
    assert all(b < a for a, b in pairwise(means)) and means[0] - means[-1] > 0.3
    assert max(by_width[lesson.D_MODEL, 4 * lesson.STEPS]) < min(by_width[lesson.D_MODEL, lesson.STEPS])


def test_stored_copying_is_what_the_lesson_says() -> None:
    rows = measured("copying")["rows"]
    two = [row for row in rows if row["model"] == "two layers"]
    one = [row for row in rows if row["model"] != "two layers"]
    assert len(two) == 3 and min(row["right"] for row in two) > 0.8
    assert len(one) == 12 and max(row["right"] for row in one) < 0.4
    assert all(row["parameters"] > two[0]["parameters"] for row in one)
