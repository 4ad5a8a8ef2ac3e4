"""Pictures of shapes: what is recorded while a function runs, what is refused, and how the boxes are drawn."""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import beartype
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float, jaxtyped
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path
from torch import Tensor, nn

from course_utils.figures.flow import arrange, row_width, spread
from course_utils.figures.shapes import draw_shapes
from course_utils.figures.style import COLOURS, WIDTH, png
from course_utils.figures.tracing import trace
from course_utils.lessons.attention_translator import attention_weights


def scores_of(queries, keys):
    return queries @ keys.transpose(-2, -1)


def attention(queries, keys, values):
    scores = scores_of(queries / queries.shape[-1] ** 0.5, keys)
    weights = torch.softmax(scores, dim=-1)
    return weights @ values, weights


def cross_attention(queries, data, w_q, w_k, w_v):
    for matrix, vectors in ((w_q, queries), (w_k, data), (w_v, data)):
        assert matrix.shape[0] == vectors.shape[-1]
    return attention(queries @ w_q, data @ w_k, data @ w_v)


def self_attention(x, w_q, w_k, w_v):
    return cross_attention(x, x, w_q, w_k, w_v)


def cross_attention_in_steps(queries, data, w_q, w_k, w_v):
    q = queries @ w_q
    k = data @ w_k
    v = data @ w_v
    scores = scores_of(q, k) / q.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    outputs = weights @ v
    return outputs, weights


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


class MultiHead(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, queries, data):
        q = split_heads(self.w_q(queries), self.heads)
        k = split_heads(self.w_k(data), self.heads)
        v = split_heads(self.w_v(data), self.heads)
        attended, _ = attention(q, k, v)
        merged = attended.transpose(-3, -2).flatten(-2)
        return self.w_o(merged)


def multi_head(queries, data, w_q, w_k, w_v, w_o):
    q = split_heads(queries @ w_q, 3)
    k = split_heads(data @ w_k, 3)
    v = split_heads(data @ w_v, 3)
    attended, weights = attention(q, k, v)
    merged = attended.transpose(-3, -2).flatten(-2)
    outputs = merged @ w_o
    return outputs, weights


