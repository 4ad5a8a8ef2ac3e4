"""Lesson 08: equal to PyTorch's block in every order and mask, and what residuals and norms do for depth."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from course_utils.benchmarks import measured
from course_utils.lessons.masking import causal_mask, padding_mask
from course_utils.lessons.multi_head import attend_in_steps, tables
from course_utils.lessons.transformer_block import (
    MLP,
    JointAttention,
    LayerNorm,
    ProductCounter,
    TransformerBlock,
    copy_block_weights,
    count_parameters,
    deep_model,
    layer_norm,
    position_jacobian,
    post_norm_block,
    pre_norm_block,
    through_layers,
    train_deep,
    without_both,
    without_norms,
    without_residuals,
)
from tests.helpers import as_exact_as, few, generator, leading, numbers, seeds, sizes

ORDERS = (post_norm_block, pre_norm_block)
LARGER = 3**0.5
STARTS = ("small", "larger")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}


def close(got: Tensor, wanted: Tensor) -> None:
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------ the norm


@few
@given(leading, st.integers(2, 9), seeds, st.sampled_from([0.0, 1e4, -1e4]), st.sampled_from([1e-12, 1e-5, 0.1]))
def test_norm_of_numbers_far_from_zero(lead, d_model, seed, offset, eps) -> None:
    """In float32 near 10,000 a number is known to 0.001: by hand as exact as PyTorch's, both of the same numbers."""
    x = (numbers(seed, *lead, d_model) * 30 + offset).float()
    gain, bias = numbers(seed + 1, d_model).float(), numbers(seed + 2, d_model).float()
    exact = F.layer_norm(x.double(), (d_model,), gain.double(), bias.double(), eps)
    # With two numbers that are nearly equal, the rounding of their mean is all that can be seen.
    scale = x.double().var(dim=-1, correction=0, keepdim=True).add(eps).sqrt()
    allowed = 1e-5 + gain.double().abs() * 2 * torch.finfo(torch.float32).eps * x.double().abs() / scale
    assert ((layer_norm(x, gain, bias, eps).double() - exact).abs() <= allowed * (1 + exact.abs())).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_equal_numbers_give_the_bias(dtype: torch.dtype) -> None:
    x, gain, bias = torch.full((3, 4), 5.0, dtype=dtype), torch.ones(4, dtype=dtype), torch.arange(4).to(dtype)
    x.requires_grad_()
    normed = layer_norm(x, gain, bias)
    assert torch.equal(normed, bias.expand(3, 4))
    (gradient,) = torch.autograd.grad((normed * torch.arange(4)).sum(), x)
    assert gradient.isfinite().all()


@few
@given(leading, sizes, seeds, st.sampled_from([torch.float64, torch.float32]), st.sampled_from([1e-5, 1e-2]))
def test_module_is_the_function(lead, d_model, seed, dtype, eps) -> None:
    module, x = LayerNorm(d_model, eps).to(dtype), numbers(seed, *lead, d_model, dtype=dtype)
    with torch.no_grad():
        module.gain.copy_(numbers(seed + 1, d_model)), module.bias.copy_(numbers(seed + 2, d_model))
    close(module(x), layer_norm(x, module.gain, module.bias, eps))


# ------------------------------------------------------------------ PyTorch's block

MASKS = ("none", "causal", "padding", "padding and causal", "boolean")


def pair(order, d_model: int, n_heads: int, d_hidden: int, dtype: torch.dtype, eps: float = 1e-5, **parts):
    """PyTorch's block and ours with the same weights; none of them is 0 or 1."""
    is_pre = order is pre_norm_block
    theirs = nn.TransformerEncoderLayer(
        d_model, n_heads, d_hidden, dropout=0.0, batch_first=True, norm_first=is_pre, layer_norm_eps=eps
    )
    for weight in theirs.parameters():
        if weight.ndim == 1:
            nn.init.normal_(weight)
    ours = TransformerBlock(d_model, n_heads, d_hidden, order=order, **parts)
    copy_block_weights(theirs, ours)
    return theirs.to(dtype), ours.to(dtype)


