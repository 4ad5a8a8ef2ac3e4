"""Lesson 06: equal to PyTorch's module in every mask and dtype, and no token mixed with another."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.benchmarks import measured
from course_utils.lessons.masking import causal_mask, leaks_future, masked_attention, padding_mask
from course_utils.lessons.multi_head import (
    N_LETTERS,
    N_PEOPLE,
    ManyModels,
    MultiHeadAttention,
    TableModel,
    attend,
    attend_in_steps,
    attention_matrix_bytes,
    copy_weights,
    markers,
    measured_attention_bytes,
    multi_head_attention,
    peak_memory,
    relation_weights,
    split_heads,
    tables,
    train_many,
    wilson_interval,
)
from tests.helpers import FunctionModule, as_exact_as, few, generator, leading, numbers, seeds, sizes

# bfloat16 keeps 8 bits: two correct orders of the same sums differ by some units of the last one.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}
DTYPES = st.sampled_from(list(TOLERANCE))


def close(got: Tensor, wanted: Tensor) -> None:
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------ heads


@pytest.mark.parametrize("n_heads", [-2, 0, 5])
def test_heads_that_do_not_fit(n_heads: int) -> None:
    with pytest.raises(ValueError, match=f"cut into {n_heads} equal heads"):
        split_heads(torch.zeros(2, 3, 12), n_heads)
    with pytest.raises(ValueError, match=f"cut into {n_heads} equal heads"):
        MultiHeadAttention(12, n_heads)


# ------------------------------------------------------------------ PyTorch's module

MASKS = ["none", "boolean", "causal", "padding", "causal and padding"]


def made_mask(kind: str, batch: int, n_queries: int, n_keys: int, seed: int) -> Tensor | None:
    """A mask in which every query sees something: (queries, keys), or (batch, 1, 1 or queries, keys)."""
    random = generator(seed)
    if kind == "none":
        return None
    if kind == "boolean":
        mask = torch.rand(n_queries, n_keys, generator=random) < 0.5
        mask[:, 0] = True
        return mask
    padding = padding_mask(torch.randint(1, n_keys + 1, (batch, 1), generator=random), n_keys)
    causal = causal_mask(n_queries, n_keys)
    return {"causal": causal, "padding": padding, "causal and padding": causal & padding}[kind]


def their_masks(mask: Tensor | None, batch: int, n_heads: int, shape: tuple[int, int]) -> Tensor | None:
    """PyTorch's module wants True = hidden, and (batch · heads, queries, keys)."""
    if mask is None or mask.ndim == 2:
        return None if mask is None else ~mask
    return ~mask.expand(batch, n_heads, *shape).flatten(0, 1)


@few
@given(
    st.sampled_from([attend, attend_in_steps]),
    st.sampled_from(MASKS),
    DTYPES,
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 4),
    sizes,
    sizes,
    seeds,
)
def test_module_is_pytorchs_module(
    function, kind, dtype, bias, is_cross, batch, n_heads, n_queries, more, seed
) -> None:
    """Outputs, weights and all gradients, with copied weights."""
    n_keys = n_queries + more if is_cross else n_queries
    torch.manual_seed(seed)
    theirs = nn.MultiheadAttention(4 * n_heads, n_heads, bias=bias, batch_first=True)
    if bias:  # they start at zero, which would hide a bias in the wrong place
        nn.init.normal_(theirs.in_proj_bias), nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadAttention(4 * n_heads, n_heads, function, bias=bias)
    copy_weights(theirs, ours)
    theirs, ours = theirs.to(dtype), ours.to(dtype)
    x = numbers(seed, batch, n_queries, 4 * n_heads, dtype=dtype).requires_grad_()
    data = numbers(seed + 1, batch, n_keys, 4 * n_heads, dtype=dtype).requires_grad_() if is_cross else x
    mask = made_mask(kind, batch, n_queries, n_keys, seed)
    hidden = their_masks(mask, batch, n_heads, (n_queries, n_keys))
    wanted, wanted_weights = theirs(x, data, data, attn_mask=hidden, average_attn_weights=False)
    if kind == "causal":
        got, weights = ours(x, data, is_causal=True), ours.weights(x, data, is_causal=True)
    else:
        got, weights = ours(x, data, mask=mask), ours.weights(x, data, mask=mask)
    close(got, wanted)
    close(weights, wanted_weights)
    factors = numbers(seed + 2, *wanted.shape, dtype=dtype)
    theirs_flat = [theirs.in_proj_weight, theirs.out_proj.weight]
    ours_flat = [ours.to_queries.weight, ours.to_keys.weight, ours.to_values.weight, ours.output.weight]
    g_wanted = torch.autograd.grad((wanted * factors).sum(), [x, *theirs_flat])
    g_got = torch.autograd.grad((got * factors).sum(), [x, *ours_flat])
    for one, other in zip([g_got[0], torch.cat(g_got[1:4]), g_got[4]], g_wanted, strict=True):
        scale = other.abs().max().clamp(min=1)  # sums over many tokens: compare with the largest number
        close(one / scale, other / scale)