class MLP(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        return self.down(hidden)


class Block(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.attention, self.mlp = MultiHead(d_model, 3), MLP(d_model, 4 * d_model)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x):
        normed = self.norm_1(x)
        attended = self.attention(normed, normed)
        x = x + attended
        normed = self.norm_2(x)
        x = x + self.mlp(normed)
        return x


def one_query(query, keys, values):
    scores = keys @ query
    weights = torch.softmax(scores, dim=0)
    return weights @ values


def ones(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: torch.ones(shape) for name, shape in shapes.items()}


def arrows(function: Callable, inputs: dict[str, Tensor]) -> list[str]:
    """Each tensor as "name: names of its sources"."""
    tensors = trace(function, inputs)
    return [": ".join([t.name, " ".join(tensors[i].name for i in t.sources)]).strip(": ") for t in tensors]


QKV = {"queries": (5, 4), "keys": (7, 4), "values": (7, 3)}
SIZES = {"queries": 5, "keys": 7, "d_k": 4, "d_v": 3}
CROSS = {"queries": (5, 6), "data": (7, 8), "w_q": (6, 4), "w_k": (8, 4), "w_v": (8, 3)}
CROSS_SIZES = {"queries": 5, "data": 7, "d_query": 6, "d_data": 8, "d_k": 4, "d_v": 3}
HEADS_SIZES = {"batch": 2, "heads": 3, "queries": 5, "data": 7, "d_k": 4, "d_model": 12, "d_ff": 48}
MATRICES = {name: (12, 12) for name in ("w_q", "w_k", "w_v", "w_o")}


# ------------------------------------------------------------------ what is recorded


def test_variables_in_order_with_shapes_and_sources():
    tensors = trace(attention, ones(**QKV))
    assert [(t.name, t.shape, t.sources) for t in tensors] == [
        ("queries", (5, 4), ()),
        ("keys", (7, 4), ()),
        ("values", (7, 3), ()),
        ("scores", (5, 7), (0, 1)),  # through the scaled queries, which have no name
        ("weights", (5, 7), (3,)),
        ("output", (5, 3), (4, 2)),
    ]
    assert [t.is_input for t in tensors] == [True] * 3 + [False] * 3
    assert [t.is_last for t in tensors] == [False] * 5 + [True]


def test_a_function_that_ends_in_another_one_shows_the_variables_of_both():
    inputs = ["queries", "data", "w_q", "w_k", "w_v"]
    inner = ["queries: queries w_q", "keys: data w_k", "values: data w_v", "scores: queries keys", "weights: scores"]
    assert arrows(cross_attention, ones(**CROSS)) == [*inputs, *inner, "output: weights values"]
    shapes = {"x": (5, 8), "w_q": (8, 4), "w_k": (8, 4), "w_v": (8, 3)}
    projected = ["queries: x w_q", "keys: x w_k", "values: x w_v"]
    assert arrows(self_attention, ones(**shapes))[:7] == ["x", "w_q", "w_k", "w_v", *projected]


def test_a_module_shows_its_own_variables_and_no_parameters():
    assert arrows(MLP(8, 32), ones(x=(5, 8))) == ["x", "hidden: x", "output: hidden"]
    heads = ["queries", "data", "q: queries", "k: data", "v: data", "attended: q k v", "merged: attended"]
    assert arrows(MultiHead(12, 3), ones(queries=(2, 5, 12), data=(2, 7, 12))) == [*heads, "output: merged"]


def test_a_variable_with_a_new_tensor_is_a_new_box():
    tensors = trace(Block(12), ones(x=(2, 5, 12)))
    names = [(t.name, t.sources) for t in tensors]
    first = [("x", ()), ("normed", (0,)), ("attended", (1,)), ("x", (0, 2))]
    assert names == [*first, ("normed", (3,)), ("x", (3, 4))]


def test_changes_in_place():
    def added(x, y):
        total = x * 2
        total += y
        return total * 3

    def written(x, y):
        total = torch.zeros(5, 4)
        total[:, 1] = x
        row = total[2]
        row.copy_(y)
        return total * 3

    assert arrows(added, ones(x=(5, 4), y=(5, 4))) == ["x", "y", "total: x", "total: total y", "output: total"]
    first = ["x", "y", "total", "total: total x", "row: total"]
    through_the_view = ["row: row y", "total: total row y", "output: total"]
    assert arrows(written, ones(x=(5,), y=(4,))) == [*first, *through_the_view]


def test_what_has_no_box_of_its_own():
    """Second names, names with an underscore, tensors from outside, tensors in containers."""
    outside = torch.ones(5, 4)

    def function(x, w):
        residual, _ = x, x + 1
        several = [x + 2, outside + 3]
        hidden = _ @ w + several[0]
        y = residual + outside
        del hidden
        return {"first": y, "second": [y * 2, 3]}

    given = functools.partial(function, w=torch.ones(4, 4))
    assert arrows(given, ones(x=(5, 4))) == ["x", "hidden: x", "y: x", "output: y"]


def test_one_tensor_given_twice_stays_two_inputs():
    x = torch.ones(5, 4)
    given = {"queries": x, "keys": x, "values": x}
    wanted = ["queries", "keys", "values", "scores: queries keys", "weights: scores", "output: weights values"]
    assert arrows(attention, given) == wanted


def test_several_results():
    assert arrows(lambda x: (x + 1, x * 2), ones(x=(5, 4))) == ["x", "output 1: x", "output 2: x"]
    assert arrows(lambda x: x, ones(x=(5, 4))) == ["x"]
    assert arrows(lambda x: torch.ones(3), ones(x=(5, 4))) == ["x", "output"]


def test_functions_in_wrappers():
    checked = jaxtyped(typechecker=beartype.beartype)

    @checked
    def inner(a: Float[Tensor, " rows columns"]) -> Float[Tensor, " rows columns"]:
        doubled = a * 2
        return doubled + 1

    @checked
    @torch.no_grad()
    def outer(x: Float[Tensor, " rows columns"]) -> Float[Tensor, " rows columns"]:
        tripled = x * 3
        return inner(tripled + 1)

    names = ["x", "tripled: x", "a: tripled", "doubled: a", "output: doubled"]
    assert arrows(outer, ones(x=(5, 4))) == names
    with torch.inference_mode():
        assert arrows(outer, ones(x=(5, 4))) == names


def test_a_function_of_the_course_under_its_shape_checks():
    inputs = {"scores": torch.ones(2, 7), "lengths": torch.tensor([3, 7])}
    assert arrows(attention_weights, inputs)[-3:] == [
        "positions",
        "padding: positions lengths",
        "output: scores padding",
    ]


def test_a_function_from_a_notebook_cell():
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch}
    exec(compile("def f(x):\n    y = x + 1\n    return torch.relu(y)\n", "<cell>", "exec"), names)
    assert arrows(names["f"], ones(x=(5, 4))) == ["x", "y: x", "output: y"]


