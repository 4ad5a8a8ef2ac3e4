"""Lesson 14: tiles are exact, forward and backward, whatever their size; they stay small, and all models take them."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.lessons import flash_attention as course
from course_utils.lessons.flash_attention import (
    attend_in_tiles,
    blocks,
    counted_traffic,
    measured_seconds,
    measured_use,
    memory_traffic,
    merge_blocks,
    online_softmax,
    tiled_attention,
    tiled_attention_backward,
)
from course_utils.lessons.language_model import GPT2, LanguageModel, attend_rotary
from course_utils.lessons.masking import causal_mask, masked_attention, padding_mask
from course_utils.lessons.multi_head import MultiHeadAttention, attend, attend_in_steps
from course_utils.lessons.transformer_block import TransformerBlock
from course_utils.lessons.transformer_translator import TransformerTranslator
from tests.helpers import few, ids, leading, masks, numbers, seeds

lengths = st.integers(1, 12)
tile_sizes = st.integers(1, 8)
alignments = st.sampled_from([None, "end", "start"])
close = partial(torch.testing.assert_close, rtol=1e-11, atol=1e-11)


def causal(align: str | None, n_queries: int, n_keys: int) -> Tensor:
    offset = {None: n_keys, "end": n_keys - n_queries, "start": 0}[align]
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(offset)


def vectors(seed: int, *lead: int, queries: int, keys: int, d_k: int = 3, d_v: int = 2) -> list[Tensor]:
    sizes = (queries, d_k), (keys, d_k), (keys, d_v)
    return [numbers(seed + i, *lead, *size) for i, size in enumerate(sizes)]


def assert_exact(inputs: list[Tensor], shown: Tensor, settings: dict, block: int = 4, other: int = 3) -> None:
    """Outputs, log-sum-exp and gradients are those of lesson 05's attention; two runs are equal to the last bit."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    q, k, v = leaves
    wanted = masked_attention(q, k, v, shown)[0]
    scores = (inputs[0] @ inputs[1].mT / inputs[0].shape[-1] ** 0.5).masked_fill(~shown, -torch.inf)
    got = tiled_attention(*inputs, block_q=block, block_k=other, **settings)
    close(got[0], wanted)
    close(got[1], torch.logsumexp(scores, dim=-1))
    grad = numbers(99, *wanted.shape)
    backward = partial(tiled_attention_backward, grad, *inputs, *got, block_q=other, block_k=block, **settings)
    gradients = backward()
    for found, expected in zip(gradients, torch.autograd.grad(wanted, leaves, grad), strict=True):
        close(found, expected)
    again = tiled_attention(*inputs, block_q=block, block_k=other, **settings)
    assert all(map(torch.equal, (*got, *gradients), (*again, *backward())))


# ------------------------------------------------------------------ pieces of a softmax


@few
@given(st.integers(0, 20), tile_sizes)
def test_blocks_are_all_positions_once(n: int, size: int) -> None:
    cut = [list(range(n))[piece] for piece in blocks(n, size)]
    assert [i for piece in cut for i in piece] == list(range(n)) and all(len(piece) == size for piece in cut[:-1])


@few
@given(leading, lengths, tile_sizes, st.sampled_from([1, 100, 4000]), seeds)
def test_online_softmax(lead: tuple[int, ...], n_keys: int, size: int, factor: float, seed: int) -> None:
    scores = (factor * numbers(seed, *lead, n_keys)).masked_fill(masks(seed, *lead, n_keys, share=0.3), -torch.inf)
    row_max, row_sum = online_softmax(scores, size)
    assert torch.equal(row_max, scores.amax(dim=-1))
    close(row_max + torch.log(row_sum), torch.logsumexp(scores, dim=-1))


