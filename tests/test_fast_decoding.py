"""Lesson 13: caches that change no logit, whatever the pieces; windows that are masks; a sum that is an attention."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course_utils.benchmarks import fast_decoding as benchmark
from course_utils.benchmarks import measured
from course_utils.lessons import fast_decoding as lesson
from course_utils.lessons.fast_decoding import (
    CachedAttention,
    GroupedQueryAttention,
    RunningAttention,
    WindowAttention,
    attend_linear,
    cached_reader,
    decode_with_cache,
    document_mask,
    generate_with_cache,
    grouped_model,
    kv_cache_bytes,
    share_heads,
    stored_bytes,
    window_mask,
    with_attend,
)
from course_utils.lessons.language_model import LanguageModel, attend_rotary, generate
from course_utils.lessons.masking import causal_mask
from course_utils.lessons.multi_head import MultiHeadAttention, attend, attend_in_steps
from course_utils.lessons.sequence_models import attention_core
from tests.helpers import few, generator, ids, loud, numbers, seeds

N_IDS, TIME = 11, 12

pieces = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def model(seed: int = 0, n_context: int = TIME) -> LanguageModel:
    torch.manual_seed(seed)
    return loud(LanguageModel(N_IDS, 8, 2, 2, n_context), 10).double()


def in_pieces(reader: Any, tokens: Tensor, sizes: list[int]) -> Tensor:
    """The reader's outputs for tokens in pieces of these sizes, and one for the rest."""
    ends = [sum(sizes[:i]) for i in range(1, len(sizes) + 1)]
    parts = tokens.tensor_split([end for end in ends if end < tokens.shape[-1]], dim=-1)
    return torch.cat([reader(part) for part in parts], dim=-2)


# ------------------------------------------------------------------ the cache


@few
@given(pieces, seeds, st.sampled_from([(), (1,), (3,), (2, 3)]))
def test_the_cache_changes_no_logit(sizes: list[int], seed: int, lead: tuple[int, ...]) -> None:
    tokens = ids(seed, N_IDS, *lead, TIME)
    torch.testing.assert_close(in_pieces(cached_reader(model()), tokens, sizes), model()(tokens))


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_the_cache_writes_the_same_tokens(temperature: float) -> None:
    for seed, n_prompt in enumerate((1, 5, TIME - 1)):
        prompt = ids(seed, N_IDS, n_prompt)
        n = TIME + 1 - n_prompt  # the last token is written, and never read
        plain, cached = (
            write(model(seed), prompt, n, temperature=temperature, generator=generator(seed))
            for write in (generate, generate_with_cache)
        )
        assert plain.tolist() == cached.tolist() and len(plain) == TIME + 1


def test_writing_stops_after_the_end_token() -> None:
    prompt = ids(0, N_IDS, 3)
    written = generate_with_cache(model(), prompt, 8, temperature=0.0).tolist()
    end = written[5]
    stopped = generate_with_cache(model(), prompt, 8, end, temperature=0.0).tolist()
    assert stopped == written[: written.index(end, 3) + 1]


@pytest.mark.parametrize("sizes", [[TIME, 1], [5, 5, 5], [1] * (TIME + 1)])
def test_past_the_context_is_an_error(sizes: list[int]) -> None:
    reader = cached_reader(model())
    with pytest.raises(ValueError, match=f"at most {TIME}"):
        for part in ids(0, N_IDS, sum(sizes)).split(sizes):
            reader(part)


def test_the_model_that_was_given_remembers_nothing() -> None:
    original, tokens = model(), ids(0, N_IDS, 5)
    before = original(tokens)
    reader = cached_reader(original)
    reader(tokens)
    torch.testing.assert_close(original(tokens), before)
    torch.testing.assert_close(cached_reader(original)(tokens), before)


def test_two_texts_may_share_a_cache() -> None:
    q, k, v = numbers(0, 3, 2, 4, 6).unbind()
    empty = k[..., :0, :], v[..., :0, :]
    _, *shared = decode_with_cache(q, k, v, empty[0], empty[1], attend)
    kept = [x.clone() for x in shared]
    one = decode_with_cache(q[..., :1, :], k[..., :1, :], v[..., :1, :], shared[0], shared[1], attend)
    two = decode_with_cache(q[..., 1:, :], k[..., 1:, :], v[..., 1:, :], shared[0], shared[1], attend)
    assert all(torch.equal(x, y) for x, y in zip(shared, kept, strict=True))
    assert torch.equal(one[1][..., :4, :], two[1][..., :4, :])