def test_a_function_that_calls_itself_shows_the_first_call():
    def power(x, n=2):
        y = x * 2
        return y if n == 0 else power(y, n - 1) + 1

    assert arrows(power, ones(x=(5, 4))) == ["x", "y: x", "output: y"]


def test_errors_and_settings_pass_through():
    def broken(x):
        raise KeyError("own")

    seen = []

    def profile(*event):
        seen.append(event)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        with pytest.raises(KeyError, match="own"):
            trace(broken, ones(x=(5, 4)))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    assert torch._C._len_torch_function_stack() == 0
    with pytest.raises(TypeError, match="unexpected keyword"):
        trace(broken, ones(y=(5, 4)))


# ------------------------------------------------------------------ what is refused


def many(x):
    a, b, c, d, e, f, g = (x + i for i in range(7))
    h, i, j, k, m, n = (y * 2 for y in (a, b, c, d, e, f))
    return g + h + i + j + k + m + n


def wide(x):
    a_rather_long_name, another_rather_long_name, the_third_long_name, the_last_long_name = (x + i for i in range(4))
    return a_rather_long_name + another_rather_long_name + the_third_long_name + the_last_long_name


REFUSED = {
    "built in": (torch.relu, {"input": (5, 4)}, r"function or a module written in Python.*relu"),
    "no result": (lambda x: 3, {"x": (5, 4)}, "returned no tensor"),
    "no dimensions": (
        lambda x: x.sum(),
        {"x": (5, 4)},
        r"output has shape \(\), but only tensors of 1 to 4 dimensions",
    ),
    "five dimensions": (lambda x: x[0], {"x": (5, 4, 3, 2, 7)}, r"x has shape \(5, 4, 3, 2, 7\), .* 1 to 4 dimensions"),
    "empty": (lambda x: x * 2, {"x": (5, 0)}, r"x has shape \(5, 0\).*none of them empty"),
    "size without a name": (lambda x: x.T @ x, {"x": (4, 9)}, r"x has shape \(4, 9\), but size 9 is none of .*keys 7"),
    "too many": (many, {"x": (5, 4)}, r"room for 14 tensors, but here are 15: x, a, b"),
    "too wide": (wide, {"x": (5, 4)}, r"no room for these side by side: a_rather_long_name, .* shorter names"),
    "too long": (lambda x: x * 2, {"x": (2000, 1)}, r"sides of 1 and 2000 .* at most 32 times the smallest"),
    "too long a vector": (lambda x: x * 2, {"x": (2000,)}, r"sides of 1 and 2000 \(a vector is 1 high\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str):
    function, shapes, message = REFUSED[case]
    sizes = {"queries": 5, "keys": 7, "d_k": 4, "d_v": 3, "batch": 2, "one": 1, "long": 2000}
    with pytest.raises(ValueError, match=message):
        draw_shapes(function, ones(**shapes), sizes)


def test_refused_inputs_and_names():
    number: Any = 3
    with pytest.raises(ValueError, match="every input must be a tensor, but n is of type int"):
        draw_shapes(lambda x, n: x * n, {"x": torch.ones(5, 4), "n": number}, {"rows": 5, "columns": 4})
    with pytest.raises(ValueError, match="rows and columns both have size 4"):
        draw_shapes(lambda x: x * 2, ones(x=(4, 4)), {"rows": 4, "columns": 4})


# ------------------------------------------------------------------ what is drawn

DRAWN = {
    "attention": (attention, QKV, SIZES),
    "attention of a batch": (attention, {name: (2, *shape) for name, shape in QKV.items()}, {**SIZES, "batch": 2}),
    "one query": (one_query, {**QKV, "query": (4,), "queries": None}, SIZES),
    "cross-attention": (cross_attention, CROSS, CROSS_SIZES),
    "cross-attention in steps": (cross_attention_in_steps, CROSS, CROSS_SIZES),
    "cross-attention of large sizes": (
        cross_attention_in_steps,
        {"queries": (9, 24), "data": (12, 32), "w_q": (24, 16), "w_k": (32, 16), "w_v": (32, 20)},
        {"queries": 9, "data": 12, "d_query": 24, "d_data": 32, "d_k": 16, "d_v": 20},
    ),
    "self-attention": (
        self_attention,
        {"x": (5, 8), "w_q": (8, 4), "w_k": (8, 4), "w_v": (8, 3)},
        {"tokens": 5, "d_model": 8, "d_k": 4, "d_v": 3},
    ),
    "multi-head": (multi_head, {"queries": (2, 5, 12), "data": (2, 7, 12), **MATRICES}, HEADS_SIZES),
    "multi-head module": (MultiHead(12, 3), {"queries": (2, 5, 12), "data": (2, 7, 12)}, HEADS_SIZES),
    "MLP": (MLP(12, 48), {"x": (5, 12)}, HEADS_SIZES),
    "block": (Block(12), {"x": (2, 5, 12)}, HEADS_SIZES),
    "long names": (
        lambda a_very_long_variable_name: a_very_long_variable_name * 2,
        {"a_very_long_variable_name": (5,)},
        SIZES,
    ),
}


@pytest.fixture(params=DRAWN)
def drawn(request) -> tuple[Figure, Callable, dict[str, Tensor]]:
    function, shapes, sizes = DRAWN[request.param]
    inputs = ones(**{name: shape for name, shape in shapes.items() if shape})
    figure = draw_shapes(function, inputs, sizes)
    png(figure)  # where everything is, is known after it was drawn
    return figure, function, inputs


def rectangles(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_boxes_are_to_scale(drawn):
    """Every sheet of every tensor has the sides of its last two dimensions, at one scale, on the paper too."""
    figure, function, inputs = drawn
    tensors = trace(function, inputs)
    wanted = Counter()
    for tensor in tensors:
        *stack, down, across = (1, *tensor.shape)
        wanted[across, down] += min(4, torch.Size(stack).numel())
    boxes = [patch.get_window_extent() for patch in rectangles(figure)]
    scale = max(box.width for box in boxes) / max(across for across, _ in wanted)
    assert Counter((round(box.width / scale), round(box.height / scale)) for box in boxes) == wanted
    for box in boxes:
        for side in (box.width / scale, box.height / scale):
            assert abs(side - round(side)) < 0.01 * side
        assert min(box.width, box.height) >= 0.05 * figure.dpi - 0.01


def test_texts_say_names_and_sizes(drawn):
    figure, function, inputs = drawn
    texts = Counter(text.get_text().replace("\n", " ") for text in figure.axes[0].texts)
    names = Counter(tensor.name for tensor in trace(function, inputs))
    assert names <= texts
    assert all(text.get_fontsize() >= 8 for text in figure.axes[0].texts)


def test_nothing_overlaps_and_nothing_is_cut_off(drawn):
    figure, _, _ = drawn
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    boxes = [patch.get_window_extent(renderer) for patch in rectangles(figure)]
    for i, text in enumerate(texts):
        assert not any(text.overlaps(other) for other in (*texts[:i], *boxes)), figure.axes[0].texts[i].get_text()
    paper = figure.bbox
    for item in (*texts, *boxes):
        assert paper.x0 < item.x0 and item.x1 < paper.x1 and paper.y0 < item.y0 and item.y1 < paper.y1
    assert figure.get_figwidth() == WIDTH and figure.get_figheight() < 9


def test_arrows_run_around_boxes_and_texts(drawn):
    figure, function, inputs = drawn
    renderer = FigureCanvasAgg(figure).get_renderer()
    items = [item.get_window_extent(renderer).padded(-1) for item in (*figure.axes[0].texts, *rectangles(figure))]
    drawn_arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(drawn_arrows) == sum(len(tensor.sources) for tensor in trace(function, inputs))
    for arrow in drawn_arrows:
        path = arrow.get_path().transformed(arrow.get_transform())
        lines = path.to_polygons(closed_only=False)  # the curve, in short pieces, and its head
        points = [point for line in lines for point in np.asarray(Path(line).interpolated(8).vertices)]
        hit = [item for item in items if any(item.contains(x, y) for x, y in points)]
        assert not hit, (arrow, hit)


def test_a_side_with_its_name():
    figure = draw_shapes(attention, ones(**QKV), SIZES)
    texts = Counter(text.get_text() for text in figure.axes[0].texts)
    assert texts["queries 5"] == 4 and texts["keys 7"] == 4 and texts["d_k 4"] == 2 and texts["d_v 3"] == 2
    figure = draw_shapes(lambda x: x * 2, ones(x=(2, 3, 5, 4)), {**SIZES, "batch": 2, "heads": 3} | {"d_v": 6})
    assert [text.get_text() for text in figure.axes[0].texts[:4]] == ["x", "batch 2 × heads 3", "queries 5", "d_k 4"]


def test_colours_say_what_a_tensor_is():
    figure = draw_shapes(cross_attention_in_steps, ones(**CROSS), CROSS_SIZES)
    names = ["queries", "data", "w_q", "w_k", "w_v", "q", "k", "v", "scores", "weights", "outputs"]
    wanted = ["orange", "sky", *["pink"] * 3, "orange", "blue", "green", "grey", "grey", "red"]
    found = {name: to_hex(box.get_edgecolor()).upper() for name, box in zip(names, rectangles(figure), strict=True)}
    assert found == {name: COLOURS[colour] for name, colour in zip(names, wanted, strict=True)}


# ------------------------------------------------------------------ where boxes stand


@st.composite
def flows(draw) -> list[list[int]]:
    count = draw(st.integers(1, 10))
    return [draw(st.lists(st.integers(0, i - 1), unique=True, max_size=3)) if i else [] for i in range(count)]


@settings(max_examples=100, deadline=None)
@given(flows(), st.data())
def test_any_flow_stands_in_rows_without_touching(sources: list[list[int]], data: st.DataObject):
    flow = arrange(sources)
    row_of = {node: i for i, row in enumerate(flow.rows) for node in row}
    assert sorted(row_of) == list(range(len(row_of))) and all(flow.rows)
    assert sorted((route[0], route[-1]) for route in flow.routes) == sorted(
        (source, target) for target, many in enumerate(sources) for source in many
    )
    for route in flow.routes:
        assert [row_of[node] for node in route] == list(range(row_of[route[0]], row_of[route[-1]] + 1))
    side = st.floats(0.1, 2)
    reach = {node: (data.draw(side), data.draw(side)) for node in row_of}
    width = max(row_width(row, reach) for row in flow.rows) + data.draw(st.floats(0, 5))
    x = spread(flow, reach, width)
    for row in flow.rows:
        edges = [edge for node in row for edge in (x[node] - reach[node][0], x[node] + reach[node][1])]
        assert all(a <= b + 1e-6 for a, b in zip([0, *edges], [*edges, width], strict=True))
    left = min(x[node] - reach[node][0] for node in x)
    right = max(x[node] + reach[node][1] for node in x)
    assert abs(left - (width - right)) < 1e-6  # in the middle of the picture


def test_arrows_cross_only_where_they_must():
    flow = arrange([[], [], [], [], [0, 3], [1, 2], [4], [5]])
    spread(flow, {node: (1.0, 1.0) for node in range(8)}, 20)
    place = {node: i for row in flow.rows for i, node in enumerate(row)}
    links = flow.links()
    level = {node: i for i, row in enumerate(flow.rows) for node in row}
    for a, b in links:
        for c, d in links:
            assert level[a] != level[c] or (place[a] - place[c]) * (place[b] - place[d]) >= 0