def parameters(block: TransformerBlock) -> list[list[nn.Parameter]]:
    """In the order of PyTorch's block; what stands in one list is one parameter there."""
    named = dict(block.named_parameters())
    layers = itertools.product(("attention.output", "mlp.up", "mlp.down"), ("weight", "bias"))
    rest = [*layers, *itertools.product(("norm_1", "norm_2"), ("gain", "bias"))]
    three = ("queries", "keys", "values")
    joint = [[named[f"attention.to_{name}.{kind}"] for name in three] for kind in ("weight", "bias")]
    return [*joint, *([named[f"{layer}.{kind}"]] for layer, kind in rest)]


@few
@given(
    st.sampled_from(ORDERS),
    st.sampled_from(MASKS),
    st.sampled_from([torch.float64, torch.float32]),
    st.sampled_from([1e-5, 1e-2]),
    st.integers(1, 3),
    st.integers(1, 3),
    sizes,
    st.integers(1, 20),
    seeds,
)
def test_block_is_pytorchs_block(order, kind, dtype, eps, batch, n_heads, n_tokens, d_hidden, seed) -> None:
    """Outputs and the gradients of the input and of all weights."""
    torch.manual_seed(seed)
    theirs, ours = pair(order, 4 * n_heads, n_heads, d_hidden, dtype, eps)
    x = numbers(seed, batch, n_tokens, 4 * n_heads, dtype=dtype).requires_grad_()
    lengths = torch.randint(1, n_tokens + 1, (batch, 1), generator=generator(seed))
    mask = padding_mask(lengths, n_tokens) if "padding" in kind else None
    hidden = None
    if kind == "boolean":
        mask = torch.rand(n_tokens, n_tokens, generator=generator(seed)) < 0.5
        mask[:, 0] = True
        hidden = ~mask
    is_causal = "causal" in kind
    if is_causal:
        hidden = ~causal_mask(n_tokens, n_tokens)
    padded = ~mask[:, 0, 0] if mask is not None and "padding" in kind else None
    wanted = theirs(x, src_mask=hidden, src_key_padding_mask=padded)
    got = ours(x, mask=mask, is_causal=is_causal)
    close(got, wanted)
    factors = numbers(seed + 1, *wanted.shape, dtype=dtype)
    grads = torch.autograd.grad((wanted * factors).sum(), [x, *theirs.parameters()])
    groups = parameters(ours)
    flat = torch.autograd.grad((got * factors).sum(), [x, *itertools.chain(*groups)])
    joined, rest = [flat[0]], iter(flat[1:])
    joined += [torch.cat([next(rest) for _ in group]) for group in groups]
    for one, other in zip(joined, grads, strict=True):
        scale = other.abs().max().clamp(min=1)
        close(one / scale, other / scale)


@pytest.mark.parametrize("order", ORDERS)
def test_half_precision_is_as_exact_as_pytorchs(order) -> None:
    torch.manual_seed(0)
    theirs, ours = pair(order, 12, 3, 48, torch.float32)
    x = numbers(0, 4, 7, 12)
    exact = theirs.double()(x).detach()
    for dtype in (torch.float16, torch.bfloat16):
        as_exact_as(ours.to(dtype)(x.to(dtype)).detach(), theirs.to(dtype)(x.to(dtype)).detach(), exact)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_a_whole_block(order) -> None:
    torch.manual_seed(0)
    block = TransformerBlock(6, 3, 5, order=order).double()
    x = numbers(0, 2, 4, 6).requires_grad_()
    mask = padding_mask(torch.tensor([[2], [4]]), 4)
    assert torch.autograd.gradcheck(lambda x: block(x, mask, is_causal=True), x)


def test_copying_needs_biases() -> None:
    theirs = nn.TransformerEncoderLayer(4, 2, 8, bias=False)
    with pytest.raises(ValueError, match="has none"):
        copy_block_weights(theirs, TransformerBlock(4, 2, 8))


