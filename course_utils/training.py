"""What several lessons share when they train: batches of sentences of like length, and one training loop."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import OneCycleLR

from course_utils import progress
from course_utils.corpora.vocabulary import Vocabulary

Batch = TypeVar("Batch")


@runtime_checkable
class Translator(Protocol):
    """What lesson 01's `translate` asks of a model. Each kind of translator has its own state."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def start(self, source: Tensor, lengths: Tensor, /) -> Any: ...

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...


class TranslationBatch(NamedTuple):
    """Sentence pairs of one training step, as ids, padded to the longest of the batch.

    The target stands here twice, shifted by one: the decoder reads `target_in` (start token, then the words)
    and must answer `target_out` (the words, then the stop token). `target_lengths` counts either one.
    """

    source: Int[Tensor, "batch source_time"]
    source_lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch target_time"]
    target_out: Int[Tensor, "batch target_time"]
    target_lengths: Int[Tensor, " batch"]


def batches_by_length(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    batch_size: int,
    generator: torch.Generator,
    steps: int | None = None,
    pad_id: int = Vocabulary.pad,
    start_id: int = Vocabulary.start,
    stop_id: int = Vocabulary.stop,
    device: torch.device | str = "cpu",
) -> Iterator[TranslationBatch]:
    """Yields batches of sentence pairs that are about equally long, so that little work goes into padding.

    In every epoch the pairs are sorted by source length, then target length (pairs of the same lengths in a new
    random order), cut into batches of neighbours, and the batches come in a random order.

    `sources` and `targets` hold the ids of each sentence, without start and stop tokens: they are added here.
    `steps` is the number of batches; None means without end. The last batch of an epoch may be smaller.
    `generator` is a CPU generator: the same seed gives the same batches.
    Raises ValueError when there are no pairs, when the lists differ in length, when a source is empty (a target may
    be), or when `batch_size` is below 1.
    """
    if len(sources) != len(targets):
        raise ValueError(f"sources and targets must be equally many, got {len(sources)} and {len(targets)}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if len(sources) == 0:
        raise ValueError("sources is empty: there is nothing to make batches of")
    for row, words in enumerate(sources):
        if len(words) == 0:
            raise ValueError(f"sources[{row}] is an empty sentence: nothing to translate")
    source = [torch.tensor(words) for words in sources]
    target = [torch.tensor([start_id, *words, stop_id]) for words in targets]

    def batches() -> Iterator[TranslationBatch]:
        while True:
            for rows in _epoch(sources, targets, batch_size, generator):
                source_tokens, source_lengths = _pad([source[row] for row in rows], pad_id, device)
                target_in, target_lengths = _pad([target[row][:-1] for row in rows], pad_id, device)
                target_out, _ = _pad([target[row][1:] for row in rows], pad_id, device)
                yield TranslationBatch(source_tokens, source_lengths, target_in, target_out, target_lengths)

    return islice(batches(), steps)


def _epoch(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """The row numbers of each batch of one epoch."""
    shuffled = torch.randperm(len(sources), generator=generator).tolist()
    rows = sorted(shuffled, key=lambda row: (len(sources[row]), len(targets[row])))
    batches = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def _pad(
    sequences: list[Tensor], pad_id: int, device: torch.device | str
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    # `pad_batch` looks at every id, which here would take a tenth of the training time.
    tokens = pad_sequence(sequences, batch_first=True, padding_value=pad_id)
    return tokens.to(device), torch.tensor([len(words) for words in sequences], device=device)


@contextmanager
def one_thread() -> Generator[None]:
    """Lets PyTorch use one thread inside `with one_thread():`, or in a function below `@one_thread()`.

    For many small steps, threads that wait for each other cost more than they give, and much more on a busy machine.
    And the result does not depend on their number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# Lesson 01 shows this function whole: at most 40 lines of 88 columns. The schedule is "one cycle" (Smith and Topin
# 2017, https://arxiv.org/abs/1708.07120). Without the clipping (Pascanu et al. 2013, https://arxiv.org/abs/1211.5063)
# a recurrent network can take one huge step and be lost.
def train(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_function: Callable[[nn.Module, Batch], Float[Tensor, ""]],
    *,
    steps: int,
    learning_rate: float,
    warmup: float = 0.3,
    clip: float = 1.0,
) -> list[float]:
    """Trains `model` in place for `steps` steps of Adam; returns the loss of each.

    The learning rate rises to `learning_rate` during the share `warmup` of the steps,
    then falls to almost 0. A gradient longer than `clip` is shortened to that length.
    Raises ValueError for bad settings, too few batches, or a loss that is not finite.
    """
    check_settings(steps, learning_rate, warmup, clip)
    learned = list(model.parameters())  # all the numbers that are learned
    optimizer = torch.optim.Adam(learned, learning_rate, (0.9, 0.98), fused=True)
    schedule = OneCycleLR(  # a learning rate for each step: up, then down
        optimizer,
        learning_rate,
        total_steps=steps + 1,
        pct_start=warmup,
        cycle_momentum=False,
    )
    was_training = model.training
    model.train()  # some layers do something else in training
    losses = []
    for batch in progress.bar(take(batches, steps), total=steps, desc="training"):
        loss = loss_function(model, batch)  # forward: how wrong is the model?
        losses.append(finite(loss, step=len(losses)))  # an error if it is NaN
        optimizer.zero_grad()  # forget the gradients of the step before
        loss.backward()  # backward: the gradient of every learned number
        nn.utils.clip_grad_norm_(learned, clip)  # all gradients together: not too long
        optimizer.step()  # move every number a little against its gradient
        schedule.step()  # the learning rate of the next step
    model.train(was_training)
    return losses


def check_settings(steps: int, learning_rate: float, warmup: float, clip: float) -> None:
    """Raises ValueError when one of the settings of `train` is out of range."""
    if steps < 1 or learning_rate <= 0 or clip <= 0:
        raise ValueError(f"steps, learning_rate and clip must be above 0, got {steps}, {learning_rate} and {clip}")
    if not 0 <= warmup < 1:
        raise ValueError(f"warmup is the share of steps before the peak, 0 <= warmup < 1, got {warmup}")


def take(batches: Iterable[Batch], steps: int) -> Iterator[Batch]:
    """Yields the first `steps` batches. Raises ValueError when there are fewer."""
    taken = 0
    for batch in islice(batches, steps):
        yield batch
        taken += 1
    if taken < steps:
        raise ValueError(f"batches ended after {taken} of {steps} steps")


def finite(loss: Float[Tensor, ""], step: int) -> float:
    """The loss as a Python number. Raises ValueError when it is NaN or infinite: no further step can mend that."""
    value = loss.item()
    if not math.isfinite(value):
        raise ValueError(f"the loss of step {step} is {value}: try a smaller learning rate")
    return value
