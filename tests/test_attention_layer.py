"""Lesson 03: the layer with large numbers, in another order and with wrong shapes; the card task.

That it is PyTorch's attention, in every precision, is in test_function_promises.py.
"""

import math
from functools import partial
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course_utils.benchmarks import measured
from course_utils.benchmarks.attention_layer import train_with_two_rates
from course_utils.lessons.attention_layer import (
    COLOURS,
    CardReader,
    card_loss,
    cross_attention,
    draw_cards,
    entropy,
    scaled_dot_product_attention,
    score_variance,
    share_right,
    similarity_scores,
    train_reader,
)
from course_utils.lessons.attention_translator import alignment_scores, attention_weights, context_vector
from tests.helpers import as_exact_as, few, generator, gradient, leading, numbers, seeds


def layer_inputs(seed: int, lead: tuple[int, ...] = (), queries: int = 5, data: int = 7) -> list[Tensor]:
    """Queries of width 3, data of width 6, d_k 4, d_v 2; projected vectors have a variance of about 1."""
    vectors = numbers(seed, *lead, queries, 3), numbers(seed + 1, *lead, data, 6)
    matrices = [numbers(seed + 2 + i, *shape) / shape[0] ** 0.5 for i, shape in enumerate([(3, 4), (6, 4), (6, 2)])]
    return [*vectors, *matrices]


# ------------------------------------------------------------------ numbers


def test_one_query_is_lesson_02s_step() -> None:
    state, states = numbers(0, 3, 8), numbers(1, 3, 6, 8)
    lengths = torch.full((3,), 6)
    weights = attention_weights(alignment_scores(state, states) / math.sqrt(8), lengths)
    outputs, got = scaled_dot_product_attention(state.unsqueeze(1), states, states)
    torch.testing.assert_close(got.squeeze(1), weights)
    torch.testing.assert_close(outputs.squeeze(1), context_vector(weights, states))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 20, 200])
def test_half_precision_is_rounded_at_the_end_only(dtype: torch.dtype, size: float) -> None:
    """With numbers of 200 the scores reach 320,000; the largest number of float16 is 65,504."""
    queries = torch.cat([size * numbers(0, 3, 64).sign(), numbers(1, 6, 64)]).to(dtype)
    keys, values = (size * numbers(2, 9, 64).sign()).to(dtype), (size * numbers(3, 9, 5)).to(dtype)
    got = scaled_dot_product_attention(queries, keys, values)
    exact = scaled_dot_product_attention(queries.double(), keys.double(), values.double())
    for ours, right in zip(got, exact, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, right.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-4)
    theirs = F.scaled_dot_product_attention(queries, keys, values)
    as_exact_as(got[0], theirs, exact[0], roundings=1)


def test_scores_beyond_float16_are_not_nan() -> None:
    queries, keys = torch.full((1, 64), 200.0).half(), torch.full((2, 64), 200.0).half()
    assert similarity_scores(queries, keys).isinf().all()
    outputs, weights = scaled_dot_product_attention(queries, keys, torch.tensor([[1.0], [3.0]]).half())
    assert outputs.item() == 2 and weights.tolist() == [[0.5, 0.5]]


def test_large_scores_give_all_weight_to_the_largest() -> None:
    queries, keys = torch.tensor([[1e4]]), torch.tensor([[1.0], [2.0], [-5.0]])
    outputs, weights = scaled_dot_product_attention(queries, keys, torch.eye(3))
    assert torch.equal(weights, torch.tensor([[0.0, 1.0, 0.0]])) and torch.equal(outputs, weights)


# ------------------------------------------------------------------ order


@few
@given(leading, st.integers(2, 6), st.integers(2, 6), seeds)
def test_order_of_data_does_not_matter_and_outputs_follow_the_queries(
    lead: tuple[int, ...], n_queries: int, n_data: int, seed: int
) -> None:
    queries, data, *matrices = layer_inputs(seed, lead, queries=n_queries, data=n_data)
    rows, columns = (torch.randperm(n, generator=generator(seed)) for n in (n_queries, n_data))
    outputs, weights = cross_attention(queries, data, *matrices)
    moved, moved_weights = cross_attention(queries, data[..., columns, :], *matrices)
    torch.testing.assert_close(moved, outputs)
    torch.testing.assert_close(moved_weights, weights[..., columns])
    moved, moved_weights = cross_attention(queries[..., rows, :], data, *matrices)
    torch.testing.assert_close(moved, outputs[..., rows, :])
    torch.testing.assert_close(moved_weights, weights[..., rows, :])


