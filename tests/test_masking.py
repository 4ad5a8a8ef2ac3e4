"""Lesson 05: masks, a softmax that obeys them, and the probe, which finds every leak and raises no false alarm."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
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
from tests.helpers import FunctionModule, dtypes, few, generator, gradient, leading, masks, numbers, seeds, sizes

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
    lengths = torch.randint(n_keys + 1, lead, generator=generator(seed))
    mask = padding_mask(lengths, n_keys)
    assert mask.dtype == torch.bool and mask.shape == (*lead, 1, n_keys)
    for index in itertools.product(*(range(n) for n in lead)):
        assert mask[index][0].tolist() == [key < lengths[index] for key in range(n_keys)]


# ------------------------------------------------------------------ the softmax


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
    assert torch.equal(gradient(clean), gradient(dirty))
    assert (gradient(dirty)[~mask] == 0).all() and gradient(dirty).isfinite().all()


def test_masks_broadcast() -> None:
    scores, mask = numbers(0, 2, 3, 4, 5), masks(0, 2, 1, 1, 5)
    assert torch.equal(masked_softmax(scores, mask), masked_softmax(scores, mask.expand(2, 3, 4, 5)))


def test_no_nan_arises_on_the_way() -> None:
    """Anomaly detection also sees NaN that a later step hides."""
    scores = numbers(0, 3, 4).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4, [False, False, False, True]])
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        masked_softmax(scores, mask).square().sum().backward()
    assert (gradient(scores)[1] == 0).all() and (gradient(scores)[0] != 0).any()


# ------------------------------------------------------------------ the layer


def vectors(seed: int, *lead: int, n_queries: int, n_keys: int, d_k: int, d_v: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (n_queries, d_k), (n_keys, d_k), (n_keys, d_v)
    queries, keys, values = (numbers(seed + i, *lead, *shape) for i, shape in enumerate(shapes))
    return queries, keys, values


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_with_and_without_a_mask_it_is_as_exact_as_pytorchs(dtype: torch.dtype, size: float) -> None:
    """Scores of 200 * 200 * 64 are far beyond float16; a mask that hides nothing changes nothing."""
    q, k, v = (size * x.to(dtype) for x in vectors(0, 2, n_queries=5, n_keys=7, d_k=64, d_v=3))
    true = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    pytorchs = (F.scaled_dot_product_attention(q, k, v) - true).abs().max()
    smallest = torch.finfo(dtype).eps * true.abs().max() / 2  # what rounding the result alone may cost
    for mask in (None, torch.ones(5, 7, dtype=torch.bool)):
        outputs, weights = masked_attention(q, k, v, mask)
        assert outputs.dtype == weights.dtype == dtype and weights.isfinite().all()
        assert (outputs - true).abs().max() <= max(2 * pytorchs, 4 * smallest if dtype == torch.float32 else smallest)


def test_where_nothing_is_visible_nothing_is_learned() -> None:
    queries, keys, values = (x.requires_grad_() for x in vectors(0, 2, n_queries=3, n_keys=4, d_k=2, d_v=3))
    mask = masks(1, 2, 3, 4)
    mask[1] = False
    masked_attention(queries, keys, values, mask)[0].square().sum().backward()
    assert all((gradient(x)[1] == 0).all() for x in (queries, keys, values))


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
    x, lengths = numbers(0, 2, 5, 4, dtype=torch.float32), torch.tensor([3, 5])
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
    inputs = numbers(seed + 1, 8, time, 4)  # so many that dropout cannot hide all of an output
    assert not leaks_future(Mix(causal, causal, dropout).train(model_in_training), inputs, seed)
    both = (leaky, causal) if in_training else (causal, leaky)
    assert leaks_future(Mix(*both, dropout).train(model_in_training), inputs, seed)


def over_time(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x.transpose(1, 2)).transpose(1, 2)


LAYERS = {  # name: (does it look ahead?, the layer)
    "batch norm of the features, in training": (True, lambda: FunctionModule(over_time, nn.BatchNorm1d(3))),
    "layer norm of the features": (False, lambda: nn.LayerNorm(3)),
    "layer norm over time": (True, lambda: FunctionModule(over_time, nn.LayerNorm(6))),
    "convolution, as long": (True, lambda: FunctionModule(over_time, nn.Conv1d(3, 4, 3, padding="same"))),
    "convolution, padded in front": (
        False,
        lambda: FunctionModule(lambda layer, x: over_time(layer, F.pad(x, (0, 0, 2, 0))), nn.Conv1d(3, 4, 3)),
    ),
    "GRU": (
        False,
        lambda: FunctionModule(lambda layer, x: layer(x)[0], nn.GRU(3, 4, 2, batch_first=True, dropout=0.3)),
    ),
    "GRU, both directions": (
        True,
        lambda: FunctionModule(lambda layer, x: layer(x)[0], nn.GRU(3, 4, batch_first=True, bidirectional=True)),
    ),
    "attention": (True, lambda: FunctionModule(lambda x: masked_attention(x, x, x)[0])),
    "causal attention": (False, lambda: FunctionModule(lambda x: causal_attention(x, x, x)[0])),
    "causal attention, dropout": (
        False,
        lambda: FunctionModule(lambda d, x: d(causal_attention(x, d(x), x)[0]), nn.Dropout()),
    ),
    "shifted by one": (False, lambda: FunctionModule(lambda x: F.pad(x, (0, 0, 1, -1)))),
    "shifted the other way": (True, lambda: FunctionModule(lambda x: F.pad(x, (0, 0, -1, 1)))),
    "one number a position": (False, lambda: FunctionModule(lambda x: x.square().sum(dim=-1).cumsum(dim=1))),
    "the largest number anywhere": (True, lambda: FunctionModule(lambda x: x.minimum(x.amax(dim=1, keepdim=True) / 2))),
    "numbers without an effect": (False, lambda: FunctionModule(lambda x: (x > 1e9).float())),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_probe_on_real_layers(name: str) -> None:
    looks_ahead, make = LAYERS[name]
    torch.manual_seed(0)
    layer = make()
    for seed in range(5):
        assert leaks_future(layer, numbers(seed, 4, 6, 3, dtype=torch.float32), seed) is looks_ahead


def test_the_probe_leaves_no_traces() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(4, 2)).train()
    model[1].eval()
    inputs = numbers(0, 2, 6, 3, dtype=torch.float32).requires_grad_()
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
    assert not leaks_future(FunctionModule(lambda x: x.mul_(2)), inputs)
    assert torch.equal(inputs, before)


def test_nan_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="NaN"):
        leaks_future(FunctionModule(lambda x: x * torch.nan), numbers(0, 2, 5, 3))


@few
@given(st.integers(1, 5), st.integers(1, 6), st.integers(2, 9), seeds)
def test_other_ids_are_other_and_allowed(batch: int, time: int, n_ids: int, seed: int) -> None:
    ids = torch.randint(n_ids, (batch, time), generator=generator(seed))
    ids[0, 0] = n_ids - 1
    others = other_inputs(ids, generator(seed))
    assert (others != ids).all() and others.min() >= 0 and others.max() < n_ids and others.dtype == ids.dtype
    with pytest.raises(ValueError, match="no other id"):
        other_inputs(torch.zeros_like(ids), generator(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_numbers_are_other(dtype: torch.dtype) -> None:
    x = numbers(0, 2, 5, 3, dtype=dtype)
    others = other_inputs(x, generator(0))
    assert others.dtype == dtype and (others != x).any(dim=-1).all()


# ------------------------------------------------------------------ the model of text


def test_windows_are_pieces_and_what_follows() -> None:
    text = torch.arange(40)
    batches = random_windows(text, time=7, batch_size=200, generator=generator(0))
    given_ones, following = next(batches)
    assert given_ones.shape == following.shape == (200, 7)
    assert torch.equal(following, given_ones + 1)
    assert given_ones.min() == 0 and following.max() == 39, "the first and the last character are used"
    assert not torch.equal(given_ones, next(batches)[0])


def small_model(attend, dropout: float = 0.1) -> CharacterModel:
    torch.manual_seed(0)
    return CharacterModel(11, attend, d_model=6, longest=9, dropout=dropout)


def test_model_is_attention_between_tables_and_two_layers() -> None:
    model, tokens = small_model(causal_attention).eval(), torch.randint(11, (3, 8), generator=generator(0))
    x = model.characters.weight[tokens] + model.positions.table.weight[:8]
    context, weights = causal_attention(model.to_queries(x), model.to_keys(x), model.to_values(x))
    torch.testing.assert_close(model.look(tokens), (x, context, weights))
    torch.testing.assert_close(model(tokens), model.output(model.hidden(torch.cat([x, context], -1)).relu()))
    with pytest.raises(ValueError, match="9 positions"):
        model(torch.zeros(1, 10, dtype=torch.long))


def test_honest_loss_of_a_causal_model_is_its_usual_loss() -> None:
    batch = next(random_windows(torch.randint(11, (200,), generator=generator(0)), 9, 20, generator(1)))
    causal, open_ = small_model(causal_attention).eval(), small_model(scaled_dot_product_attention).eval()
    for model, equal in ((causal, True), (open_, False)):
        honest = torch.tensor(honest_losses(model, batch)).mean()
        assert len(honest_losses(model, batch)) == 9
        assert torch.isclose(honest, next_character_loss(model, batch), atol=1e-5) == equal


def test_continue_text_draws_from_the_last_window() -> None:
    seen = []

    def one_more(tokens: Tensor) -> Tensor:
        """Sure that the next id is the last one plus one."""
        seen.append(tokens.shape[1])
        return 100.0 * F.one_hot((tokens + 1) % 11, 11)

    written = continue_text(FunctionModule(one_more), torch.tensor([3, 4]), 5, generator(0), window=4)
    assert written.tolist() == [3, 4, 5, 6, 7, 8, 9] and seen == [2, 3, 4, 4, 4]
    first, second = (
        continue_text(small_model(causal_attention).eval(), torch.tensor([3]), 6, generator(s), 8) for s in (0, 0)
    )
    assert torch.equal(first, second)
