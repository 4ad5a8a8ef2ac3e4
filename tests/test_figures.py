"""What several pictures share."""

import pytest
import torch
from matplotlib.patches import Rectangle

from course_utils.corpora.pairs import Pair
from course_utils.figures.attention_maps import attention_map, attention_maps
from course_utils.figures.curves import running_mean

PAIR = Pair.from_text("a b c", "x y", "0-1 2-0", "1-0")
WEIGHTS = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])


def test_running_mean_by_hand() -> None:
    assert running_mean([4.0, 2.0, 6.0, 1.0], 2) == [4, 3, 4, 3.5]
    assert running_mean([4.0, 2.0], 5) == [4, 3] and running_mean([], 3) == []


@pytest.mark.parametrize(
    ("sides", "named"), [((), ("read →", "← written")), ((("data", "queries"),), ("data →", "← queries"))]
)
def test_a_map_names_its_sides_its_words_and_its_links(sides: tuple, named: tuple[str, str]) -> None:
    figures = (
        attention_map(WEIGHTS, PAIR, *sides),
        attention_maps([("one", WEIGHTS, PAIR), ("two", WEIGHTS, PAIR)], *sides),
    )
    assert [len(figure.axes) for figure in figures] == [1, 2]
    for axes in (axes for figure in figures for axes in figure.axes):
        assert (axes.get_xlabel(), axes.get_ylabel()) == named
        assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
        frames = {patch.get_xy(): patch.get_linestyle() for patch in axes.patches if isinstance(patch, Rectangle)}
        cells = {(round(x + 0.46), round(y + 0.46)): line for (x, y), line in frames.items()}
        assert cells == {(0, 1): "-", (2, 0): "-", (1, 0): ":"}


def test_a_map_refuses_words_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\), got \(3, 2\)"):
        attention_map(WEIGHTS.T, PAIR)
