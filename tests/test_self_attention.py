"""Lesson 04: self-attention and its symmetry, sinusoidal and rotary positions, and the task about order."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.lessons import self_attention as lesson
from course_utils.lessons.attention_layer import cross_attention
from course_utils.lessons.self_attention import (
    ALPHABET,
    LearnedPositions,
    OrderModel,
    answers_by_place,
    apply_rotary,
    apply_rotary_half_split,
    half_split_order,
    influence,
    order_accuracy,
    order_batch,
    order_loss,
    permute_tokens,
    read_tokens,
    rotary_self_attention,
    self_attention,
    shift_matrix,
    sinusoidal_encoding,
    train_order_model,
)
from tests.helpers import dtypes, few, generator, leading, numbers, seeds, sizes


def matrices(seed: int, d_in: int, d_k: int, d_out: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = [(d_in, d_k), (d_in, d_k), (d_in, d_out)]
    return [numbers(seed + i, *shape, dtype=dtype) / d_in**0.5 for i, shape in enumerate(shapes, start=1)]


# ------------------------------------------------------------------ self-attention


def test_self_attention_is_cross_attention_with_itself() -> None:
    x, weights = numbers(0, 2, 5, 4), matrices(0, 4, 3, 6)
    for got, expected in zip(self_attention(x, *weights), cross_attention(x, x, *weights), strict=True):
        assert torch.equal(got, expected)


# ------------------------------------------------------------------ the order of the tokens


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_what_is_no_order_is_refused(order: list[int]) -> None:
    plain = getattr(permute_tokens, "__wrapped__", permute_tokens)
    with pytest.raises(ValueError, match=r"each of 0 to 2 once"):
        plain(torch.ones(3, 2), torch.tensor(order))


@few
@given(leading, sizes, sizes, dtypes, seeds)
def test_self_attention_is_equivariant(
    lead: tuple[int, ...], tokens: int, d_in: int, dtype: torch.dtype, seed: int
) -> None:
    x, weights = numbers(seed, *lead, tokens, d_in, dtype=dtype), matrices(seed, d_in, 3, 2, dtype)
    order = torch.randperm(tokens, generator=generator(seed))
    outputs, attention = self_attention(x, *weights)
    permuted, attention_permuted = self_attention(permute_tokens(x, order), *weights)
    # Sums in another order round in another way.
    close = {"rtol": 16 * torch.finfo(dtype).eps, "atol": 16 * torch.finfo(dtype).eps * (1 + x.abs().max().item())}
    torch.testing.assert_close(permuted, permute_tokens(outputs, order), **close)
    torch.testing.assert_close(attention_permuted, permute_tokens(attention, order)[..., order], **close)


def test_positions_break_the_symmetry() -> None:
    x, weights, order = numbers(0, 4, 6), matrices(0, 6, 4, 5), torch.tensor([2, 0, 3, 1])
    shifts = [
        lambda y: self_attention(y + sinusoidal_encoding(4, 6), *weights)[0],
        lambda y: self_attention(y + LearnedPositions(9, 6)(4).detach(), *weights)[0],
        lambda y: rotary_self_attention(y, *weights)[0],
    ]
    for attend in shifts:
        assert (attend(permute_tokens(x, order)) - permute_tokens(attend(x), order)).abs().max() > 0.01


def test_influence_of_a_linear_map_is_known() -> None:
    x, mix, w = numbers(0, 4, 3), numbers(1, 5, 4), numbers(2, 3, 2)
    got = influence(lambda x: mix @ x @ w, x)
    torch.testing.assert_close(got, mix.abs() * w.square().sum().sqrt())


def test_every_output_depends_on_every_input() -> None:
    for seed in range(20):
        x, weights = numbers(seed, 6, 4), matrices(seed, 4, 3, 5)
        assert influence(lambda x, w=weights: self_attention(x, *w)[0], x).min() > 1e-3


# ------------------------------------------------------------------ sinusoids


def sinusoid(t: int, column: int, d_model: int) -> float:
    """One number of the encoding, by Python's own float64."""
    angle = t * math.exp(-2 * (column // 2) / d_model * math.log(10000))
    return math.cos(angle) if column % 2 else math.sin(angle)


@few
@given(st.integers(0, 40), st.integers(1, 17))
def test_sinusoids_follow_the_formula(n_positions: int, d_model: int) -> None:
    expected = [[sinusoid(t, j, d_model) for j in range(d_model)] for t in range(n_positions)]
    got = sinusoidal_encoding(n_positions, d_model)
    assert got.dtype == torch.float32 and got.shape == (n_positions, d_model)
    torch.testing.assert_close(got, torch.tensor(expected).reshape(n_positions, d_model), rtol=0, atol=1e-7)


@pytest.mark.parametrize("d_model", [7, 12])
def test_sinusoids_are_exact_at_large_positions(d_model: int) -> None:
    got = sinusoidal_encoding(100_001, d_model)
    for t in (9_999, 50_000, 100_000):
        expected = torch.tensor([sinusoid(t, j, d_model) for j in range(d_model)])
        torch.testing.assert_close(got[t], expected, rtol=0, atol=1e-7)


def test_an_odd_width_leaves_out_the_last_cosine() -> None:
    """The exponents still divide by the width itself, not by the even one."""
    got = sinusoidal_encoding(9, 5)
    assert not torch.allclose(got, sinusoidal_encoding(9, 6)[:, :5], atol=1e-3)
    torch.testing.assert_close(got[:, 4], torch.sin(torch.arange(9) * 10000 ** (-4 / 5)))


@few
@given(st.integers(0, 30), st.integers(1, 5))
def test_a_shift_is_the_same_rotation_everywhere(k: int, n_pairs: int) -> None:
    d_model = 2 * n_pairs
    encoding, rotation = sinusoidal_encoding(60, d_model), shift_matrix(k, d_model)
    torch.testing.assert_close(encoding[: 60 - k] @ rotation, encoding[k:], rtol=0, atol=1e-6)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(d_model), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.linalg.det(rotation), torch.tensor(1.0))


def test_a_shift_needs_whole_pairs() -> None:
    with pytest.raises(ValueError, match="even, got 5"):
        shift_matrix(1, 5)


def test_similarity_depends_on_the_distance_only() -> None:
    encoding = sinusoidal_encoding(50, 32).double()
    similarity = encoding @ encoding.T
    for k in range(50):
        diagonal = similarity.diagonal(k)
        torch.testing.assert_close(diagonal, diagonal[:1].expand(50 - k), rtol=0, atol=1e-5)
    assert (similarity.diagonal() == similarity.amax(dim=-1)).all()


def test_learned_positions_are_the_first_rows_of_a_table() -> None:
    positions = LearnedPositions(5, 3)
    assert torch.equal(positions(2), positions.table.weight[:2])
    with pytest.raises(ValueError, match="5 positions, fewer than 6"):
        positions(6)


# ------------------------------------------------------------------ rotary positions


@few
@given(st.integers(1, 5), st.integers(-20, 20), seeds)
def test_rotary_scores_depend_on_the_distance_only(n_pairs: int, distance: int, seed: int) -> None:
    query, key = numbers(seed, 1, 2 * n_pairs), numbers(seed + 1, 1, 2 * n_pairs)
    positions = torch.arange(20, 40)
    queries = apply_rotary(query.expand(20, -1), positions)
    keys = apply_rotary(key.expand(20, -1), positions + distance)
    scores = (queries * keys).sum(dim=-1)
    torch.testing.assert_close(scores, scores[:1].expand(20), rtol=0, atol=1e-10)


def test_rotary_keeps_norms_and_leaves_position_zero() -> None:
    x = numbers(0, 3, 5, 8)
    turned = apply_rotary(x, torch.tensor([0, 1, 7, 300, 100_000]))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert (turned[:, 1:] - x[:, 1:]).abs().amin(dim=(0, 1)).max() > 1e-3


def test_rotary_changes_scores_with_the_distance() -> None:
    query, key = numbers(0, 1, 8), numbers(1, 1, 8)
    scores = apply_rotary(query, torch.tensor([0])) @ apply_rotary(key.expand(9, -1), torch.arange(9)).T
    assert scores.unique().numel() == 9


@pytest.mark.parametrize("d_k", [2, 4, 10])
def test_the_layouts_differ_by_an_order_of_columns(d_k: int) -> None:
    x, positions, order = numbers(0, 3, 6, d_k), torch.arange(6), half_split_order(d_k)
    assert sorted(order.tolist()) == list(range(d_k))
    got = apply_rotary_half_split(x[..., order], positions)
    assert torch.equal(got, apply_rotary(x, positions)[..., order])


def test_both_layouts_give_the_same_scores_and_mixing_them_does_not() -> None:
    queries, keys, positions = numbers(0, 5, 8), numbers(1, 5, 8), torch.arange(5)
    order = half_split_order(8)
    interleaved = apply_rotary(queries, positions) @ apply_rotary(keys, positions).T
    q, k = queries[:, order], keys[:, order]
    torch.testing.assert_close(
        apply_rotary_half_split(q, positions) @ apply_rotary_half_split(k, positions).T, interleaved
    )
    wrong = apply_rotary_half_split(queries, positions) @ apply_rotary_half_split(keys, positions).T
    assert (wrong - interleaved).abs().max() > 0.1


@pytest.mark.parametrize(("shape", "n_positions"), [((5, 3), 5), ((5, 4), 4), ((5, 4, 2), 5)])
def test_rotary_names_shapes_that_do_not_fit(shape: tuple[int, ...], n_positions: int) -> None:
    plain = getattr(apply_rotary, "__wrapped__", apply_rotary)
    with pytest.raises(ValueError, match="positions"):
        plain(torch.ones(shape), torch.arange(n_positions))


def test_rotary_attention_does_not_notice_where_the_sequence_begins() -> None:
    x, (w_q, w_k, w_v) = numbers(0, 2, 5, 4), matrices(0, 4, 6, 3)
    outputs, weights = rotary_self_attention(x, w_q, w_k, w_v)
    later = torch.arange(100, 105)
    queries, keys = apply_rotary(x @ w_q, later), apply_rotary(x @ w_k, later)
    torch.testing.assert_close(outputs, F.scaled_dot_product_attention(queries, keys, x @ w_v))
    torch.testing.assert_close(weights @ (x @ w_v), outputs)


# ------------------------------------------------------------------ the task


@few
@given(st.integers(2, 9), st.integers(1, 20), seeds)
def test_a_sequence_has_one_a_and_one_b(n_tokens: int, batch_size: int, seed: int) -> None:
    tokens, labels = order_batch(n_tokens, batch_size, generator(seed))
    assert tokens.shape == (batch_size, n_tokens)
    for row, label in zip(tokens, labels.tolist(), strict=True):
        text = read_tokens(row)
        assert text.count("A") == text.count("B") == 1 and set(text) <= {*ALPHABET, " "}
        assert label == (text.index("A") < text.index("B"))


def test_places_and_labels_are_balanced() -> None:
    tokens, labels = order_batch(6, 6000, generator(0))
    assert abs(labels.mean() - 0.5) < 0.03
    for token in (0, 1):
        shares = (tokens == token).float().mean(dim=0)
        assert (shares - 1 / 6).abs().max() < 0.03
    assert (tokens > 1).sum() == 4 * 6000 and tokens.max() == len(ALPHABET) - 1
    late, _ = order_batch(6, 500, generator(0), places=range(3, 6))
    assert (late[:, :3] > 1).all() and (late[:, 3:] < 2).sum() == 1000


@pytest.mark.parametrize(("n_tokens", "places"), [(1, None), (5, range(2, 3)), (5, range(3, 6)), (5, range(-1, 3))])
def test_no_room_for_a_and_b(n_tokens: int, places: range | None) -> None:
    with pytest.raises(ValueError, match="two places among"):
        order_batch(n_tokens, 2, generator(0), places)


def model_with(kind: str) -> OrderModel:
    torch.manual_seed(0)
    return {
        "none": lambda: OrderModel(),
        "sinusoidal": lambda: OrderModel(lambda n: sinusoidal_encoding(n, 32)),
        "learned": lambda: OrderModel(LearnedPositions(12, 32)),
        "rotary": lambda: OrderModel(attention=rotary_self_attention),
    }[kind]()


def test_without_positions_no_shuffle_is_noticed() -> None:
    tokens, _ = order_batch(12, 50, generator(0))
    shuffled = torch.stack([row[torch.randperm(12, generator=generator(i))] for i, row in enumerate(tokens)])
    model = model_with("none").double()
    torch.testing.assert_close(model(shuffled), model(tokens), rtol=0, atol=1e-12)
    for kind in ("sinusoidal", "learned", "rotary"):
        model = model_with(kind).double()
        assert (model(shuffled) - model(tokens)).abs().max() > 1e-3


def test_positions_are_learned_with_the_rest() -> None:
    model = model_with("learned")
    order_loss(model, order_batch(12, 8, generator(0))).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_guessing_costs_log_two_and_is_right_half_the_time() -> None:
    model = model_with("none")
    last = model.readout[2]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    loss = order_loss(model, order_batch(12, 8, generator(0)))
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    assert abs(order_accuracy(model, 12) - 0.5) < 0.05


class KnowsTheOrder(nn.Module):
    """Right everywhere, but for A and B at the places 0 and 2, where it depends on the first filler."""

    def forward(self, tokens: Tensor) -> Tensor:
        a, b = (tokens == 0).int().argmax(dim=-1), (tokens == 1).int().argmax(dim=-1)
        unsure = (a == 0) & (b == 2) & (tokens[:, 1] < 6)
        return torch.where((a < b) & ~unsure, 1.0, -1.0)


def test_answers_by_place_are_shares_of_yes() -> None:
    shares = answers_by_place(KnowsTheOrder(), 5, tries=400)
    assert shares.diagonal().isnan().all()
    assert abs(shares[0, 2] - 0.5) < 0.1  # half of the fillers
    expected = torch.ones(5, 5).triu(1)
    expected[0, 2] = shares[0, 2]
    torch.testing.assert_close(shares.nan_to_num(0), expected)


def test_accuracy_draws_its_sequences_by_seed() -> None:
    model = model_with("sinusoidal")
    assert order_accuracy(model, 12) == order_accuracy(model, 12, seed=0)
    assert len({order_accuracy(model, 12, seed=seed) for seed in range(4)}) > 1
    assert order_accuracy(KnowsTheOrder(), 12, places=range(3, 9)) == 1


def test_sinusoids_make_the_order_learnable() -> None:
    model = model_with("sinusoidal")
    train_order_model(model, seed=0)
    assert order_accuracy(model, 12) > 0.95


def test_the_same_seed_trains_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of threads, which is as before afterwards."""
    monkeypatch.setattr(lesson, "STEPS", 10)
    before, runs = torch.get_num_threads(), []
    try:
        for seed, threads in ((0, 1), (0, 2), (1, 2)):
            torch.set_num_threads(threads)
            runs.append(train_order_model(model_with("learned"), seed))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len(runs[0]) == 10 and runs[0] == runs[1] != runs[2]


def test_all_orders_of_four_tokens() -> None:
    """What the lesson's claim says of five tokens, by another way: weights that only depend on the set."""
    x, weights = numbers(0, 4, 3), matrices(0, 3, 2, 3)
    means = [
        self_attention(permute_tokens(x, torch.tensor(o)), *weights)[0].mean(dim=0)
        for o in itertools.permutations(range(4))
    ]
    torch.testing.assert_close(torch.stack(means), means[0].expand(24, -1))