def test_copying_needs_biases_on_both_sides() -> None:
    with pytest.raises(ValueError, match="the other one has none"):
        copy_weights(nn.MultiheadAttention(4, 2), MultiHeadAttention(4, 2, bias=False))


# ------------------------------------------------------------------ what happens inside the heads


@few
@given(st.sampled_from(MASKS), DTYPES, st.booleans(), leading, sizes, sizes, seeds)
def test_both_ways_to_attend_are_masked_attention(kind, dtype, is_causal, lead, n_queries, n_keys, seed) -> None:
    """With empty rows too: more queries than keys and a causal mask leave some."""
    q, k, v = (
        numbers(seed + i, *lead, 2, n, 3, dtype=dtype).requires_grad_()
        for i, n in enumerate((n_queries, n_keys, n_keys))
    )
    mask = made_mask(kind, 1, n_queries, n_keys, seed)
    mask = mask if mask is None or mask.ndim == 2 else mask[0].expand(*lead, 2, -1, -1)
    joint = causal_mask(n_queries, n_keys) if is_causal else None
    joint = mask if joint is None else joint if mask is None else joint & mask
    wanted = masked_attention(q, k, v, joint)[0]
    for function in (attend, attend_in_steps):
        got = function(q, k, v, mask, is_causal=is_causal)
        close(got, wanted)
        for one, other in zip(
            *(torch.autograd.grad(o.sum(), (q, k, v), retain_graph=True) for o in (got, wanted)), strict=True
        ):
            close(one, other)


@pytest.mark.parametrize("function", [attend_in_steps, F.scaled_dot_product_attention])
def test_another_function_fits_in(function) -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(12, 3)
    x, mask = torch.randn(2, 5, 12), padding_mask(torch.tensor([[3], [5]]), 5)
    wanted = [ours(x), ours(x, is_causal=True), ours(x, mask=mask)]
    ours.attend = function
    for got, expected in zip([ours(x), ours(x, is_causal=True), ours(x, mask=mask)], wanted, strict=True):
        close(got, expected)


@pytest.mark.parametrize("shape", [(4, 1, 6), (2, 5), (5, 4, 1, 6)])
@pytest.mark.parametrize("function", [attend, attend_in_steps])
def test_masks_that_do_not_fit(function, shape) -> None:
    q, k = torch.zeros(4, 3, 5, 2), torch.zeros(4, 3, 6, 2)
    with pytest.raises(ValueError, match="mask has shape"):
        function(q, k, k, torch.ones(shape, dtype=torch.bool), is_causal=True)


@pytest.mark.parametrize("function", [attend, attend_in_steps])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 5, 200])
@pytest.mark.parametrize("kind", MASKS)
def test_half_precision_is_as_exact_as_pytorchs(function, dtype, size, kind) -> None:
    """Outputs and gradients, also where the scores are larger than any number of float16 (65,504)."""
    for seed in range(5):
        vectors = [(size * numbers(seed + i, 2, 3, 9, 8)).to(dtype) for i in (0, 1)] + [numbers(seed, 2, 3, 9, 8)]
        vectors = [x.to(dtype).requires_grad_() for x in vectors]
        mask = made_mask(kind, 2, 9, 9, seed)

        def run(attention, inputs, mask=mask, seed=seed) -> tuple[Tensor, ...]:
            outputs = attention(*inputs, mask)
            factors = numbers(seed + 3, *outputs.shape, dtype=outputs.dtype)
            return outputs, *torch.autograd.grad(outputs, inputs, factors)

        exact = run(F.scaled_dot_product_attention, [x.detach().double().requires_grad_() for x in vectors])
        theirs = run(F.scaled_dot_product_attention, vectors)
        found = run(function, vectors)
        as_exact_as(found[0], theirs[0], exact[0])
        for got, wanted, double in zip(found[1:], theirs[1:], exact[1:], strict=True):
            error, their_error = ((x.double() - double).abs().max() for x in (got, wanted))
            rounding = torch.finfo(dtype).eps * double.abs().max().clamp(min=1)
            assert got.isfinite().all() and error <= 2 * their_error + 4 * rounding


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("function", [attend, attend_in_steps])
def test_scores_that_float16_cannot_hold(function, is_causal: bool) -> None:
    """All scores are 160,000 / 2, so all weights are equal."""
    vectors, values = torch.full((1, 2, 5, 4), 200.0).half(), numbers(0, 1, 2, 5, 4).half()
    wanted = torch.cumsum(values.double(), dim=-2) / torch.arange(1, 6)[:, None]
    got = function(vectors, vectors, values, is_causal=is_causal).double()
    torch.testing.assert_close(got, wanted if is_causal else wanted[..., -1:, :].expand_as(got), rtol=2e-3, atol=2e-3)


