"""What the tests of several lessons share: random inputs, a bound for rounding errors, a module made of a function."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils.corpora.vocabulary import pad_batch

Model = TypeVar("Model", bound=nn.Module)

# ------------------------------------------------------------------ random inputs

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

seeds = st.integers(0, 2**16)
sizes = st.integers(1, 6)
leading = st.lists(st.integers(1, 3), max_size=2).map(tuple)
dtypes = st.sampled_from(DTYPES)
few = settings(max_examples=25, deadline=None)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers; the same ones, rounded, in every dtype."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def ids(seed: int, high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=generator(seed))


def masks(seed: int, *shape: int, share: float = 0.6) -> Tensor:
    """Random masks; some rows are False everywhere."""
    return torch.rand(*shape, generator=generator(seed)) < share


# ------------------------------------------------------------------ comparing


def as_exact_as(got: Tensor, theirs: Tensor, exact: Tensor, roundings: int = 4) -> None:
    """At most twice the error of `theirs`, and some roundings of the largest number, since theirs may be lucky.

    `theirs` is computed in the dtype of `got`, `exact` in float64. An exact zero, such as a hidden weight, is zero.
    """
    assert (got.dtype, got.shape) == (theirs.dtype, theirs.shape)
    assert (got[exact == 0] == 0).all(), "zero is exactly zero"
    if got.dtype == torch.float64:
        torch.testing.assert_close(got, exact, rtol=1e-12, atol=1e-12)
    elif got.numel():
        error, their_error = ((x.double() - exact).abs().max() for x in (got, theirs))
        rounding = torch.finfo(got.dtype).eps * exact.abs().max().clamp(min=1)
        assert error <= 2 * their_error + roundings * rounding


def gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None, "no gradient has arrived"
    return leaf.grad


# ------------------------------------------------------------------ modules


class FunctionModule(nn.Module):
    """A function as a module. It is called with the modules that it needs, then with the inputs."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: Any) -> Tensor:
        return self.function(*self.parts, *inputs)


def loud(model: Model, factor: float = 2) -> Model:
    """The model with larger weights than at its start: a state that moves a lot shows every leak."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(factor)
    return model


# ------------------------------------------------------------------ sentences for translators

N_SOURCE, N_TARGET = 11, 13
SENTENCE_LENGTHS = [1, 7, 3, 7, 2, 5]


def sentences(high: int) -> list[list[int]]:
    return [ids(row, high - 4, length).add(4).tolist() for row, length in enumerate(SENTENCE_LENGTHS)]


def with_rubbish(rows: list[list[int]], high: int, columns: int) -> tuple[Tensor, Tensor]:
    """The padded batch with `columns` columns more, and random words wherever there is padding."""
    tokens, lengths = pad_batch(rows, 0)
    tokens = F.pad(tokens, (0, columns))
    padding = torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1)
    return torch.where(padding, ids(99, high, *tokens.shape), tokens), lengths


def source_batch(columns: int = 0) -> tuple[Tensor, Tensor]:
    return with_rubbish(sentences(N_SOURCE), N_SOURCE, columns)


def target_batch(columns: int = 0) -> tuple[Tensor, Tensor]:
    """The longest target does not belong to the longest source."""
    return with_rubbish(sentences(N_TARGET)[::-1], N_TARGET, columns)
