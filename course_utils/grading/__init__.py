"""Running a notebook with somebody's answers: which lesson it is, which cells count, the run, the points."""

from __future__ import annotations  # an older Python reads this file too, to say that it is too old

from collections.abc import Mapping


def pytest_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables for a run of pytest, from those of a program: one thread a worker, or two workers fight for the
    cores; no backend that a kernel would inherit, and none of the options that somebody has set for all their runs.
    """
    kept = {name: value for name, value in variables.items() if name not in ("MPLBACKEND", "PYTEST_ADDOPTS")}
    return {"OMP_NUM_THREADS": "1", **kept}
