"""Lesson 07: what is computed about a layer is what the running layer does."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from course_utils.benchmarks import measured
from course_utils.lessons import sequence_models as course
from course_utils.lessons.multi_head import attend_in_steps
from course_utils.lessons.rnn_translator import gru_step
from course_utils.lessons.self_attention import influence
from course_utils.lessons.sequence_models import (
    D_MODEL,
    FARTHEST,
    N_STEPS,
    CausalAttention,
    CausalConv,
    CopyModel,
    GRULayer,
    RecallBatch,
    RecallModel,
    causal_conv1d,
    layer_flops,
    longest_chain,
    path_length,
    products_in_order,
    recall_accuracy,
    recall_batch,
    receptive_field,
    trained_model,
)
from tests.helpers import few, generator, numbers, seeds

CORES = {
    "RNN": course.rnn_core,
    "CNN": course.cnn_core,
    "dilated CNN": course.dilated_cnn_core,
    "attention": course.attention_core,
}

# ------------------------------------------------------------------ convolutions


@few
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=3), seeds)
def test_the_receptive_field_is_what_moves_the_last_output(layers: list[tuple[int, int]], seed: int) -> None:
    kernel_sizes, dilations = [k for k, _ in layers], [d for _, d in layers]
    n = receptive_field(kernel_sizes, dilations) + 3

    def last(x: Tensor) -> Tensor:
        for i, (k, dilation) in enumerate(layers):
            x = torch.tanh(causal_conv1d(x, numbers(seed + i, k, 2, 2), dilation))
        return x[-1:]

    moved = influence(last, numbers(seed + 9, n, 2))[0] > 0
    assert n - int(moved.nonzero().min()) == receptive_field(kernel_sizes, dilations)


@pytest.mark.parametrize("dilation", [1, 3])
def test_a_layer_with_the_weights_of_pytorchs(dilation: int) -> None:
    theirs = nn.Conv1d(4, 4, 3, dilation=dilation)
    ours = CausalConv(4, 3, dilation)
    with torch.no_grad():
        ours.kernel.copy_(theirs.weight.permute(2, 1, 0))
        assert theirs.bias is not None
        ours.bias.copy_(theirs.bias)
    x = torch.randn(2, 9, 4)
    torch.testing.assert_close(ours(x), theirs(F.pad(x.mT, (2 * dilation, 0))).mT)


def test_a_gru_layer_is_lesson_01s_step_after_step() -> None:
    layer, x = GRULayer(5), torch.randn(2, 7, 5)
    w_x, w_h, b_x, b_h = (
        layer.gru.get_parameter(f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    states, state = [], torch.zeros(2, 5)
    for t in range(7):
        state = gru_step(x[:, t], state, w_x.T, w_h.T, b_x, b_h)
        states.append(state)
    torch.testing.assert_close(layer(x), torch.stack(states, dim=1))


# ------------------------------------------------------------------ paths


@few
@given(st.integers(1, 6), st.integers(0, 6), st.floats(0.05, 0.5), seeds)
def test_paths_are_products_of_the_tables(n: int, n_layers: int, share: float, seed: int) -> None:
    """Entry (i, j) of the product of the first L tables counts the ways from j to i through L layers."""
    reads = torch.rand(n_layers, n, n, generator=generator(seed)) < share
    ways = [torch.eye(n, dtype=torch.int64)]
    for layer in reads:
        ways.append(layer.long() @ ways[-1])
    for start, end in itertools.product(range(n), range(n)):
        lengths = [n_layers for n_layers, table in enumerate(ways) if table[end, start] > 0]
        if lengths:
            assert path_length(reads, start, end) == lengths[0]
        else:
            with pytest.raises(ValueError, match=f"{n_layers} layers do not carry {start} to {end}"):
                path_length(reads, start, end)


# ------------------------------------------------------------------ counting


@few
@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_flops_are_those_of_running_layers(n_tokens: int, n_heads: int, d_k: int, k: int) -> None:
    d_model = n_heads * d_k
    layers = GRULayer(d_model), CausalConv(d_model, k), CausalAttention(d_model, n_heads, attend_in_steps)
    for layer, computed in zip(layers, layer_flops(n_tokens, d_model, k), strict=True):
        with FlopCounterMode(display=False) as counter:
            layer(torch.randn(1, n_tokens, d_model))
        assert counter.get_total_flops() == computed


def test_the_longest_chain_of_operations() -> None:
    """Each product or sum is one operation, a learned number is one more."""
    w = torch.ones(3, requires_grad=True)
    assert longest_chain(w * 2) == 2
    assert longest_chain((w * 2).sum()) == 3
    assert longest_chain((w * 2 * 2 * 2).sum() + w.sum()) == 6
    x = w
    for _ in range(5000):  # deeper than Python's recursion
        x = x * 1
    assert longest_chain(x) == 5001
    with pytest.raises(ValueError, match="no operation"):
        longest_chain(w)


def test_the_longest_chain_of_products() -> None:
    a, b, c = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    assert products_in_order(a + b) == 0
    assert products_in_order(a @ b) == 1
    assert products_in_order(torch.tanh(a @ b) @ c) == 2
    assert products_in_order((a @ b) + (b @ c)) == 1, "side by side"
    assert products_in_order((a @ b @ c) + (a @ c)) == 2
    assert products_in_order(F.linear(F.linear(a, b), c, torch.zeros(3))) == 2
    assert products_in_order(torch.bmm(a[None], b[None]) @ c[None]) == 2


@pytest.mark.parametrize("n", [1, 2, 700])
def test_what_waits_for_what(n: int) -> None:
    """A long chain too: the graph is not walked by recursion."""
    x = torch.randn(2, n, 8)
    assert products_in_order(GRULayer(8)(x)) == n
    assert products_in_order(CausalConv(8, 3)(x)) == 1
    assert products_in_order(CausalAttention(8, 2, attend_in_steps)(x)) == 4


def test_bytes_that_are_kept() -> None:
    """A ReLU keeps its result; a linear layer keeps its input, and its weights do not count."""
    x = torch.randn(5, 8, requires_grad=True)
    assert course.bytes_kept(nn.ReLU(), x) == 4 * 5 * 8
    assert course.bytes_kept(nn.Linear(8, 3), x) == 4 * 5 * 8
    assert course.bytes_kept(nn.Sequential(nn.ReLU(), nn.Linear(8, 3)), x) == 4 * 5 * 8, "the same memory counts once"


def test_gradient_reach_is_zero_where_nothing_is_read() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    reach = course.gradient_reach(CausalConv(4, 2, dilation=3).double(), x)
    assert (reach > 0).tolist() == [True, False, False, True, False, False, False, False, False]
    both = course.gradient_reach(nn.Identity(), x)
    assert both[0] > 0 and not both[1:].any()


# ------------------------------------------------------------------ recall


@pytest.mark.parametrize("distance", [None, 1, 64, FARTHEST])
def test_answers_are_the_values_of_the_keys_that_are_asked(distance: int | None) -> None:
    batch = recall_batch(20, generator(0), distance)
    distances = []
    for keys, values, questions, answers in zip(*(t.tolist() for t in batch), strict=True):
        assert len(set(keys)) == N_STEPS
        value_of = dict(zip(keys, values, strict=True))
        assert [value_of[q] for q in questions] == answers
        place_of = {key: i for i, key in enumerate(keys)}
        assert all(place_of[q] < i for i, q in enumerate(questions) if i)
        distances += [i - place_of[q] for i, q in enumerate(questions)][FARTHEST:]
    if distance is not None:
        assert set(distances) == {distance}
        return
    assert min(distances) == 1 and max(distances) == FARTHEST
    near, far = (sum(low <= d < 2 * low for d in distances) for low in (2, 32))
    assert 0.8 < near / far < 1.25, "every doubling of the distance is as frequent"


def test_the_same_seed_gives_the_same_batch() -> None:
    one, other = (recall_batch(3, generator(4)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Knows(nn.Module):
    """Looks the answer up, or, beyond `farthest` steps, says 0."""

    def __init__(self, farthest: int) -> None:
        super().__init__()
        self.farthest, self.weight = farthest, nn.Parameter(torch.zeros(1))

    def forward(self, batch: RecallBatch) -> Tensor:
        found = batch.questions[:, :, None] == batch.keys[:, None, :]  # (batch, steps, places)
        place = found.int().argmax(dim=-1)
        near = torch.arange(N_STEPS) - place <= self.farthest
        answers = batch.values.gather(1, place).where(near, torch.zeros_like(place))
        return F.one_hot(answers, course.N_VALUES).float()


def test_accuracy_is_that_of_the_distance() -> None:
    assert recall_accuracy(Knows(128), 128) == 1
    assert recall_accuracy(Knows(8), 8) == 1
    assert recall_accuracy(Knows(8), 16) == pytest.approx(1 / course.N_VALUES, abs=0.02)


@pytest.mark.parametrize("name", CORES)
def test_cores_have_the_same_size(name: str) -> None:
    n = sum(p.numel() for p in CORES[name]().parameters())
    assert n == pytest.approx(24_704, rel=0.015)


def test_the_copying_model_sees_neither_keys_nor_questions() -> None:
    torch.manual_seed(0)
    model, batch = CopyModel(course.cnn_core()), recall_batch(2, generator(0), 4)
    other = batch._replace(keys=batch.keys.flip(1), questions=batch.questions.flip(1))
    assert torch.equal(model(batch), model(other))
    assert not torch.equal(model(batch), model(batch._replace(values=batch.values.flip(1))))


def test_open_gates_keep_the_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 40, D_MODEL, dtype=torch.float64)
    usual, opened = (
        course.gradient_reach(make().double(), x) for make in (course.rnn_core, course.rnn_core_with_open_gates)
    )
    assert opened[32] > 1000 * usual[32]


def test_training_is_reproducible() -> None:
    one, other = (trained_model(course.cnn_core, 1, steps=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert isinstance(one, RecallModel)


def test_the_stored_table() -> None:
    rows = measured("recall")["rows"]
    for task, names in (("recall", [*CORES, "RNN, gates open"]), ("copy", [*CORES])):
        for name in names:
            runs = [r for r in rows if (r["task"], r["model"]) == (task, name)]
            assert sorted(r["seed"] for r in runs) == [0, 1, 2]
    for row in rows:
        assert all(0 <= share <= 1 for share in row["accuracy"].values())
        core = CORES.get(row["model"].split(",")[0])
        assert core is not None
        assert row["parameters"] == sum(p.numel() for p in core().parameters())


def stored(model: str, distance: str, task: str = "recall") -> list[float]:
    rows = measured("recall")["rows"]
    return [r["accuracy"][distance] for r in rows if (r["task"], r["model"]) == (task, model)]


def test_what_the_text_says_of_the_stored_table() -> None:
    assert max(stored("attention, distance 64 only", "64")) < 0.1
    assert min(stored("attention, distance 64 only, longer", "64")) > 0.94
    assert min(stored("dilated CNN", "128", "copy")) == 1 and max(stored("attention", "128", "copy")) < 0.75
    assert min(stored("RNN", "4", "copy")) > 0.85 and max(stored("RNN", "4")) < 0.17
    assert max(stored("CNN", "2")) < 0.3 and max(stored("dilated CNN", "4")) < 0.15
    for distance in ("1", "2"):  # four times the steps help at distance 1 only
        gain = min(stored("RNN, longer", distance)) - max(stored("RNN", distance))
        assert (gain > 0.05) == (distance == "1")
    for distance in ("1", "2", "4", "8"):
        pairs = zip(stored("RNN, gates open", distance), stored("RNN", distance), strict=True)
        assert all(abs(opened - usual) < 0.07 for opened, usual in pairs)
