"""Lesson 05: masks, a softmax that obeys them, and the probe, which finds every leak and raises no false alarm."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.lessons.attention_layer import scaled_dot_product_attention
from course_utils.lessons.masking import (
    CharacterModel,
    causal_attention,
    causal_mask,
    continue_text,
    honest_losses,
    leaks_future,
    masked_attention,
    masked_softmax,
    next_character_loss,
    other_inputs,
    padding_mask,
    random_windows,
    require_fit,
)

seeds = st.integers(0, 2**16)
sizes = st.integers(1, 6)
leading = st.lists(st.integers(1, 3), max_size=2).map(tuple)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])
few = settings(max_examples=40, deadline=None)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64).to(dtype)


def masks(seed: int, *shape: int, share: float = 0.6) -> Tensor:
    """Random masks; some rows are False everywhere."""
    return torch.rand(*shape, generator=seeded(seed)) < share


# ------------------------------------------------------------------ the masks


@few
@given(sizes, sizes)
def test_causal_mask_is_a_loop_over_positions(n_queries: int, n_keys: int) -> None:
    mask = causal_mask(n_queries, n_keys)
    assert mask.dtype == torch.bool and mask.shape == (n_queries, n_keys)
    for query, key in itertools.product(range(n_queries), range(n_keys)):
        assert mask[query, key] == (key <= n_keys - n_queries + query)


@pytest.mark.parametrize("n_queries", range(1, 7))
def test_queries_are_the_last_positions(n_queries: int) -> None:
    assert torch.equal(causal_mask(n_queries, 6), causal_mask(6, 6)[6 - n_queries :])


@few
@given(leading, st.integers(1, 6), seeds)
def test_padding_mask_is_a_loop_over_sequences(lead: tuple[int, ...], n_keys: int, seed: int) -> None:
    lengths = torch.randint(n_keys + 1, lead, generator=seeded(seed))
    mask = padding_mask(lengths, n_keys)
    assert mask.dtype == torch.bool and mask.shape == (*lead, 1, n_keys)
    for index in itertools.product(*(range(n) for n in lead)):
        assert mask[index][0].tolist() == [key < lengths[index] for key in range(n_keys)]


# ------------------------------------------------------------------ the softmax


@few
@given(leading, sizes, sizes, dtypes, seeds)
def test_masked_softmax_is_a_softmax_over_what_is_visible(
    lead: tuple[int, ...], n_queries: int, n_keys: int, dtype: torch.dtype, seed: int
) -> None:
    scores, mask = numbers(seed, *lead, n_queries, n_keys, dtype=dtype) * 5, masks(seed, *lead, n_queries, n_keys)
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype and weights.shape == scores.shape
    rows = zip(*(x.reshape(-1, n_keys) for x in (weights, scores, mask)), strict=True)
    for row, values, visible in rows:
        assert (row[~visible] == 0).all()
        exact = torch.softmax(values[visible].double(), dim=-1)
        pytorchs_error = (torch.softmax(values[visible], dim=-1).double() - exact).norm()
        assert (row[visible].double() - exact).norm() <= 2 * pytorchs_error + 4 * torch.finfo(dtype).eps


@few
@given(sizes, sizes, dtypes, st.sampled_from([torch.nan, torch.inf, -torch.inf, 6e4]), seeds)
def test_hidden_scores_matter_to_nothing(
    n_queries: int, n_keys: int, dtype: torch.dtype, rubbish: float, seed: int
) -> None:
    clean, mask = numbers(seed, 2, n_queries, n_keys, dtype=dtype), masks(seed, 2, n_queries, n_keys)
    dirty = clean.masked_fill(~mask, rubbish).requires_grad_()
    clean.requires_grad_()
    for scores in (clean, dirty):
        (masked_softmax(scores, mask) * numbers(seed + 1, n_keys, dtype=dtype)).sum().backward()
    assert torch.equal(masked_softmax(clean, mask), masked_softmax(dirty, mask))
    assert torch.equal(clean.grad, dirty.grad)
    assert (dirty.grad[~mask] == 0).all() and dirty.grad.isfinite().all()


def test_masks_broadcast() -> None:
    scores, mask = numbers(0, 2, 3, 4, 5), masks(0, 2, 1, 1, 5)
    assert torch.equal(masked_softmax(scores, mask), masked_softmax(scores, mask.expand(2, 3, 4, 5)))


def test_no_nan_arises_on_the_way() -> None:
    """Anomaly detection also sees NaN that a later step hides."""
    scores = numbers(0, 3, 4).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4, [False, False, False, True]])
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        masked_softmax(scores, mask).square().sum().backward()
    assert (scores.grad[1] == 0).all() and (scores.grad[0] != 0).any()


def test_gradient_of_the_softmax() -> None:
    mask = masks(1, 2, 3, 5)
    mask[0, 1] = False
    scores = numbers(0, 2, 3, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, mask), scores)
    assert torch.autograd.gradgradcheck(lambda s: masked_softmax(s, mask), scores)


# ------------------------------------------------------------------ the layer


def vectors(
    seed: int, *lead: int, n_queries: int, n_keys: int, d_k: int, d_v: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (n_queries, d_k), (n_keys, d_k), (n_keys, d_v)
    return tuple(numbers(seed + i, *lead, *shape, dtype=dtype) for i, shape in enumerate(shapes))


@few
@given(leading, sizes, sizes, sizes, sizes, dtypes, seeds)
def test_masked_attention_is_pytorchs(
    lead: tuple[int, ...], n_queries: int, n_keys: int, d_k: int, d_v: int, dtype: torch.dtype, seed: int
) -> None:
    inputs = vectors(seed, *lead, n_queries=n_queries, n_keys=n_keys, d_k=d_k, d_v=d_v, dtype=dtype)
    mask = masks(seed, *lead, n_queries, n_keys)
    outputs, weights = masked_attention(*inputs, mask)
    assert outputs.dtype == weights.dtype == dtype
    exact = F.scaled_dot_product_attention(*(x.double() for x in inputs), attn_mask=mask)
    pytorchs_error = (F.scaled_dot_product_attention(*inputs, attn_mask=mask).double() - exact).norm()
    rounding = 4 * torch.finfo(dtype).eps * inputs[2].double().norm()  # the error of PyTorch may be 0 by luck
    assert (outputs.double() - exact).norm() <= 2 * pytorchs_error + rounding
    nothing = ~mask.any(dim=-1)
    assert (outputs[nothing] == 0).all() and (weights[nothing] == 0).all() and (weights[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3, 40, 50), (4, 4, 33, 64)])
def test_error_is_at_most_twice_pytorchs(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    """At these sizes luck plays no part: nothing is added to the bound."""
    *lead, n_queries, n_keys = shape
    inputs = vectors(0, *lead, n_queries=n_queries, n_keys=n_keys, d_k=16, d_v=24, dtype=dtype)
    mask = masks(1, *lead, n_queries, n_keys)
    exact = F.scaled_dot_product_attention(*(x.double() for x in inputs), attn_mask=mask)
    ours, pytorchs = masked_attention(*inputs, mask)[0], F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    assert (ours.double() - exact).norm() <= 2 * (pytorchs.double() - exact).norm()


@few
@given(st.integers(1, 8), sizes, seeds)
def test_causal_attention_is_pytorchs_when_square(n: int, d: int, seed: int) -> None:
    inputs = vectors(seed, 2, n_queries=n, n_keys=n, d_k=d, d_v=d + 1)
    torch.testing.assert_close(causal_attention(*inputs)[0], F.scaled_dot_product_attention(*inputs, is_causal=True))


def test_causal_attention_of_the_last_queries_is_that_of_all() -> None:
    queries, keys, values = vectors(0, 2, n_queries=6, n_keys=6, d_k=4, d_v=3)
    outputs, weights = causal_attention(queries, keys, values)
    for n in range(1, 7):
        last_outputs, last_weights = causal_attention(queries[:, -n:], keys, values)
        torch.testing.assert_close(last_outputs, outputs[:, -n:])
        torch.testing.assert_close(last_weights, weights[:, -n:])


def test_without_a_mask_it_is_lesson_03() -> None:
    inputs = vectors(0, 2, n_queries=5, n_keys=7, d_k=4, d_v=3)
    for ours, lesson_03s in zip(masked_attention(*inputs), scaled_dot_product_attention(*inputs), strict=True):
        assert torch.equal(ours, lesson_03s)


def test_gradient_of_the_layer_with_fully_masked_rows() -> None:
    inputs = vectors(0, 2, n_queries=3, n_keys=4, d_k=2, d_v=3, dtype=torch.float64)
    mask = masks(1, 2, 3, 4)
    mask[0, 1], mask[1] = False, False
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda q, k, v: masked_attention(q, k, v, mask), leaves)
    masked_attention(*leaves, mask)[0].square().sum().backward()
    assert all((x.grad[1] == 0).all() for x in leaves), "a batch row in which nothing is visible learns nothing"


@pytest.mark.parametrize("shape", [(2, 1, 7), (5,), (3, 5, 7), (7, 5), (2, 3, 5, 6), (1, 2, 3, 5, 7)])
def test_a_mask_that_could_be_misread_is_refused(shape: tuple[int, ...]) -> None:
    """Scores are (2, 3, 5, 7): (2, 1, 7) has its batch where the heads are, and is refused whatever the sizes."""
    inputs = vectors(0, 2, 3, n_queries=5, n_keys=7, d_k=4, d_v=4)
    with pytest.raises(ValueError, match=r"mask has shape .* scores of shape \(2, 3, 5, 7\) need \(5, 7\), or 4"):
        masked_attention(*inputs, torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (2, 3, 5, 7), (2, 1, 1, 7), (1, 3, 5, 1)])
def test_masks_that_fit(shape: tuple[int, ...]) -> None:
    inputs, mask = vectors(0, 2, 3, n_queries=5, n_keys=7, d_k=4, d_v=4), masks(0, *shape)
    for got, expected in zip(
        masked_attention(*inputs, mask), masked_attention(*inputs, mask.expand(2, 3, 5, 7)), strict=True
    ):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="mask must be boolean"):
        require_fit(torch.ones(5, 7, dtype=dtype), torch.Size([5, 7]))


def test_values_that_do_not_fit_are_refused() -> None:
    queries, keys, values = vectors(0, 2, n_queries=5, n_keys=7, d_k=4, d_v=4)
    with pytest.raises(ValueError, match=r"keys \(2, 7, 4\) and values \(1, 7, 4\)"):
        masked_attention(queries, keys, values[:1], causal_mask(5, 7))


# ------------------------------------------------------------------ PyTorch's conventions, as the lesson tells them


def test_multihead_attention_and_encoder_ignore_what_is_true() -> None:
    torch.manual_seed(0)
    x, lengths = numbers(0, 2, 5, 4), torch.tensor([3, 5])
    padding, causal = padding_mask(lengths, 5), causal_mask(5, 5)
    layer = nn.MultiheadAttention(4, num_heads=1, bias=False, batch_first=True)
    q, k, v = (x @ w.T for w in layer.in_proj_weight.chunk(3))
    ours = masked_attention(q, k, v, padding & causal)[0] @ layer.out_proj.weight.T
    torch.testing.assert_close(layer(x, x, x, attn_mask=~causal, key_padding_mask=~padding.squeeze(1))[0], ours)

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 1, 8, batch_first=True), 2, enable_nested_tensor=False
    )
    outputs = encoder.eval()(x, src_key_padding_mask=~padding.squeeze(1))
    torch.testing.assert_close(outputs[:1, :3], encoder(x[:1, :3]))


def test_the_switch_is_aligned_to_the_start() -> None:
    queries, keys, values = vectors(0, 2, n_queries=2, n_keys=5, d_k=4, d_v=3)
    top_left = torch.ones(2, 5, dtype=torch.bool).tril()
    expected = masked_attention(queries, keys, values, top_left)[0]
    torch.testing.assert_close(F.scaled_dot_product_attention(queries, keys, values, is_causal=True), expected)
    assert not torch.equal(top_left, causal_mask(2, 5))


# ------------------------------------------------------------------ the probe


class Mix(nn.Module):
    """Output i is the sum over the inputs j of mix[i, j] * input j; a second matrix for evaluation mode."""

    def __init__(self, training: Tensor, evaluation: Tensor, dropout: float = 0.0) -> None:
        super().__init__()
        self.in_training, self.in_evaluation = training, evaluation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout((self.in_training if self.training else self.in_evaluation) @ x)


@few
@given(st.integers(2, 7), st.booleans(), st.sampled_from([0.0, 0.4]), st.booleans(), seeds, st.data())
def test_the_probe_finds_any_single_leak(
    time: int, in_training: bool, dropout: float, model_in_training: bool, seed: int, data: st.DataObject
) -> None:
    causal = numbers(seed, time, time).tril()
    leaky = causal.clone()
    output = data.draw(st.integers(0, time - 2))
    leaky[output, data.draw(st.integers(output + 1, time - 1))] = 1e-5
    inputs = numbers(seed + 1, 3, time, 2)
    assert not leaks_future(Mix(causal, causal, dropout).train(model_in_training), inputs, seed)
    both = (leaky, causal) if in_training else (causal, leaky)
    assert leaks_future(Mix(*both, dropout).train(model_in_training), inputs, seed)


class Function(nn.Module):
    """Any function, with the parts that it needs."""

    def __init__(self, function, **parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleDict(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, **self.parts)


def over_time(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(x.transpose(1, 2)).transpose(1, 2)


LAYERS = {  # name: (does it look ahead?, the layer)
    "batch norm of the features, in training": (True, lambda: Function(over_time, layer=nn.BatchNorm1d(3))),
    "layer norm of the features": (False, lambda: nn.LayerNorm(3)),
    "layer norm over time": (True, lambda: Function(over_time, layer=nn.LayerNorm(6))),
    "convolution, as long": (True, lambda: Function(over_time, layer=nn.Conv1d(3, 4, 3, padding="same"))),
    "convolution, padded in front": (
        False,
        lambda: Function(lambda x, layer: over_time(F.pad(x, (0, 0, 2, 0)), layer), layer=nn.Conv1d(3, 4, 3)),
    ),
    "GRU": (
        False,
        lambda: Function(lambda x, layer: layer(x)[0], layer=nn.GRU(3, 4, 2, batch_first=True, dropout=0.3)),
    ),
    "GRU, both directions": (
        True,
        lambda: Function(lambda x, layer: layer(x)[0], layer=nn.GRU(3, 4, batch_first=True, bidirectional=True)),
    ),
    "attention": (True, lambda: Function(lambda x: masked_attention(x, x, x)[0])),
    "causal attention": (False, lambda: Function(lambda x: causal_attention(x, x, x)[0])),
    "causal attention, dropout": (
        False,
        lambda: Function(lambda x, d: d(causal_attention(x, d(x), x)[0]), d=nn.Dropout()),
    ),
    "shifted by one": (False, lambda: Function(lambda x: F.pad(x, (0, 0, 1, -1)))),
    "shifted the other way": (True, lambda: Function(lambda x: F.pad(x, (0, 0, -1, 1)))),
    "one number a position": (False, lambda: Function(lambda x: x.square().sum(dim=-1).cumsum(dim=1))),
    "the largest number anywhere": (True, lambda: Function(lambda x: x.minimum(x.amax(dim=1, keepdim=True) / 2))),
    "numbers without an effect": (False, lambda: Function(lambda x: (x > 1e9).float())),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_probe_on_real_layers(name: str) -> None:
    looks_ahead, make = LAYERS[name]
    torch.manual_seed(0)
    layer = make()
    for seed in range(5):
        assert leaks_future(layer, numbers(seed, 4, 6, 3), seed) is looks_ahead


def test_the_probe_leaves_no_traces() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(4, 2)).train()
    model[1].eval()
    inputs = numbers(0, 2, 6, 3).requires_grad_()
    state, modes = {k: v.clone() for k, v in model.state_dict().items()}, [m.training for m in model.modules()]
    inputs_before, random_before = inputs.detach().clone(), torch.random.get_rng_state()
    leaks_future(model, inputs)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(inputs, inputs_before) and inputs.grad is None
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), random_before)


def test_a_model_that_writes_into_its_input_is_judged_all_the_same() -> None:
    inputs = numbers(0, 2, 5, 3)
    before = inputs.clone()
    assert not leaks_future(Function(lambda x: x.mul_(2)), inputs)
    assert torch.equal(inputs, before)


def test_nan_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="NaN"):
        leaks_future(Function(lambda x: x / 0 * 0), numbers(0, 2, 5, 3))


@few
@given(st.integers(1, 5), st.integers(1, 6), st.integers(2, 9), seeds)
def test_other_ids_are_other_and_allowed(batch: int, time: int, n_ids: int, seed: int) -> None:
    ids = torch.randint(n_ids, (batch, time), generator=seeded(seed))
    ids[0, 0] = n_ids - 1
    others = other_inputs(ids, seeded(seed))
    assert (others != ids).all() and others.min() >= 0 and others.max() < n_ids and others.dtype == ids.dtype
    with pytest.raises(ValueError, match="no other id"):
        other_inputs(torch.zeros_like(ids), seeded(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_numbers_are_other(dtype: torch.dtype) -> None:
    x = numbers(0, 2, 5, 3, dtype=dtype)
    others = other_inputs(x, seeded(0))
    assert others.dtype == dtype and (others != x).any(dim=-1).all()


# ------------------------------------------------------------------ the model of text


def test_windows_are_pieces_and_what_follows() -> None:
    text = torch.arange(40)
    batches = random_windows(text, time=7, batch_size=200, generator=seeded(0))
    given_ones, following = next(batches)
    assert given_ones.shape == following.shape == (200, 7)
    assert torch.equal(following, given_ones + 1)
    assert given_ones.min() == 0 and following.max() == 39, "the first and the last character are used"
    assert not torch.equal(given_ones, next(batches)[0])


def small_model(attend, dropout: float = 0.1) -> CharacterModel:
    torch.manual_seed(0)
    return CharacterModel(11, attend, d_model=6, longest=9, dropout=dropout)


def test_model_is_attention_between_tables_and_two_layers() -> None:
    model, tokens = small_model(causal_attention).eval(), torch.randint(11, (3, 8), generator=seeded(0))
    x = model.characters.weight[tokens] + model.positions.table.weight[:8]
    context, weights = causal_attention(model.to_queries(x), model.to_keys(x), model.to_values(x))
    torch.testing.assert_close(model.look(tokens), (x, context, weights))
    torch.testing.assert_close(model(tokens), model.output(model.hidden(torch.cat([x, context], -1)).relu()))
    with pytest.raises(ValueError, match="9 positions"):
        model(torch.zeros(1, 10, dtype=torch.long))


def test_honest_loss_of_a_causal_model_is_its_usual_loss() -> None:
    batch = next(random_windows(torch.randint(11, (200,), generator=seeded(0)), 9, 20, seeded(1)))
    causal, open_ = small_model(causal_attention).eval(), small_model(scaled_dot_product_attention).eval()
    for model, equal in ((causal, True), (open_, False)):
        honest = torch.tensor(honest_losses(model, batch)).mean()
        assert len(honest_losses(model, batch)) == 9
        assert torch.isclose(honest, next_character_loss(model, batch), atol=1e-5) == equal


def test_continue_text_draws_from_the_last_window() -> None:
    seen = []

    class Counts(nn.Module):
        """Sure that the next id is the last one plus one."""

        def forward(self, tokens: Tensor) -> Tensor:
            seen.append(tokens.shape[1])
            return 100.0 * F.one_hot((tokens + 1) % 11, 11)

    written = continue_text(Counts(), torch.tensor([3, 4]), 5, seeded(0), window=4)
    assert written.tolist() == [3, 4, 5, 6, 7, 8, 9] and seen == [2, 3, 4, 4, 4]
    first, second = (
        continue_text(small_model(causal_attention).eval(), torch.tensor([3]), 6, seeded(s), 8) for s in (0, 0)
    )
    assert torch.equal(first, second)