def test_positions_are_the_same_far_away() -> None:
    """What matters are differences: all positions moved by a million give the same outputs."""
    q, k, v = numbers(0, 3, 1, 1, 6).unbind()
    old = numbers(1, 2, 1, 4, 6)
    outputs = decode_with_cache(q, k, v, old[0], old[1], attend)[0]
    turned = lesson.apply_rotary(
        torch.cat([old[0], lesson.apply_rotary(k, torch.tensor([4]))], -2), torch.full((5,), 9)
    )
    moved = attend(lesson.apply_rotary(q, torch.tensor([13])), turned, torch.cat([old[1], v], -2))
    torch.testing.assert_close(outputs, moved)


# ------------------------------------------------------------------ shared heads


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4, 8])
def test_shared_heads_as_pytorch_and_as_copied_weights(n_kv_heads: int) -> None:
    torch.manual_seed(0)
    layer, full = GroupedQueryAttention(16, 8, n_kv_heads), MultiHeadAttention(16, 8)
    x, n = torch.randn(3, 5, 16), 8 // n_kv_heads
    q, k, v = layer.project(x, x)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(share_heads(q, k, v, is_causal=True), theirs)
    with torch.no_grad():
        for name in ("to_queries", "output"):
            getattr(full, name).load_state_dict(getattr(layer, name).state_dict())
        for name in ("to_keys", "to_values"):
            for part in ("weight", "bias"):
                rows = getattr(getattr(layer, name), part).unflatten(0, (n_kv_heads, 2))
                getattr(getattr(full, name), part).copy_(rows.repeat_interleave(n, dim=0).flatten(0, 1))
    torch.testing.assert_close(layer(x, is_causal=True), full(x, is_causal=True))


@pytest.mark.parametrize("n_kv_heads", [0, 3, 16])
def test_heads_that_cannot_be_shared_are_an_error(n_kv_heads: int) -> None:
    with pytest.raises(ValueError, match="share"):
        GroupedQueryAttention(16, 8, n_kv_heads)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 8])
def test_bytes_of_the_formula_are_the_bytes_of_the_tensors(n_kv_heads: int) -> None:
    grouped = grouped_model(n_kv_heads).double()
    reader, tokens = cached_reader(grouped, share_heads), ids(0, 100, 3, 7)
    torch.testing.assert_close(in_pieces(reader, tokens, [4, 1]), grouped(tokens))
    assert stored_bytes(reader) == kv_cache_bytes(7, 2, 64, 8, n_kv_heads, 8, batch=3)


# ------------------------------------------------------------------ masks and windows


@given(st.integers(1, 7), st.integers(0, 5), st.integers(1, 9), st.integers(0, 4))
def test_a_window_by_its_definition(n_queries: int, older: int, window: int, n_first: int) -> None:
    n_keys = n_queries + older
    mask = window_mask(n_queries, n_keys, window, n_first)
    for i, row in enumerate(mask.tolist()):
        place = older + i
        assert row == [j <= place and (j > place - window or j < n_first) for j in range(n_keys)]


def test_a_document_in_the_middle_of_a_row_is_alone() -> None:
    tokens, documents = ids(0, N_IDS, TIME), torch.tensor([0] * 3 + [1] * 4 + [2] * 5)
    seen = document_mask(documents)
    assert torch.equal(document_mask(torch.zeros(5, dtype=torch.int64)), causal_mask(5, 5))
    masked = with_attend(model(), lambda: lambda q, k, v, *_, **__: attend_rotary(q, k, v, seen))
    torch.testing.assert_close(masked(tokens)[3:7], model()(tokens[3:7]))


