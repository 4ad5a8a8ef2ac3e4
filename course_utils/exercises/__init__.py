"""The exercise engine, and one module a lesson: checks, known mistakes, hints.

A lesson's module needs four names: `Exercise`, `expect`, `gradients` and, for what `expect` cannot say, `Mismatch`.
"""

from course_utils.exercises.compare import Mismatch, expect, gradients
from course_utils.exercises.exercise import Exercise

__all__ = ["Exercise", "Mismatch", "expect", "gradients"]