@few
@given(st.sampled_from(ORDERS), leading, sizes, seeds)
def test_any_number_of_leading_dimensions(order, lead, n_tokens, seed) -> None:
    torch.manual_seed(seed)
    block = TransformerBlock(6, 2, 7, order=order).double()
    x = numbers(seed, *lead, n_tokens, 6)
    alone = [block(one) for one in x.reshape(-1, n_tokens, 6)]
    close(block(x), torch.stack(alone).reshape(x.shape))


# ------------------------------------------------------------------ parts are arguments


def test_parts_are_arguments() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(8, 2, 5, norm=lambda d: nn.LayerNorm(d, bias=False), mlp=lambda d, h: nn.Linear(d, d))
    assert isinstance(block.mlp, nn.Linear) and isinstance(block.norm_2, nn.LayerNorm)
    assert block.norm_1 is not block.norm_2
    x = torch.randn(2, 3, 8)
    close(block(x), post_norm_block(x, block.attention, block.mlp, block.norm_1, block.norm_2))
    gelu = MLP(8, 5, F.gelu)
    close(gelu(x), gelu.down(F.gelu(gelu.up(x))))


def test_what_happens_in_the_heads_is_an_argument() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(8, 2, 5)
    x, mask = torch.randn(2, 3, 8), padding_mask(torch.tensor([[2], [3]]), 3)
    wanted = block(x, mask), block(x, is_causal=True)
    block.attention.attend = attend_in_steps
    for one, other in zip((block(x, mask), block(x, is_causal=True)), wanted, strict=True):
        close(one, other)
    block.attention.attend = lambda q, k, v, mask=None, is_causal=False: torch.zeros_like(q)
    assert not torch.allclose(block(x), wanted[1])


def test_heads_and_masks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="cut into 5 equal heads"):
        TransformerBlock(12, 5, 8)
    with pytest.raises(ValueError, match="mask has shape"):
        TransformerBlock(12, 3, 8)(torch.zeros(2, 4, 12), torch.ones(2, 4, dtype=torch.bool))


# ------------------------------------------------------------------ who meets whom, and what is computed


@few
@given(st.sampled_from(ORDERS), st.integers(2, 6), seeds, st.booleans())
def test_tokens_meet_in_attention_only(order, n_tokens, seed, is_causal) -> None:
    torch.manual_seed(seed)
    block = TransformerBlock(6, 2, 9, order=order).double()
    x = numbers(seed, n_tokens, 6)
    whole = position_jacobian(lambda x: block(x, is_causal=is_causal), x)
    seen = torch.ones(n_tokens, n_tokens).tril() if is_causal else torch.ones(n_tokens, n_tokens)
    assert torch.equal(whole > 0, seen > 0)
    for part in (block.mlp, block.norm_1):
        assert torch.equal(position_jacobian(part, x).bool() | torch.eye(n_tokens).bool(), torch.eye(n_tokens).bool())


def test_jacobian_is_that_of_small_steps() -> None:
    torch.manual_seed(0)
    block, x = TransformerBlock(6, 2, 9).double(), numbers(0, 3, 6)
    found = torch.zeros(3, 3, dtype=torch.float64)
    for j, k in itertools.product(range(3), range(6)):
        step = torch.zeros_like(x)
        step[j, k] = 1e-6
        found[:, j] += ((block(x + step) - block(x - step)) / 2e-6).square().sum(dim=-1).detach()
    torch.testing.assert_close(position_jacobian(block, x), found.sqrt(), rtol=1e-5, atol=1e-7)


@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 20), seeds)
def test_counted_products_are_pytorchs_flops(batch, n_heads, n_tokens, d_hidden, seed) -> None:
    d_model = 4 * n_heads
    block = TransformerBlock(d_model, n_heads, d_hidden, attend=attend_in_steps)
    x = numbers(seed, batch, n_tokens, d_model, dtype=torch.float32)
    with torch.no_grad(), ProductCounter(block) as counter:
        block(x)
    with FlopCounterMode(display=False) as pytorchs:
        block(x)
    products = counter.products
    assert sum(p.flops for p in products) == pytorchs.get_total_flops()
    names = ["to_queries", "to_keys", "to_values", "", "", "output", "up", "down"]
    assert [p.weight.removesuffix(".weight").rpartition(".")[2] for p in products] == names
    square, inner = 2 * batch * n_tokens * d_model**2, 2 * batch * n_tokens**2 * d_model
    wide = 2 * batch * n_tokens * d_model * d_hidden
    assert [p.flops for p in products] == [*[square] * 3, inner, inner, square, wide, wide]


