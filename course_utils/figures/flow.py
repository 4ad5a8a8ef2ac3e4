"""Where the boxes of a data flow stand: in rows, each box below those that it comes from, few arrows crossing.

The picture's places are counted from 0. Where an arrow passes through rows between, it has a place of its own there
(a bend, numbered after the boxes), so that it runs around boxes and not over them.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple


class Flow(NamedTuple):
    """Rows of boxes and bends from top to bottom, and every arrow as the boxes and bends that it passes."""

    rows: list[list[int]]
    routes: list[list[int]]

    def links(self) -> list[tuple[int, int]]:
        return [link for route in self.routes for link in pairwise(route)]


def arrange(sources: Sequence[Sequence[int]]) -> Flow:
    """Rows and arrows for boxes of which box i comes from `sources[i]`, all of them earlier than i.

    What comes from nothing stands right above its first use.
    """
    depths = _depths(sources)
    rows: list[list[int]] = [
        [box for box, depth in enumerate(depths) if depth == row] for row in range(max(depths) + 1)
    ]
    routes, bend = [], len(sources)
    for target, many in enumerate(sources):
        for source in many:
            between = range(depths[source] + 1, depths[target])
            bends = [bend + i for i in range(len(between))]
            for row, node in zip(between, bends, strict=True):
                rows[row].append(node)
            bend += len(bends)
            routes.append([source, *bends, target])
    return Flow(rows, routes)


def _depths(sources: Sequence[Sequence[int]]) -> list[int]:
    depths: list[int] = []
    for many in sources:
        depths.append(1 + max((depths[source] for source in many), default=-1))
    for box, many in enumerate(sources):
        if not many:
            depths[box] = min((depths[i] for i, others in enumerate(sources) if box in others), default=1) - 1
    return depths


def _untangle(flow: Flow) -> None:
    """Swap neighbours in the rows as long as fewer arrows cross, or as many and they become shorter."""
    best, improved = _tangle(flow), True
    while improved:
        improved = False
        for row in flow.rows:
            for i in range(len(row) - 1):
                row[i], row[i + 1] = row[i + 1], row[i]
                if (now := _tangle(flow)) < best:
                    best, improved = now, True
                else:
                    row[i], row[i + 1] = row[i + 1], row[i]


def _tangle(flow: Flow) -> tuple[int, int, float]:
    """How many arrows cross, how many enter a box in another order than its sources have, how far they go sideways."""
    at = {node: (y, i - (len(row) - 1) / 2) for y, row in enumerate(flow.rows) for i, node in enumerate(row)}
    links: list[list[tuple[float, float]]] = [[] for _ in flow.rows]
    for upper, lower in flow.links():
        links[at[upper][0]].append((at[upper][1], at[lower][1]))
    crossings = sum((a - c) * (b - d) < 0 for row in links for (a, b), (c, d) in combinations(row, 2))
    ends = [(route[-1], at[route[-2]]) for route in flow.routes]
    turned = sum(a[0] == b[0] and a[1] > b[1] for a, b in combinations(ends, 2))
    return crossings, turned, sum(abs(start - end) for row in links for start, end in row)


Reach = Mapping[int, tuple[float, float]]  # how much room a node needs to the left and to the right of its middle


def row_width(row: Sequence[int], reach: Reach) -> float:
    return sum(sum(reach[node]) for node in row)


def spread(flow: Flow, reach: Reach, width: float) -> dict[int, float]:
    """Put the rows in order, and return the x of the middle of every box and bend.

    It is near to what it is linked with; nothing touches and nothing is outside, if `row_width` is at most `width`.
    """
    _untangle(flow)
    above: dict[int, list[int]] = {node: [] for row in flow.rows for node in row}
    around: dict[int, list[int]] = {node: [] for node in above}
    for upper, lower in flow.links():
        above[lower].append(upper)
        around[lower].append(upper)
        around[upper].append(lower)
    x = {node: width * (i + 1) / (len(row) + 1) for row in flow.rows for i, node in enumerate(row)}
    for _ in range(20):
        for row in (*flow.rows, *reversed(flow.rows)):
            _place(row, x, around, reach, width)
        _centre(x, reach, width)
    for row in flow.rows:  # at last straight down, where there is room
        _place(row, x, above, reach, width)
    _centre(x, reach, width)
    return x


def _place(row: list[int], x: dict[int, float], near: Mapping[int, list[int]], reach: Reach, width: float) -> None:
    """Move the nodes of a row as near to their neighbours' middle as the room allows (isotonic regression)."""
    offset, offsets, pools = 0.0, [], []
    for before, node in zip([None, *row], row, strict=False):
        offset += 0.0 if before is None else reach[before][1] + reach[node][0]
        offsets.append(offset)
        wanted = sum(x[other] for other in near[node]) / len(near[node]) if near[node] else x[node]
        pools.append((wanted - offset, 1.0 if near[node] else 0.01, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, v, n), (b, w, m) = pools[-2:]
            pools[-2:] = [((a * v + b * w) / (v + w), v + w, n + m)]
    low, high = reach[row[0]][0], width - reach[row[-1]][1] - offset
    free = [min(max(value, low), high) for value, _, count in pools for _ in range(count)]
    x.update({node: value + offset for node, value, offset in zip(row, free, offsets, strict=True)})


def _centre(x: dict[int, float], reach: Reach, width: float) -> None:
    left = min(x[node] - reach[node][0] for node in x)
    right = max(x[node] + reach[node][1] for node in x)
    for node in x:
        x[node] += (width - left - right) / 2
