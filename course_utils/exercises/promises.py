"""What many exercises promise in the same way. An exercise says which of these hold; the calls are made here.

ex.promises(ex.inputs(queries=5, keys=7, d_k=8), "leading", "sizes", "dtypes", "gradients", "device")

Besides, without a word: inputs stay as they were, and parameters have the names of the stub.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import torch

from course_utils.exercises.cases import Case, case, normal

# Called with leading dimensions, and with a size by name for what should differ from its default.
Inputs = Callable[..., Case]

LOW = (torch.float64, torch.float16, torch.bfloat16)
LEADING = ((), (1,), (3,), (2, 3), (3, 1), (2, 1, 3))


def sizes_of(inputs: Inputs) -> dict[str, int]:
    """The usual size of every dimension that has a name: the keywords of `inputs` and their defaults.

    Raises ValueError when two are equal, or equal to a leading dimension of the checks, since an answer that mixes
    them up could pass; and when d_k is a square, since then √d_k is a whole number.
    """
    parameters = inspect.signature(inputs).parameters.values()
    sizes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and type(p.default) is int}
    taken = [*sizes.values(), 2, 3]
    if len(set(taken)) < len(taken):
        raise ValueError(f"all sizes must differ, and none may be 2 or 3, the leading dimensions: {sizes}")
    if "d_k" in sizes and math.isqrt(sizes["d_k"]) ** 2 == sizes["d_k"]:
        raise ValueError(f"d_k must not be a square, got {sizes['d_k']}")
    return sizes


@dataclass(frozen=True)
class FromSignature:
    """Calls of a function whose inputs are all tensors of floats, made from the shapes in its signature.

    A matrix without leading dimensions is a weight: it is divided by the root of its number of rows, so that what it
    makes of random vectors has numbers of about one.
    """

    function: Callable[..., Any]
    sizes: dict[str, int]

    def __call__(self, *leading: int, **changed: int) -> Case:
        sizes = {**self.sizes, **changed}
        seeds = count()
        return case(*(self._tensor(p.annotation.dim_str, leading, sizes, next(seeds)) for p in self._parameters()))

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind, default=n) for name, n in self.sizes.items()])

    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @staticmethod
    def _tensor(dimensions: str, leading: tuple[int, ...], sizes: dict[str, int], seed: int) -> torch.Tensor:
        names = dimensions.split()
        if names[0] == "...":
            return normal(*leading, *(sizes[name] for name in names[1:]), seed=seed)
        shape = [sizes[name] for name in names]
        return normal(*shape, seed=seed) / (shape[0] ** 0.5 if len(shape) == 2 else 1)


class Promise(NamedTuple):
    """A check: its name, its calls, and its kind (see `Check`)."""

    name: str
    calls: tuple[Case, ...]
    kind: str


def _leading(inputs: Inputs) -> list[Promise]:
    calls = tuple(inputs(*lead) for lead in LEADING)
    return [Promise("no leading dimensions, one, two and three", calls, "leading")]


def _sizes(inputs: Inputs) -> list[Promise]:
    sizes = sizes_of(inputs)
    one, four = dict.fromkeys(sizes, 1), dict.fromkeys(sizes, 4)
    ones = *(inputs(2, **{name: 1}) for name in sizes), inputs(2, **one)
    others = tuple(inputs(*lead, **{name: 1}) for lead in ((), (2, 3)) for name in sizes)
    return [
        Promise("each size also 1", ones, "ones"),
        Promise("each size also 1, with no leading dimensions, and with two", others, "leading"),
        Promise("all sizes equal", (inputs(4, **four), inputs(2, **four)), "equal"),
        Promise("all sizes equal, and two leading dimensions", (inputs(4, 4, **four),), "leading"),
    ]


def _dtypes(inputs: Inputs) -> list[Promise]:
    calls = tuple(inputs(2).to(dtype) for dtype in LOW)
    return [Promise("float64, float16 and bfloat16 stay what they are", calls, "dtypes")]


def _gradients(inputs: Inputs) -> list[Promise]:
    return [Promise("each gradient goes back to its own place", (inputs(2).to(torch.float64),), "gradients")]


def _device(inputs: Inputs) -> list[Promise]:
    return [Promise("it would work on a GPU too: new tensors are made where the inputs are", (inputs(2),), "device")]


PROMISES: dict[str, Callable[[Inputs], list[Promise]]] = {
    "leading": _leading,
    "sizes": _sizes,
    "dtypes": _dtypes,
    "gradients": _gradients,
    "device": _device,
}