# ------------------------------------------------------------------ what a mask promises


@pytest.mark.parametrize("wrong", ["split_heads", "merge_heads"])
def test_a_reshape_without_transpose_leaks(monkeypatch, wrong: str) -> None:
    reshape = {
        "split_heads": lambda x, n_heads: x.reshape(x.shape[0], n_heads, x.shape[1], -1),
        "merge_heads": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    }
    monkeypatch.setattr(f"course_utils.lessons.multi_head.{wrong}", reshape[wrong])
    torch.manual_seed(0)
    causal = FunctionModule(lambda layer, x: layer(x, is_causal=True), MultiHeadAttention(12, 3))
    assert leaks_future(causal, torch.randn(2, 7, 12))  # as it is, it does not: test_model_promises.py


@few
@given(seeds, st.integers(1, 4), st.integers(1, 3))
def test_padding_changes_nothing(seed: int, length: int, padding: int) -> None:
    torch.manual_seed(seed)
    layer = MultiHeadAttention(12, 3).double()
    x = numbers(seed, 2, length + padding, 12)
    mask = padding_mask(torch.tensor([[length], [length]]), length + padding)
    alone, padded = layer(x[:, :length]), layer(x, mask=mask)[:, :length]
    close(padded, alone)
    other = x.clone()
    other[:, length:] = 100.0
    assert torch.equal(layer(other, mask=mask)[:, :length], padded)


@few
@given(seeds, st.integers(2, 6))
def test_tokens_in_another_order_give_outputs_in_that_order(seed: int, n_tokens: int) -> None:
    torch.manual_seed(seed)
    layer = MultiHeadAttention(12, 3).double()
    x, order = numbers(seed, 2, n_tokens, 12), torch.randperm(n_tokens)
    close(layer(x[:, order]), layer(x)[:, order])


# ------------------------------------------------------------------ the table


def test_tables_are_what_they_promise() -> None:
    batch = next(tables(50, generator(0)))
    for letters, colours, asked, answers in zip(*(t.tolist() for t in batch), strict=True):
        assert sorted(colours) == [0, 0, 1, 1, 2, 2, 3, 3]
        for seat in range(N_PEOPLE):
            left, partner = asked[seat]
            assert left == (seat - 1) % N_PEOPLE
            assert partner != seat and colours[partner] == colours[seat]
            assert answers[seat] == [letters[left], letters[partner]]


def test_the_same_seed_gives_the_same_tables() -> None:
    pairs = zip(*(itertools.islice(tables(4, generator(3)), 3) for _ in range(2)), strict=True)
    assert all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


def test_relation_weights_leave_out_whoever_is_both() -> None:
    model, batch = TableModel(2), next(tables(20, generator(0)))
    sums, count = torch.zeros(2, 2), 0
    weights = model.weights(batch).detach()
    for row, seat in itertools.product(range(20), range(N_PEOPLE)):
        left, partner = batch.asked[row, seat]
        if left != partner:
            sums += weights[row, :, seat][:, [left, partner]]
            count += 1
    torch.testing.assert_close(relation_weights(model, batch).detach(), sums / count)
    assert model(batch).shape == (20, N_PEOPLE, 2, N_LETTERS)


# ------------------------------------------------------------------ many models at once


def test_markers_mark_one_token() -> None:
    tokens, answers = markers(3, 20, generator(0))
    marks = tokens[..., 8]
    assert torch.equal(marks.sum(dim=-1), torch.ones(3, 20))
    assert torch.equal(tokens[..., :8].sum(dim=-1), torch.ones(3, 20, 8))
    marked = (tokens[..., :8] * marks.unsqueeze(-1)).sum(dim=-2).argmax(dim=-1)
    assert torch.equal(marked, answers)


