"""What many exercises promise in the same way. An exercise says which of these hold; the calls are made here.

ex.promises(ex.inputs(queries=5, keys=7, d_k=8), "leading", "sizes", "dtypes", "gradients", "device")

Besides, without a word: inputs stay as they were, and parameters have the names of the stub.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from course_utils.exercises.cases import Case, case, normal

if TYPE_CHECKING:
    from course_utils.exercises.exercise import Exercise

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


def _leading(ex: "Exercise", inputs: Inputs) -> None:
    ex.cases("no leading dimensions, one, two and three", *(inputs(*lead) for lead in LEADING), kind="leading")


def _sizes(ex: "Exercise", inputs: Inputs) -> None:
    sizes = sizes_of(inputs)
    ones = *(inputs(2, **{name: 1}) for name in sizes), inputs(2, **dict.fromkeys(sizes, 1))
    ex.cases("each size also 1", *ones, kind="ones")
    others = [inputs(*lead, **{name: 1}) for lead in ((), (2, 3)) for name in sizes]
    ex.cases("each size also 1, with no leading dimensions, and with two", *others, kind="leading")
    equal = inputs(4, **dict.fromkeys(sizes, 4)), inputs(2, **dict.fromkeys(sizes, 4))
    ex.cases("all sizes equal", *equal, kind="equal")


def _dtypes(ex: "Exercise", inputs: Inputs) -> None:
    ex.cases("float64, float16 and bfloat16 stay what they are", *(inputs(2).to(t) for t in LOW), kind="dtypes")


def _gradients(ex: "Exercise", inputs: Inputs) -> None:
    ex.gradients("each gradient goes back to its own place", inputs(2).to(torch.float64))


def _device(ex: "Exercise", inputs: Inputs) -> None:
    ex.device("it would work on a GPU too: new tensors are made where the inputs are", inputs(2))


PROMISES: dict[str, Callable[["Exercise", Inputs], None]] = {
    "leading": _leading,
    "sizes": _sizes,
    "dtypes": _dtypes,
    "gradients": _gradients,
    "device": _device,
}