def test_output_is_inside_the_values() -> None:
    queries, keys, values = numbers(3, 50, 4), numbers(4, 7, 4), numbers(5, 7, 3)
    outputs, weights = scaled_dot_product_attention(queries, keys, values)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(50).double())
    assert (outputs <= values.max(dim=0).values + 1e-12).all() and (outputs >= values.min(dim=0).values - 1e-12).all()


# ------------------------------------------------------------------ wrong shapes


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ((5, 4), (7, 3)),
        ((1, 5, 4), (3, 7, 4)),
        ((5, 4), (3, 7, 4)),
        ((2, 3, 5, 4), (3, 7, 4)),
        ((4,), (7, 4)),
        ((5, 4), (4,)),
    ],
)
def test_scores_of_shapes_that_do_not_fit(queries: tuple[int, ...], keys: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        similarity_scores(torch.zeros(queries), torch.zeros(keys))
    assert f"queries have shape {queries} and keys {keys}" in str(error.value)


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize(
    ("keys", "values"), [((7, 4), (6, 3)), ((3, 7, 4), (7, 3)), ((1, 7, 4), (3, 7, 3)), ((7, 4), (7,))]
)
def test_values_that_do_not_fit(keys: tuple[int, ...], values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        scaled_dot_product_attention(torch.zeros(*keys[:-2], 5, 4), torch.zeros(keys), torch.zeros(values))
    assert f"keys have shape {keys} and values {values}" in str(error.value)


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize(
    ("position", "name", "shape"),
    [(2, "w_q", (6, 4)), (3, "w_k", (3, 4)), (4, "w_v", (3, 2)), (2, "w_q", (1, 3, 4)), (4, "w_v", (6,))],
)
def test_matrices_that_do_not_fit(position: int, name: str, shape: tuple[int, ...]) -> None:
    inputs = layer_inputs(0, (2,))
    inputs[position] = torch.zeros(shape).double()
    with pytest.raises(ValueError) as error:
        cross_attention(*inputs)
    assert f"{name} has shape {shape}" in str(error.value)


@pytest.mark.usefixtures("no_hook")
def test_keys_of_another_width_than_the_queries() -> None:
    queries, data, w_q, w_k, w_v = layer_inputs(0)
    with pytest.raises(ValueError, match=r"queries have shape \(5, 4\) and keys \(7, 3\)"):
        cross_attention(queries, data, w_q, w_k[:, :3], w_v)
    with pytest.raises(ValueError, match="same shape"):
        score_variance(queries, data)


# ------------------------------------------------------------------ variance, entropy, gradient


@pytest.mark.parametrize("d_k", [1, 4, 64, 256])
def test_variance_of_a_score_is_d_k(d_k: int) -> None:
    queries, keys = numbers(0, 20_000, d_k), numbers(1, 20_000, d_k)
    # The variance of 20,000 such numbers is itself random, by 1 to 2 percent (more for d_k 1: its tails are long).
    assert score_variance(queries, keys).item() == pytest.approx(d_k, rel=0.1)
    assert score_variance(queries / d_k**0.5, keys).item() == pytest.approx(1, rel=0.1)


def test_entropy_of_known_weights() -> None:
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(entropy(weights), torch.tensor([math.log(4), 0.0, math.log(2)]))


# ------------------------------------------------------------------ the card task


def test_every_question_has_one_card_and_its_colour_is_the_answer() -> None:
    names, colours, questions, answers = draw_cards(generator(0), batch=4, cards=9, questions=5)
    assert names.shape == colours.shape == (4, 9) and questions.shape == answers.shape == (4, 5)
    for table in range(4):
        card_of = dict(zip(names[table].tolist(), colours[table].tolist(), strict=True))
        assert len(card_of) == 9  # all names differ
        assert [card_of[name] for name in questions[table].tolist()] == answers[table].tolist()


def test_cards_come_from_the_generator() -> None:
    first, again, other = (draw_cards(generator(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.names, other.names)


def test_tied_reader_has_one_matrix_less_and_ten_tied_are_six_apart() -> None:
    def attention_size(reader: CardReader) -> int:
        return sum(p.numel() for name, p in reader.named_parameters() if name.startswith("w_"))

    assert attention_size(CardReader(6, 6)) == attention_size(CardReader(10, 10, tied=True)) == 960
    reader = CardReader(6, 6, tied=True)
    assert reader.w_v is reader.w_k
    with pytest.raises(ValueError, match="one width"):
        CardReader(6, 8, tied=True)


def test_factor_undoes_the_scale() -> None:
    torch.manual_seed(0)
    reader = CardReader(16, 4, factor=4.0)
    cards = draw_cards(generator(0), batch=2, cards=7, questions=3)
    _, weights = reader(cards.names, cards.colours, cards.questions)
    data = (reader.name(cards.names) + reader.colour(cards.colours)) / 2**0.5
    scores = similarity_scores(reader.asked(cards.questions) @ reader.w_q, data @ reader.w_k)
    torch.testing.assert_close(weights, torch.softmax(scores, dim=-1))


def test_a_small_start_and_small_steps_are_the_scale() -> None:
    """W = U / √8 in both matrices of a reader without the scale is the reader with the scale and U."""
    cards = draw_cards(generator(0), batch=2)
    readers = [CardReader(64, 16), CardReader(64, 16, factor=8.0)]
    readers[1].load_state_dict(readers[0].state_dict())
    with torch.no_grad():
        readers[1].w_q.div_(8**0.5)
        readers[1].w_k.div_(8**0.5)
    for reader in readers:
        card_loss(reader, cards).backward()
    torch.testing.assert_close(*(reader(cards.names, cards.colours, cards.questions) for reader in readers))
    torch.testing.assert_close(gradient(readers[0].w_q), gradient(readers[1].w_q) / 8**0.5)


def test_a_reader_that_guesses_pays_log_colours_and_one_that_knows_is_right() -> None:
    cards = draw_cards(generator(0), batch=3)

    def know(names: Tensor, colours: Tensor, questions: Tensor) -> tuple[Tensor, None]:
        return 50 * F.one_hot(cards.answers, COLOURS).float(), None

    def guess(names: Tensor, colours: Tensor, questions: Tensor) -> tuple[Tensor, None]:
        return torch.zeros(*questions.shape, COLOURS), None

    assert card_loss(guess, cards).item() == pytest.approx(math.log(COLOURS))
    assert card_loss(know, cards).item() < 1e-6
    assert share_right(know, cards) == 1
    assert share_right(guess, cards) == pytest.approx((cards.answers == 0).float().mean().item())


def test_training_is_repeated_by_its_seed_and_lowers_the_loss() -> None:
    first, again = (train_reader(partial(CardReader, 8, 4), steps=30, seed=3) for _ in range(2))
    assert first.losses == again.losses and first.share_right == again.share_right
    assert first.losses[-1] < first.losses[0]


# ------------------------------------------------------------------ the stored measurement


def test_the_measurement_trains_as_the_lesson_does() -> None:
    ours = train_reader(partial(CardReader, 8, 16, factor=8**0.5), steps=30, seed=3).share_right
    assert train_with_two_rates(d_k=8, factor=8**0.5, seed=3, steps=30) == pytest.approx(ours, abs=0.005)


def test_the_stored_trainings_show_what_the_lesson_says() -> None:
    rows = {(row["reader"], row["d_k"]): row["right"] for row in measured("scale")["rows"]}
    assert all(len(right) == 3 for right in rows.values())
    without = rows["without", 64]
    assert max(without) < 0.35 < 0.8 < min(rows["without", 4])
    assert min(min(rows["with the scale", d_k]) for d_k in (4, 16, 64)) > 0.9
    assert min(rows["without", 4]) > max(rows["without", 16]) > max(without)
    assert mean(rows["without, all steps smaller", 64]) < mean(without)
    assert mean(without) < mean(rows["without, three times the steps", 64]) < 0.5
    smaller_and_longer = rows["without, 3 times as many smaller steps", 64]
    assert mean(rows["without, three times the steps", 64]) < mean(smaller_and_longer) and max(smaller_and_longer) < 0.5
    for part in ("start", "move"):
        right = rows[f"without, W_Q and W_K {part} {'smaller' if part == 'start' else 'slower'}", 64]
        assert mean(without) + 0.05 < mean(right) < 0.8
    assert min(rows["without, W_Q and W_K both", 64]) > 0.9