@few
@given(pieces, st.integers(1, TIME), seeds)
def test_a_rolling_window_is_the_band_mask(sizes: list[int], window: int, seed: int) -> None:
    tokens, band = ids(seed, N_IDS, 2, TIME), window_mask(TIME, TIME, window)
    rolling = with_attend(model(), partial(WindowAttention, window))
    masked = with_attend(model(), lambda: lambda q, k, v, *_, **__: attend_rotary(q, k, v, band))
    torch.testing.assert_close(in_pieces(rolling, tokens, sizes), masked(tokens))


def test_the_first_tokens_stay_and_move_up() -> None:
    """One layer: after 9 tokens a window of 3 with 2 first ones reads tokens 0, 1, 6, 7, 8 at the places 0 to 4."""
    q, k, v = numbers(0, 3, 2, 9, 6).unbind()
    last = WindowAttention(3, n_first=2)(q, k, v)[..., -1:, :]
    kept = [0, 1, 6, 7, 8]
    torch.testing.assert_close(last, attend_rotary(q[..., -1:, :], k[..., kept, :], v[..., kept, :], is_causal=True))


def test_a_window_as_long_as_the_text_is_no_window() -> None:
    tokens = ids(0, N_IDS, TIME)
    for n_first in (0, 3):
        rolling = with_attend(model(), partial(WindowAttention, TIME, n_first))
        torch.testing.assert_close(rolling(tokens), model()(tokens))


# ------------------------------------------------------------------ linear attention


@few
@given(pieces, seeds)
def test_a_running_state_changes_no_logit(sizes: list[int], seed: int) -> None:
    tokens = ids(seed, N_IDS, 2, TIME)
    together = with_attend(model(), lambda: attend_linear)(tokens)
    torch.testing.assert_close(in_pieces(with_attend(model(), RunningAttention), tokens, sizes), together)


def test_the_state_keeps_its_size() -> None:
    reader = with_attend(model(n_context=100), RunningAttention)
    sizes = set()
    for part in ids(0, N_IDS, 90).split([1, 29, 60]):
        reader(part)
        sizes.add(stored_bytes(reader))
    assert sizes == {2 * 2 * (4 * 4 + 4) * 8}  # two layers, two heads, 4 x 4 and 4 numbers of 8 bytes


def test_linear_attention_takes_no_mask() -> None:
    q = numbers(0, 3, 4)
    with pytest.raises(ValueError, match="causal"):
        attend_linear(q, q, q, is_causal=False)
    with pytest.raises(ValueError, match="mask"):
        attend_linear(q, q, q, causal_mask(3, 3), is_causal=True)


def test_weights_are_positive_and_sum_to_one() -> None:
    q, k, identity = numbers(0, 5, 4), numbers(1, 5, 4), torch.eye(5, dtype=torch.float64)
    weights = lesson.linear_attention(q, k, identity)
    assert (weights >= 0).all() and torch.equal(weights, weights.tril())
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(5).double())


# ------------------------------------------------------------------ counting and measuring


def test_counted_operations_are_those_of_the_formulas() -> None:
    d, n = 8, 6
    q, k, v = torch.randn(3, n, d)
    assert lesson.counted_flops(partial(attend_in_steps, is_causal=True), q[:1], k, v) == 4 * n * d
    assert (
        lesson.counted_flops(lesson.linear_attention_step, *torch.randn(3, d), torch.eye(d), torch.ones(d)) == 4 * d**2
    )
    reader = with_attend(model().float(), lambda: CachedAttention(TIME, attend_in_steps))
    first, second = (lesson.counted_flops(reader, ids(0, N_IDS, 1)) for _ in range(2))
    assert second - first == 2 * 2 * 4 * 4  # one more key and value in 2 layers with 2 heads of 4


def test_the_stored_measurement() -> None:
    rows = measured("linear_recall")["rows"]
    wanted = itertools.product(range(3), benchmark._KINDS, benchmark._HEADS)
    assert [(row["seed"], row["kind"], row["n_heads"]) for row in rows] == list(wanted)
    assert len({row["parameters"] for row in rows}) == 1
    x = torch.randn(2, 5, 64)
    for n_heads in benchmark._HEADS:
        assert benchmark._core(attend_linear, n_heads)()(x).shape == x.shape
    torch.manual_seed(0)
    same = attention_core()
    torch.manual_seed(0)
    torch.testing.assert_close(benchmark._core(attend, 1)()(x), same(x))
