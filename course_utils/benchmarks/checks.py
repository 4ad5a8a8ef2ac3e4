"""What the checks of all lessons let through."""

import importlib
import sys
import time
import types
from typing import Any

from course_utils import syllabus
from course_utils.exercises.exercise import exercises_of
from course_utils.exercises.judge import judge
from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of


def checks() -> list[dict[str, Any]]:
    """What the checks of each lesson let through: answers in `tests/answers`, and all small changes of right ones."""

    sys.path.insert(0, str(syllabus.ROOT))
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
        row: dict[str, Any] = {"lesson": lesson.name, "exercises": len(references)}
        row["seconds"] = round(time.process_time() - began, 2)
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
