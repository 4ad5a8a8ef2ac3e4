"""Lesson 12: equal to PyTorch's parts, experts that lose no token unseen, and the stored measurements."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_utils.benchmarks import measured
from course_utils.lessons.language_model import repeats
from course_utils.lessons.multi_head import attend, tables
from course_utils.lessons.pre_norm import (
    DEPTH,
    MixtureOfExperts,
    OperationCounter,
    RMSNorm,
    SwiGLU,
    attend_normed,
    balance_loss,
    balanced_loss,
    block_gradients,
    draw_as_in_the_theorem,
    effective_experts,
    gelu_mlp,
    learning_rates,
    moved_by_one_step,
    post_stack,
    pre_stack,
    rms_norm,
    route_top_k,
    skew,
    small_model,
    with_start,
)
from course_utils.lessons.transformer_block import (
    LayerNorm,
    ProductCounter,
    TransformerBlock,
    copy_block_weights,
    layer_norm,
    pre_norm_block,
)
from course_utils.training import train
from tests.helpers import few, generator, gradient, leading, numbers, seeds, sizes

# ------------------------------------------------------------------ the norm in the branch


@few
@given(seeds, st.sampled_from([torch.float64, torch.float32]))
def test_block_is_pytorchs(seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=True).to(dtype)
    for norm in (theirs.norm1, theirs.norm2):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    ours = TransformerBlock(8, 2, 12, order=pre_norm_block).to(dtype)
    copy_block_weights(theirs, ours)
    x = numbers(seed, 2, 5, 8, dtype=dtype)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 3])
def test_only_the_pre_norm_stack_has_a_last_norm(depth: int) -> None:
    """The mistake of a missing last norm: vectors that grow with the depth would reach the answers."""
    people = next(tables(4, generator(0)))
    sizes = []
    for stack in (post_stack, pre_stack):
        model = stack(depth)
        layers = list(model.attention.children())
        assert len([x for x in layers if isinstance(x, TransformerBlock)]) == depth
        assert isinstance(layers[-1], LayerNorm) == (stack is pre_stack)
        sizes.append(model.attention(model.vectors(people)).square().mean().item())
    assert sizes == pytest.approx([1, 1], abs=1e-3)


def test_start_of_the_theorem() -> None:
    torch.manual_seed(0)
    model = pre_stack(2)
    before = model.letters.weight.clone()
    draw_as_in_the_theorem(model, entry=0.5)
    assert torch.equal(model.letters.weight, 0.5 * before)
    layers = list(model.attention.children())
    assert isinstance(layers[0], TransformerBlock)
    assert layers[0].attention.output.bias.count_nonzero() == 0
    up = dict(layers[0].named_parameters())["mlp.up.weight"]
    assert up.abs().max() <= (6 / (32 + 64)) ** 0.5
    lengths = block_gradients(model, next(tables(4, generator(0))))
    assert len(lengths) == 2 and min(lengths) > 0


def test_one_step_moves_the_output_and_more_at_a_higher_rate() -> None:
    def moved(rate: float) -> float:
        torch.manual_seed(0)
        return moved_by_one_step(pre_stack(2), next(tables(8, generator(0))), rate)

    assert 0 < moved(1e-4) < moved(1e-3)


@pytest.mark.parametrize("warmup", [0.0, 0.5])
def test_learning_rates_are_those_of_train(warmup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    step = torch.optim.Adam.step

    def watched(self: torch.optim.Adam, *args: object) -> object:
        seen.append(self.param_groups[0]["lr"])
        return step(self)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    layer = nn.Linear(1, 1)
    batches = (torch.ones(1, 1) for _ in range(10))
    train(layer, batches, lambda m, x: m(x).square().sum(), steps=10, learning_rate=0.1, warmup=warmup)
    assert seen == pytest.approx(learning_rates(warmup, 0.1, 10))


# ------------------------------------------------------------------ norm and gates


@few
@given(leading, sizes, seeds, st.sampled_from([1e-5, 1e-2]))
def test_rms_norm_is_pytorchs(lead, d_model, seed, eps) -> None:
    x, gain = numbers(seed, *lead, d_model), numbers(seed + 1, d_model)
    torch.testing.assert_close(rms_norm(x, gain, eps), F.rms_norm(x, (d_model,), gain, eps))
    module = RMSNorm(d_model, eps).double()
    with torch.no_grad():
        module.gain.copy_(gain)
    assert torch.equal(module(x), rms_norm(x, gain, eps))


def test_four_operations_instead_of_seven() -> None:
    x, ones = torch.ones(10, 64), torch.ones(64)
    found = []
    for norm in (lambda: rms_norm(x, ones), lambda: layer_norm(x, ones, ones)):
        with OperationCounter() as counter:
            norm()
        found.append(sum(n for _, n in counter.steps) // x.numel())
    assert found == [4, 7]


def test_swiglu_of_two_thirds_has_as_many_parameters() -> None:
    def count(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert count(SwiGLU(64, 171)) == pytest.approx(count(gelu_mlp(64, 256)), rel=0.01)
    assert count(SwiGLU(64, 256)) > 1.45 * count(gelu_mlp(64, 256))


# ------------------------------------------------------------------ experts


def mixture(seed: int = 0, **options: int) -> MixtureOfExperts:
    torch.manual_seed(seed)
    return MixtureOfExperts(6, 4, **{"n_experts": 5, "k": 2, **options}).double()


@few
@given(leading, seeds, st.integers(1, 5))
def test_mixture_is_the_sum_of_gates_times_experts(lead, seed, k) -> None:
    layer, x = mixture(seed, k=k), numbers(seed, *lead, 3, 6)
    gates, chosen = route_top_k(layer.router(x), k)
    every = torch.stack([expert(x) for expert in layer.experts], dim=-2)
    wanted = (gates.unsqueeze(-1) * every.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, 6))).sum(dim=-2)
    torch.testing.assert_close(layer(x), wanted)
    assert layer.dropped == 0 and layer.load.sum() == chosen.numel()


@few
@given(seeds, st.integers(0, 12))
def test_what_is_dropped_is_counted(seed: int, capacity: int) -> None:
    layer, x = mixture(seed, capacity=capacity), numbers(seed, 11, 6)
    outputs = layer(x)
    assert layer.load.clamp(max=capacity).sum() + layer.dropped == 22 == layer.load.sum()
    free = mixture(seed)
    same = (outputs - free(x)).abs().amax(dim=-1) < 1e-12
    assert (~same).sum() <= layer.dropped and same.all() == (layer.dropped == 0)


def test_experts_see_no_later_token() -> None:
    """But for the last bit: with other numbers of tokens, matrix products may round in another way."""
    torch.manual_seed(0)
    model = small_model(8, 4, 7, RMSNorm, MixtureOfExperts).double()
    tokens = torch.randint(9, (4, 7))
    other = torch.cat([tokens[:, :4], (tokens[:, 4:] + 1) % 9], dim=1)
    torch.testing.assert_close(model(tokens)[:, :4], model(other)[:, :4], rtol=0, atol=1e-13)
    assert not torch.allclose(model(tokens)[:, 4:], model(other)[:, 4:], rtol=0, atol=1e-3)


def test_the_first_tokens_keep_their_places() -> None:
    layer = mixture(capacity=3)
    with torch.no_grad():
        layer.router.weight.zero_()
        layer.router.bias.copy_(torch.tensor([2.0, 1, 0, 0, 0]))
    outputs = layer(numbers(0, 8, 6))
    assert (outputs != 0).any(dim=-1).tolist() == 3 * [True] + 5 * [False]
    assert layer.dropped == 10


@pytest.mark.parametrize(("k", "reached"), [(1, False), (2, True), (5, True)])
def test_gradients_reach_the_router_through_the_gates(k: int, reached: bool) -> None:
    layer = mixture(k=k)
    layer(numbers(0, 7, 6)).square().sum().backward()
    assert (gradient(layer.router.weight).abs().max() > 1e-6) == reached


def test_gradients_reach_the_router_through_the_balance_loss() -> None:
    layer = mixture(k=1)
    skew(layer)
    layer(numbers(0, 7, 6))
    layer.balance.backward()
    assert gradient(layer.router.bias)[:2].max() > 0 > gradient(layer.router.bias)[2:].max()


def test_balance_loss() -> None:
    probabilities = torch.tensor([[0.7, 0.3]])
    assert balance_loss(probabilities.log(), torch.tensor([3, 1])).item() == pytest.approx(1.2)
    assert balance_loss(torch.zeros(4, 8), torch.arange(8)).item() == pytest.approx(1)
    assert balance_loss(torch.tensor([[50.0, 0, 0]]), torch.tensor([9, 0, 0])).item() == pytest.approx(3)
    assert effective_experts(torch.tensor([5, 5, 0, 0])) == pytest.approx(2)
    assert effective_experts(torch.tensor([7, 7, 7, 7])) == pytest.approx(4)


def test_experts_take_more_parameters_and_no_more_work() -> None:
    x, flops, parameters = torch.randn(16, 64), [], []
    for layer in (gelu_mlp(64, 256), MixtureOfExperts(64, 128)):
        with torch.no_grad(), ProductCounter(layer) as counter:
            layer(x)
        flops.append(sum(product.flops for product in counter.products))
        parameters.append(sum(p.numel() for p in layer.parameters()))
    assert flops[1] - flops[0] == 2 * 16 * 64 * 8  # the router
    assert parameters[1] > 4 * parameters[0]


def test_balanced_loss_adds_all_mixtures() -> None:
    torch.manual_seed(0)
    model, tokens = small_model(8, 4, 8, RMSNorm, MixtureOfExperts), torch.randint(257, (2, 8))
    plain, weighted = balanced_loss(model, tokens, 0.0), balanced_loss(model, tokens, 0.5)
    mixtures = [m for m in model.modules() if isinstance(m, MixtureOfExperts)]
    total = torch.stack([m.balance for m in mixtures]).sum()
    assert len(mixtures) == 2 and weighted.item() == pytest.approx((plain + 0.5 * total).item())


# ------------------------------------------------------------------ inside attention


@pytest.mark.parametrize("factor", [0.5, 1.0, 1e3])
def test_normed_queries_and_keys_have_no_length(factor: float) -> None:
    q, k, v = (numbers(seed, 2, 5, 6) for seed in range(3))
    q_1, k_1 = (x / x.square().mean(dim=-1, keepdim=True).sqrt() for x in (q, k))
    torch.testing.assert_close(
        attend_normed(factor * q, k, v, is_causal=True), attend(q_1, k_1, v, is_causal=True), rtol=1e-3, atol=1e-3
    )


def test_start_token() -> None:
    batch = next(repeats(20, generator(0)))
    started = with_start(batch)
    assert started.tokens.shape == (20, 34) and (started.tokens[:, 0] == 0).all()
    assert started.tokens[:, 1:].min() >= 1 and started.tokens.max() <= 23


# ------------------------------------------------------------------ stored


def test_stored_layers_are_not_slower_than_pytorchs() -> None:
    rows = measured("layers_pre_norm")["rows"]
    assert {row["part"] for row in rows} == {"RMSNorm", "SwiGLU"}
    assert all(row["ours_to_pytorch"] <= 1.1 for row in rows)


def test_stored_trainings() -> None:
    rows = measured("warm_up")["rows"]
    assert {row["blocks"] for row in rows} == {2, 6, DEPTH} and all(len(row["accuracies"]) == 3 for row in rows)
    assert len({row["variant"] for row in measured("variants")["rows"]}) == 5
