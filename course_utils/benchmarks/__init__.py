"""`python -m course_utils bench NAME`: measurements that take too long for a lesson, one module a lesson.

Each writes `data/measured/NAME.json` with date, machine and versions; the lesson shows that file and says so.
"""

import datetime
import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from course_utils.syllabus import ROOT

# An installed wheel carries the measured tables in the second place (see pyproject.toml).
_FOLDERS = (ROOT / "data" / "measured", Path(sys.prefix) / "share" / "course_utils" / "measured")

# The module of each measurement: a function of the same name in it gives the rows. Several modules may have parts of
# one measurement, each with a table of its own: "NAME_MODULE": "MODULE.NAME". `bench NAME` measures all parts.
BENCHMARKS = {
    "bottleneck": "rnn_translator",
    "reversal": "attention_translator",
    "translator": "attention_translator",
    "scale": "attention_layer",
    "layers": "multi_head",
    "layers_transformer_block": "transformer_block.layers",
    "depth": "transformer_block",
    "recall": "sequence_models",
    "cross_maps": "transformer_translator",
    "late_words": "transformer_translator",
    "layers_language_model": "language_model.layers",
    "scaling": "language_model",
    "copying": "language_model",
    "linear_recall": "fast_decoding",
    "flash": "flash_attention",
    "flash_triton": "flash_triton.flash",
    "layers_pre_norm": "pre_norm.layers",
    "warm_up": "pre_norm",
    "variants": "pre_norm",
    "layers_vision_transformer": "vision_transformer.layers",
    "images_needed": "vision_transformer",
    "checks": "checks",
}


def main(names: list[str]) -> int:
    """Run the named measurements and store them; without a name, list what can be measured."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        print(f"there is no measurement called {', '.join(unknown)}" if unknown else "What can be measured:")
        for name in BENCHMARKS:
            print(f"  {name:<26}{(_find(name).__doc__ or '').strip()}")
        return 2 if unknown else 0
    for part in itertools.chain.from_iterable(map(_parts, names)):
        rows = _find(part)()
        if not rows:  # this machine lacks something, and the measurement has said what
            continue
        path = _FOLDERS[0] / f"{part}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**_circumstances(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {path.relative_to(ROOT)}")
    return 0


def _parts(name: str) -> list[str]:
    return [name, *(part for part, place in BENCHMARKS.items() if place.endswith(f".{name}"))]


def _find(name: str) -> Any:
    module, _, function = BENCHMARKS[name].partition(".")
    return getattr(importlib.import_module(f"course_utils.benchmarks.{module}"), function or name)


def measured(name: str) -> dict[str, Any]:
    """The stored table `name`: its "rows", and "date", "machine" and "versions". FileNotFoundError if there is none."""
    for folder in _FOLDERS:
        path = folder / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"data/measured/{name}.json is not there; `python -m course_utils bench {name}` makes it")


def _circumstances() -> dict[str, Any]:
    import torch

    threads = torch.get_num_threads()
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        **({"gpu": _gpu()} if torch.cuda.is_available() else {}),
    }


def _gpu() -> dict[str, Any]:
    """Name, driver, clocks and limit of power, as NVIDIA's own program tells them, and Triton's version."""
    names = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,memory.total"
    command = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        line = ""
    told: dict[str, Any] = dict(zip(names.split(","), map(str.strip, line.split(",")), strict=False))
    return told | {"triton": importlib.metadata.version("triton")}


def _processor() -> str:
    """The processor's name where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine() or "unknown processor"