@pytest.mark.parametrize("function", [attend_in_steps, F.scaled_dot_product_attention])
def test_one_product_for_queries_keys_and_values(function) -> None:
    torch.manual_seed(0)
    block = TransformerBlock(12, 3, 8, attend=function)
    x, mask = torch.randn(2, 5, 12), padding_mask(torch.tensor([[3], [5]]), 5)
    wanted = block(x), block(x, is_causal=True), block(x, mask)
    block.attention = JointAttention(block.attention)
    for one, other in zip((block(x), block(x, is_causal=True), block(x, mask)), wanted, strict=True):
        close(one, other)
    assert sum(p.numel() for p in block.parameters()) == count_parameters(12, 8)
    with pytest.raises(ValueError, match="data is not x"):
        block.attention(x, data=x + 1)


@few
@given(st.integers(1, 4), sizes, st.integers(1, 50))
def test_parameters_are_those_of_the_block_for_any_heads(n_heads, d_k, d_hidden) -> None:
    block = TransformerBlock(n_heads * d_k, n_heads, d_hidden)
    assert sum(p.numel() for p in block.parameters()) == count_parameters(n_heads * d_k, d_hidden)


# ------------------------------------------------------------------ depth


def test_what_is_measured_layer_by_layer() -> None:
    torch.manual_seed(0)
    model, batch = deep_model(2, post_norm_block).double(), next(tables(4, generator(0)))
    layers = through_layers(model, batch)
    x = model.vectors(batch)
    assert layers.sizes[0] == pytest.approx(x.square().mean().sqrt().item())
    spread = x.std(dim=1, correction=0).square().mean().sqrt()
    assert layers.distinct[0] == pytest.approx(spread.item() / layers.sizes[0])
    assert [len(numbers) for numbers in layers] == [3, 3, 3]
    assert layers.sizes[-1] == pytest.approx(1, rel=1e-3)


def test_matrices_start_as_large_as_asked() -> None:
    torch.manual_seed(0)
    small = deep_model(2, post_norm_block)
    torch.manual_seed(0)
    large = deep_model(2, post_norm_block, LARGER)
    for (name, one), other in zip(small.named_parameters(), large.parameters(), strict=True):
        factor = LARGER if "attention." in name and one.ndim == 2 else 1
        assert torch.equal(one * factor, other), name


@pytest.mark.parametrize("seed", range(3))
def test_claim_23_signal_and_gradient(seed: int) -> None:
    """32 blocks from the larger start, in float64."""
    batch, found = next(tables(32, generator(seed))), {}
    for order in (post_norm_block, pre_norm_block, without_norms, without_residuals, without_both):
        torch.manual_seed(seed)
        found[order] = through_layers(deep_model(32, order, LARGER).double(), batch)
    assert found[without_norms].sizes[-1] > 1e6 * found[without_norms].sizes[0]
    assert found[without_norms].gradients[0] > 1e5 * found[without_norms].gradients[-1]
    assert found[without_both].gradients[0] < 1e-4 * found[without_both].gradients[-1]
    assert found[without_residuals].distinct[8] < 1e-10
    assert found[post_norm_block].sizes[-1] == pytest.approx(1, rel=1e-3)
    for order in (post_norm_block, without_norms):
        assert 1e-7 < found[order].distinct[-1] < 0.01
    assert found[pre_norm_block].distinct[-1] > 0.2
    assert found[pre_norm_block].sizes[-1] < 6 * found[pre_norm_block].sizes[0]
    for order in (post_norm_block, pre_norm_block):
        ratio = found[order].gradients[0] / found[order].gradients[-1]
        assert 0.03 < ratio < 30


