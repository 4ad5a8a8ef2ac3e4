"""`python -m course_utils bench NAME`: measurements that take too long for a lesson.

Each writes `data/measured/NAME.json` with date, machine and versions; the lesson shows that file and says so.
"""

import datetime
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_utils.syllabus import ROOT

# An installed wheel carries the measured tables in the second place (see pyproject.toml).
_FOLDERS = (ROOT / "data" / "measured", Path(sys.prefix) / "share" / "course_utils" / "measured")


def bottleneck() -> list[dict[str, Any]]:
    """Lesson 01: BLEU by length for four widths of the vector, and for four times the training."""
    from course_utils.corpora import english_french
    from course_utils.lessons.rnn_translator import LEARNING_RATE, STEPS, RNNTranslator, train_translator

    splits = english_french.splits()
    # States of 512 numbers are wider than every vector but the last, so that only the vector can be too narrow.
    # They need a smaller learning rate than the lesson's 128.
    widths = [({"hidden_size": 512, "context_size": c}, STEPS, 3e-3) for c in (8, 32, 128, 512)]
    times = [({"hidden_size": 128, "context_size": 128}, n * STEPS, LEARNING_RATE) for n in (1, 4)]
    rows = []
    for sizes, steps, learning_rate in widths + times:
        make_model = functools.partial(RNNTranslator, **sizes)
        run = functools.partial(train_translator, make_model, splits.train, steps=steps, learning_rate=learning_rate)
        settings = {**sizes, "steps": steps, "learning_rate": learning_rate}
        rows.append({**settings, **_translator_row(run, splits.test)[1]})
        print(rows[-1], flush=True)
    return rows


def translator() -> list[dict[str, Any]]:
    """Lesson 02: four translators, trained on all lengths and on at most 20 words: BLEU by length, alignment error."""
    from course_utils.corpora import english_french
    from course_utils.lessons import attention_translator as lesson
    from course_utils.lessons.rnn_translator import RNNTranslator, train_translator

    splits = english_french.splits()
    models: dict[str, Callable[[int, int], Any]] = {"one vector (lesson 01)": RNNTranslator}
    models["attention: dot product, old state"] = lesson.AttentionTranslator
    for name, decoder in (
        ("additive, old state", lesson.AdditiveDecoder),
        ("dot product, new state", lesson.LuongDecoder),
    ):
        models[f"attention: {name}"] = functools.partial(lesson.AttentionTranslator, decoder=decoder)
    rows = []
    for trained_on, longest in (("all lengths", 45), ("at most 20 words", 20)):
        pairs = [pair for pair in splits.train if len(pair.source) <= longest]
        for name, make_model in models.items():
            trained, row = _translator_row(functools.partial(train_translator, make_model, pairs), splits.test)
            aer = None
            if make_model is not RNNTranslator:
                links = map(lesson.links_from_map, lesson.attention_maps(trained, splits.test))
                aer = round(lesson.corpus_alignment_error_rate(links, splits.test), 3)
            size = sum(p.numel() for p in trained.model.parameters())
            rows.append({"model": name, "trained_on": trained_on, "parameters": size, "aer": aer, **row})
            print(rows[-1], flush=True)
    return rows


def reversal() -> list[dict[str, Any]]:
    """Lesson 02: how often the largest weight is on the right letter when rows are turned round; five seeds."""
    from course_utils.lessons import attention_translator as lesson
    from course_utils.lessons.rnn_translator import translate
    from course_utils.metrics import exact_match

    test = lesson.reversal_pairs(200, shortest=10, longest=10, seed=1)
    rows = []
    for asks, decoder in (("old state", lesson.AttentionDecoder), ("new state", lesson.LuongDecoder)):
        for seed in range(5):
            trained = lesson.train_reversal(decoder, seed)
            found = [lesson.links_from_map(weights) for weights in lesson.attention_maps(trained, test)]
            wrong = lesson.corpus_alignment_error_rate(found, test)
            written = translate(trained.model, [pair.source for pair in test], trained.english, trained.french)
            exact = exact_match(written, [pair.target for pair in test])
            rows.append({"asks": asks, "seed": seed, "exact": round(exact, 3), "looks_right": round(1 - wrong, 3)})
            print(rows[-1], flush=True)
    return rows


