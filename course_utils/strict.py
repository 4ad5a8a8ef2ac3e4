"""Strict mode: a check or a claim that does not pass raises. It belongs to tests and grading, not to a learner."""

import os

VARIABLES = ("PYTEST_CURRENT_TEST", "NBGRADER_EXECUTION", "COURSE_STRICT")


def is_strict() -> bool:
    """Whether somebody tests or grades: nbval, nbgrader, a build, or whoever sets COURSE_STRICT."""
    return any(os.environ.get(name) for name in VARIABLES)