@few
@given(lengths, st.integers(0, 12), st.sampled_from([1, 100, 1000]), seeds)
def test_merged_halves_are_the_whole(n_keys: int, cut: int, factor: float, seed: int) -> None:
    """Also where one half has no keys at all, or none that a query sees; in any order."""
    q, k, v = vectors(seed, 2, queries=3, keys=n_keys)
    shown = masks(seed, 3, n_keys)
    halves = []
    for part in (slice(0, cut), slice(cut, n_keys)):
        halves.append(tiled_attention(factor * q, k[:, part], v[:, part], mask=shown[:, part]))
    wanted = tiled_attention(factor * q, k, v, mask=shown)
    for got in (merge_blocks(*halves[0], *halves[1]), merge_blocks(*halves[1], *halves[0])):
        for one, other in zip(got, wanted, strict=True):
            close(one, other)


# ------------------------------------------------------------------ tiles


@few
@given(leading, lengths, lengths, tile_sizes, tile_sizes, alignments, st.booleans(), seeds)
def test_tiles_are_exact(lead, n_queries, n_keys, block, other, align, with_mask, seed) -> None:
    shown = causal(align, n_queries, n_keys).expand(*lead, n_queries, n_keys)
    settings = {"is_causal": align is not None, "align": align or "end"}
    if with_mask:
        settings["mask"] = masks(seed, *lead, n_queries, n_keys)
        shown = shown & settings["mask"]
    assert_exact(vectors(seed, *lead, queries=n_queries, keys=n_keys), shown, settings, block, other)


CASES = {
    "one query": (1, 9, "end"),
    "one key": (9, 1, "start"),
    "one of each": (1, 1, "end"),
    "a multiple of the tile": (8, 8, "end"),
    "one more than a multiple": (9, 9, "end"),
    "one less": (7, 7, "end"),
    "rows that see nothing": (9, 4, "end"),
    "more queries, to the top left": (9, 4, "start"),
    "more keys, to the top left": (4, 9, "start"),
    "more keys, to the end": (4, 9, "end"),
}


@pytest.mark.parametrize("name", CASES)
def test_named_cases(name: str) -> None:
    n_queries, n_keys, align = CASES[name]
    inputs = vectors(0, 2, queries=n_queries, keys=n_keys)
    assert_exact(inputs, causal(align, n_queries, n_keys), {"is_causal": True, "align": align})
    assert_exact(inputs, causal(None, n_queries, n_keys), {})