@pytest.mark.parametrize("n_heads", [1, 2, 4, 8])
def test_each_of_many_models_is_a_multi_head_attention(n_heads: int) -> None:
    models = ManyModels(3, n_heads, 2.0, generator(0))
    tokens = markers(3, 5, generator(1)).tokens
    for seed in range(3):
        query = models.query[seed].expand(5, 1, 16)
        matrices = torch.eye(16), models.w_k[seed], models.w_v[seed], models.w_o[seed]
        outputs, weights = multi_head_attention(query, tokens[seed], *matrices, n_heads)
        torch.testing.assert_close(models(tokens)[seed], outputs.squeeze(1) + models.bias[seed])
        torch.testing.assert_close(models.weights(tokens)[seed], weights.squeeze(2).transpose(0, 1))
    assert sum(p.numel() for p in models.parameters()) == 3 * 568


def test_equal_queries_are_equally_long() -> None:
    models = ManyModels(3, 4, 6.0, generator(0), equal_queries=True)
    torch.testing.assert_close(split_heads(models.query, 4).norm(dim=-1), torch.full((3, 4, 1), 12.0))


def test_models_do_not_touch_each_other() -> None:
    """Another start of one model changes that model only."""
    models = ManyModels(3, 2, 1.0, generator(0))
    tokens = markers(3, 5, generator(1)).tokens
    before = models(tokens).detach()
    with torch.no_grad():
        models.w_k[1] += 1
    changed = (models(tokens) != before).flatten(1).any(dim=1)
    assert changed.tolist() == [False, True, False]


def test_training_is_reproducible_and_learns() -> None:
    one, other = (train_many(4, 1.0, n_seeds=3, steps=150) for _ in range(2))
    assert torch.equal(one, other) and one.min() > 0.5  # guessing is right in 1 of 8


def test_intervals() -> None:
    """For 5 of 10 and 0 of 10 by hand; and it holds the true share in about 95% of all draws."""
    assert wilson_interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-3)
    draws = torch.binomial(torch.full((2000,), 40.0), torch.full((2000,), 0.7), generator=generator(0)).int().tolist()
    inside = [low < 0.7 < high for low, high in (wilson_interval(k, 40) for k in draws)]
    assert 0.92 < sum(inside) / len(inside) < 0.98


# ------------------------------------------------------------------ memory and stored measurements


@few
@given(sizes, sizes, st.integers(1, 4), st.sampled_from([torch.float32, torch.float16]), st.integers(1, 3))
def test_bytes_are_those_of_the_real_weights(n_queries, n_keys, n_heads, dtype, batch) -> None:
    layer = MultiHeadAttention(2 * n_heads, n_heads).to(dtype)
    x, data = (torch.zeros(batch, n, 2 * n_heads, dtype=dtype) for n in (n_queries, n_keys))
    weights = layer.weights(x, data)
    assert attention_matrix_bytes(n_queries, n_keys, n_heads, dtype.itemsize, batch) == weights.nbytes


def test_the_lectures_example() -> None:
    assert attention_matrix_bytes(100_000, 100_000, 64, 2) == 1_280_000_000_000


def test_memory_sees_the_matrices() -> None:
    matrices = [attention_matrix_bytes(n, n, 2, 4) for n in (1024, 2048)]
    plain = measured_attention_bytes(attend_in_steps, [1024, 2048], 2)
    causal = measured_attention_bytes(attend_in_steps, [1024, 2048], 2, is_causal=True)
    fused = measured_attention_bytes(attend, [1024, 2048], 2)
    for one, found, with_mask, without in zip(matrices, plain, causal, fused, strict=True):
        assert 1.5 * one < found < 3 * one
        assert with_mask > 1.5 * found
        assert without < one / 2
    assert peak_memory() > 2**20


def test_stored_speed_is_what_the_lesson_says() -> None:
    rows = measured("layers")["rows"]
    assert {(row["tokens"], row["is_causal"]) for row in rows} == set(itertools.product((64, 256, 1024), (False, True)))
    for row in rows:
        assert row["fused_to_pytorch"] < (0.7 if row["tokens"] == 1024 else 1.1)
        assert row["is_causal"] or 0.75 < row["steps_to_pytorch"] < 1.35
    with_mask = [row["steps_to_pytorch"] for row in rows if row["is_causal"] and row["tokens"] > 64]
    assert min(with_mask) > 1.15