@pytest.mark.parametrize("seed", range(3))
def test_signal_from_the_small_start(seed: int) -> None:
    """Without norms nothing explodes; without residuals the tokens are equal all the same."""
    batch, found = next(tables(8, generator(seed))), {}
    for order in (without_norms, without_residuals):
        torch.manual_seed(seed)
        found[order] = through_layers(deep_model(32, order).double(), batch)
    assert found[without_norms].sizes[-1] < 20 * found[without_norms].sizes[0]
    assert found[without_norms].distinct[-1] > 0.1
    assert found[without_residuals].distinct[8] < 1e-10


@pytest.mark.parametrize("start", [1.0, LARGER])
@pytest.mark.parametrize("order", [post_norm_block, pre_norm_block, without_norms, without_residuals, without_both])
def test_one_block_learns_the_task_in_every_order(order, start: float) -> None:
    """So where a deep stack does not, it is the depth."""
    assert train_deep(1, order, start, 1e-2, seed=0, steps=150) > 0.9


def test_32_blocks_learn_the_task() -> None:
    assert train_deep(32, pre_norm_block, LARGER, 1e-2, seed=0, steps=150) > 0.9


@pytest.mark.slow
def test_32_blocks_of_2017_learn_the_task() -> None:
    assert train_deep(32, post_norm_block, 1.0, 2e-3, seed=0, steps=600) > 0.9
    assert train_deep(32, without_residuals, 1.0, 1e-3, seed=0, steps=600) < 0.4


def test_training_that_diverges_has_learned_nothing() -> None:
    assert train_deep(12, without_norms, LARGER, 1e-2, seed=0, steps=60) < 0.3


# ------------------------------------------------------------------ stored tables


def test_stored_depths_are_what_the_lesson_says() -> None:
    rows = measured("depth")["rows"]
    found = {(row["blocks"], row["steps"], row["start"], row["order"]): row for row in rows}
    orders = [order.__name__ for order in (*ORDERS, without_norms, without_residuals)]
    lengths = ((1, 150), (8, 150), (8, 600), (32, 600))
    assert list(found) == [(*length, start, order) for length in lengths for start in STARTS for order in orders]
    learned = {key: min(row["accuracies"]) > 0.7 for key, row in found.items()}
    knows_nobody = 0.375
    for (blocks, _, start, order), row in found.items():
        if blocks == 1:
            assert min(row["accuracies"]) > 0.9
            continue
        if order == "without_residuals":
            assert max(row["accuracies"]) < knows_nobody
        if order == "without_norms" and start == "larger":
            assert max(row["accuracies"]) < 0.2
    assert all(learned[key] for key in learned if key[3] == "pre_norm_block" or key[2:] == ("small", "without_norms"))
    assert all(learned[key] for key in learned if key[2:] == ("small", "post_norm_block"))
    assert max(found[8, 150, "small", "without_residuals"]["by_rate"].values()) < knows_nobody
    assert found[1, 150, "small", "without_residuals"]["by_rate"]["0.005"] > 0.9
    slow = found[8, 600, "larger", "post_norm_block"]
    assert sum(accuracy > knows_nobody for accuracy in slow["by_rate"].values()) == 1
    assert [accuracy > 0.85 for accuracy in slow["accuracies"]].count(True) == 2
    assert max(found[32, 600, "larger", "post_norm_block"]["accuracies"]) < knows_nobody
    by_rate = {order: found[32, 600, "small", order]["by_rate"]["0.01"] for order in orders}
    assert by_rate["post_norm_block"] < 0.2 < 0.9 < by_rate["without_norms"]


def test_stored_speed_is_what_the_lesson_says() -> None:
    rows = measured("layers_transformer_block")["rows"]
    settings = {(row["tokens"], row["order"], row["is_causal"]) for row in rows}
    assert settings == set(itertools.product((64, 256, 1024), [order.__name__ for order in ORDERS], (False, True)))
    assert all(row["ours_to_pytorch"] <= 1.1 for row in rows if row["tokens"] <= 256)