def layers() -> list[dict[str, Any]]:
    """Lesson 06: multi-head attention, forward and backward, against PyTorch's module. About a minute."""
    import statistics

    import torch

    from course_utils.lessons.masking import causal_mask
    from course_utils.lessons.multi_head import MultiHeadAttention, copy_weights

    rows = []
    for batch, n_tokens, d_model in ((4, 256, 256), (8, 64, 512), (1, 1024, 256)):
        theirs = torch.nn.MultiheadAttention(d_model, 8, batch_first=True)
        ours = MultiHeadAttention(d_model, 8)
        copy_weights(theirs, ours)
        x = torch.randn(batch, n_tokens, d_model, requires_grad=True)
        for is_causal in (False, True):
            hidden = ~causal_mask(n_tokens, n_tokens) if is_causal else None  # PyTorch's module: True = hidden
            call = functools.partial(theirs, x, x, x, attn_mask=hidden)
            runs = {
                "ours": functools.partial(ours, x, is_causal=is_causal),
                "pytorch": call,
                "pytorch_fused": functools.partial(call, need_weights=False, is_causal=is_causal),
            }
            seconds: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(43):  # turn by turn, so that a slow moment of the machine slows all three
                for name, run in runs.items():
                    began = time.perf_counter()
                    outputs = run()
                    (outputs if name == "ours" else outputs[0]).sum().backward()
                    seconds[name].append(time.perf_counter() - began)
            kept = {name: times[3:] for name, times in seconds.items()}  # the first ones warm up
            row = {"batch": batch, "tokens": n_tokens, "d_model": d_model, "heads": 8, "is_causal": is_causal}
            row |= {f"{name}_ms": round(1000 * statistics.median(times), 2) for name, times in kept.items()}
            for name in ("pytorch", "pytorch_fused"):
                ratios = [a / b for a, b in zip(kept["ours"], kept[name], strict=True)]
                row[f"ratio_to_{name}"] = round(statistics.median(ratios), 2)
            rows.append(row)
            print(row, flush=True)
    return rows


def checks() -> list[dict[str, Any]]:
    """What the checks of each lesson let through: answers in `tests/answers`, and all small changes of right ones."""
    import importlib
    import types

    from course_utils import syllabus
    from course_utils.exercises.exercise import exercises_of
    from course_utils.exercises.judge import judge
    from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of

    sys.path.insert(0, str(ROOT))
    rows = []
    for lesson in (lesson for lesson in syllabus.LESSONS if lesson.ready):
        exercises = exercises_of(lesson.name)
        right, wrong = (
            [
                (exercises[name.partition("__")[0]], answer)
                for name, answer in vars(importlib.import_module(f"tests.answers.{kind}.{lesson.name}")).items()
                if name.partition("__")[0] in exercises and "__" in name
            ]
            for kind in ("right", "wrong")
        )
        began = time.process_time()
        references = [judge(exercise, exercise.reference).status for exercise in exercises.values()]
        row = {"lesson": lesson.name, "exercises": len(references), "seconds": round(time.process_time() - began, 2)}
        row |= {"right": len(right), "right_passed": sum(judge(*pair).status == "passed" for pair in right)}
        verdicts = [judge(*pair) for pair in wrong]
        row |= {"wrong": len(wrong), "wrong_rejected": sum(v.status == "wrong" for v in verdicts)}
        row |= {"wrong_named": sum(v.mistake is not None for v in verdicts)}
        row |= dict.fromkeys(("changes", "rejected", "equivalent", "unknown", "let_through"), 0)
        for exercise, answer in right:
            for mutant in mutants_of(answer) if isinstance(answer, types.FunctionType) else []:
                row["changes"] += 1
                if is_rejected(exercise, mutant.function()):
                    row["rejected"] += 1
                elif not exercise.samples:
                    row["unknown"] += 1  # nothing is promised for all sizes, so there are no random calls to compare
                elif is_equivalent(exercise, mutant.function()):
                    row["equivalent"] += 1
                else:
                    row["let_through"] += 1
                    print(f"  {answer.__name__}: {mutant.change}", flush=True)
        rows.append(row)
        print(row, flush=True)
    return rows


def _translator_row(run: Callable[[], Any], test: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Call `run`, which trains a translator: the translator, and its CPU seconds, last losses and BLEU by length."""
    from course_utils import metrics
    from course_utils.corpora.english_french import LENGTH_BINS
    from course_utils.lessons.rnn_translator import translate

    began = time.process_time()  # with one thread, what other programs do counts less than on the clock
    trained = run()
    seconds = round(time.process_time() - began, 1)
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    translations = translate(trained.model, sources, trained.english, trained.french)
    bleu = metrics.bleu_by_length(translations, references, list(map(len, sources)), LENGTH_BINS)
    loss = round(sum(trained.losses[-50:]) / 50, 3)
    return trained, {"cpu_seconds": seconds, "loss": loss, "bleu": [round(b, 1) for b in bleu]}


BENCHMARKS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "bottleneck": bottleneck,
    "reversal": reversal,
    "translator": translator,
    "layers": layers,
    "checks": checks,
}


def main(names: list[str]) -> int:
    """Run the named measurements and store them; without a name, list what can be measured."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        print(f"there is no measurement called {', '.join(unknown)}" if unknown else "What can be measured:")
        for name, function in BENCHMARKS.items():
            print(f"  {name:<12}{(function.__doc__ or '').strip()}")
        return 2 if unknown else 0
    for name in names:
        rows = BENCHMARKS[name]()
        path = _FOLDERS[0] / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**_circumstances(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {path.relative_to(ROOT)}")
    return 0


def measured(name: str) -> dict[str, Any]:
    """The stored table `name`: its "rows", and "date", "machine" and "versions". FileNotFoundError if there is none."""
    for folder in _FOLDERS:
        path = folder / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"data/measured/{name}.json is not there; `python -m course_utils bench {name}` makes it")


def _circumstances() -> dict[str, Any]:
    import torch

    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def _processor() -> str:
    """The processor's name where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine() or "unknown processor"