@pytest.mark.parametrize("size", [20.0, -20.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_scores_near_400(size: float, dtype: torch.dtype) -> None:
    """In a ragged tail, a padding key with score 0 would get exp(400) more than the others."""
    q, k = torch.full((1, 7, 1), 20.0, dtype=dtype), torch.full((1, 7, 1), size, dtype=dtype)
    v = numbers(0, 1, 7, 2, dtype=dtype)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    outputs = attend_in_tiles(q, k, v)
    mean = v.double().mean(dim=1, keepdim=True).expand(1, 7, 2)
    torch.testing.assert_close(outputs.double(), mean, rtol=1e-3, atol=1e-3)
    gradients = torch.autograd.grad(outputs.sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    torch.testing.assert_close(gradients[2], torch.ones_like(v), rtol=1e-3, atol=1e-3)


def test_scores_that_float16_cannot_hold() -> None:
    q = k = torch.full((1, 5, 16), 300.0).half()
    v = numbers(0, 1, 5, 2).half()
    outputs, log_sum_exp = tiled_attention(q, k, v, block_q=2, block_k=2)
    torch.testing.assert_close(outputs, v.float().mean(dim=1, keepdim=True).half().expand_as(outputs))
    assert log_sum_exp.dtype == torch.float32 and log_sum_exp.isfinite().all()


def test_gradients_of_any_layout() -> None:
    """Of the outputs: expanded, transposed. Of the inputs: slices of one tensor."""
    whole = numbers(0, 2, 5, 3 * 4).requires_grad_()
    for factors in (torch.ones(1, 1, 1).expand(2, 5, 4), numbers(1, 4, 5, 2).transpose(0, 2)):
        found = []
        for function in (attend_in_tiles, attend_in_steps):
            outputs = function(*whole.chunk(3, dim=-1), is_causal=True)
            found.append(torch.autograd.grad(outputs, whole, factors.double())[0])
        close(*found)


def test_pytorch_can_go_back_through_the_tiles_too() -> None:
    inputs = [x.requires_grad_() for x in vectors(0, 2, queries=9, keys=7)]
    outputs = tiled_attention(*inputs, is_causal=True, block_q=4, block_k=3)[0]
    factors = numbers(5, *outputs.shape)
    wanted = torch.autograd.grad(attend_in_tiles(*inputs, is_causal=True), inputs, factors)
    for one, other in zip(torch.autograd.grad(outputs, inputs, factors), wanted, strict=True):
        close(one, other)


def test_what_is_refused() -> None:
    q = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="align must be"):
        tiled_attention(q, q, q, align="left")
    for shape in ((3, 2), (2, 1, 3, 3), (1, 3)):
        with pytest.raises(ValueError, match="mask has shape"):
            attend_in_tiles(q, q, q, torch.ones(shape, dtype=torch.bool)[..., :2])


def test_a_second_derivative_is_refused() -> None:
    x = numbers(0, 1, 3, 2).requires_grad_()
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(attend_in_tiles(x, x, x).square().sum(), x, create_graph=True)


# ------------------------------------------------------------------ the models of the course

Make = Callable[[Callable], tuple[nn.Module, tuple]]
TOKENS, SOURCE_LENGTHS = ids(0, 9, 2, 7), torch.tensor([7, 4])
MODELS: dict[str, Make] = {
    "06 multi-head": lambda f: (MultiHeadAttention(12, 3, f), (numbers(1, 2, 7, 12),)),
    "06 multi-head, padded": lambda f: (
        MultiHeadAttention(12, 3, f),
        (numbers(1, 2, 7, 12), None, padding_mask(SOURCE_LENGTHS.unsqueeze(1), 7)),
    ),
    "08 block": lambda f: (TransformerBlock(12, 3, 16, attend=f), (numbers(1, 2, 7, 12),)),
    "09 language model": lambda f: (
        LanguageModel(9, 8, 2, 2, 7, partial(attend_rotary, attend=f)),
        (TOKENS,),
    ),
    "09 GPT-2": lambda f: (GPT2(9, 8, 2, 2, 7, f), (TOKENS,)),
    "10 translator": lambda f: (TransformerTranslator(9, 9, 8, 2, 16, attend=f), (TOKENS, SOURCE_LENGTHS, TOKENS)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_do_not_notice(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same outputs and the same gradients of all parameters, with tiles of 3 by 3."""
    small = partial(tiled_attention, block_q=3, block_k=3)
    small_backward = partial(tiled_attention_backward, block_q=3, block_k=3)
    monkeypatch.setattr(course, "tiled_attention", small)
    monkeypatch.setattr(course, "tiled_attention_backward", small_backward)
    found = []
    for function in (attend, attend_in_tiles):
        torch.manual_seed(0)
        model, inputs = MODELS[name](function)
        outputs = model.double()(*inputs)
        parameters = list(model.parameters())
        found.append((outputs, *torch.autograd.grad(outputs.square().sum(), parameters, allow_unused=True)))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_pytorchs_function_takes_its_fused_path() -> None:
    """With three dimensions it would store the matrix: what is measured needs four."""
    x = numbers(0, 1, 1, 64, 8, dtype=torch.float32)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(x, x, x)


# ------------------------------------------------------------------ traffic


@few
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 5), st.integers(1, 5), tile_sizes, tile_sizes)
def test_the_formula_is_what_the_code_moves(n_queries, n_keys, d_k, d_v, block_q, block_k) -> None:
    inputs = torch.zeros(n_queries, d_k), torch.zeros(n_keys, d_k), torch.zeros(n_keys, d_v)
    run = partial(tiled_attention, block_q=block_q, block_k=block_k)
    fast = 10 * max(block_q, d_k, d_v) * max(block_k, d_k, d_v)
    assert counted_traffic(run, *inputs, fast_numbers=fast) == memory_traffic(n_queries, n_keys, d_k, d_v, block_q)


def test_plain_attention_moves_the_matrix_six_times() -> None:
    inputs = torch.zeros(3, 50, 4)
    moved = counted_traffic(lambda q, k, v: masked_attention(q, k, v)[0], *inputs, fast_numbers=2000)
    assert moved == 6 * 50**2 + 4 * 50 * 4


def test_a_causal_mask_saves_nearly_half_of_the_loads() -> None:
    inputs = torch.zeros(3, 256, 4)
    run = partial(tiled_attention, block_q=16, block_k=16)
    whole, half = (
        counted_traffic(partial(run, is_causal=c), *inputs, fast_numbers=1000) - 256 * (4 + 4 + 1)
        for c in (False, True)
    )
    assert half / whole == pytest.approx(17 / 32)


# ------------------------------------------------------------------ memory and stored measurements


def test_memory_grows_like_n() -> None:
    tiled = [use.n_bytes for use in measured_use("tiled", [2048, 4096])]
    plain = [use.n_bytes for use in measured_use("plain", [2048, 4096])]
    assert tiled[1] < 3 * tiled[0] and tiled[1] < 4096**2 * 4 / 3
    assert plain[1] > 3 * plain[0] and plain[1] > 2 * 4096**2 * 4


def test_measured_seconds_names_every_way() -> None:
    found = measured_seconds(64, [16, 64])
    assert list(found)[-2:] == ["tiles of 16", "tiles of 64"] and len(found) == 7 and min(found.values()) > 0


def test_writing_into_given_matrices_is_plain_attention() -> None:
    q, k, v = numbers(0, 3, 2, 5, 4)
    scores, weights = numbers(1, 2, 2, 5, 5)
    close(course.attend_in_reused(q, k, v, scores, weights), attend_in_steps(q, k, v))


def test_stored_table_is_what_the_lesson_says() -> None:
    rows = {(row["way"], row["tokens"]): row for row in measured("flash")["rows"]}
    tokens = [256 * 2**i for i in range(7)]
    assert set(rows) == {
        *((way, n) for way in ("tiled", "PyTorch's fused") for n in tokens),
        *(("plain", n) for n in tokens[:-1]),
    }
    for n in tokens:
        assert rows["tiled", n]["seconds"] > rows["PyTorch's fused", n]["seconds"]
    for way, power in (("plain", 2), ("tiled", 1), ("PyTorch's fused", 1)):
        growth = math.log2(rows[way, 8192]["bytes"] / rows[way, 2048]["bytes"]) / 2
        assert power - 0.5 < growth < power + 0.3  # at few tokens, a tile is more than all inputs
        slope = math.log2(rows[way, 8192]["seconds"] / rows[way, 2048]["seconds"]) / 2
        assert 1.6 < slope < (3 if way == "plain" else 2.4)


@pytest.mark.parametrize("align", ["end", "start"])
def test_the_causal_mask_of_a_tile_is_a_piece_of_the_whole_mask(align: str) -> None:
    q, k = torch.zeros(7, 1), torch.zeros(5, 1)
    visible = course.what_is_visible(q, k, None, True, align)
    whole = causal_mask(7, 5) if align == "end" else causal("start", 7, 5)
    for rows in blocks(7, 3):
        for columns in blocks(5, 2):
            piece = whole[rows, columns]
            assert torch.equal(visible.hide(torch.zeros(piece.shape), rows, columns) == 0, piece)
            assert visible.nothing(rows, columns) == (not piece.any())
