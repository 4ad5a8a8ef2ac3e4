"""The exercise engine: what is recognised, what is said, and that the lesson always goes on."""

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from course_utils import start, strict
from course_utils.exercises import Exercise, Mismatch, expect
from course_utils.exercises import exercise as exercise_module
from course_utils.exercises.compare import difference
from course_utils.exercises.exercise import Check, Mistake
from course_utils.exercises.judge import ShortText, judge
from course_utils.exercises.lesson import Unsolved
from course_utils.exercises.time_limit import OutOfTime, time_limit

STRICT_VARIABLES = strict.VARIABLES


@pytest.fixture(autouse=True)
def relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks do not raise here, although pytest is running."""
    monkeypatch.setattr(strict, "VARIABLES", ())


@pytest.fixture
def names() -> dict[str, Any]:
    """The notebook's globals."""
    return {}


@pytest.fixture
def check(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Check a `softmax` of lesson 00, and give what was printed. Without an argument: what stands there now."""
    lesson = start("start_here", names)

    def run(*answer: Any) -> str:
        if answer:
            names["softmax"] = answer[0]
        lesson.check("softmax")
        return capsys.readouterr().out

    run.lesson = lesson
    return run


def right(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, dim=-1)


def unwritten(scores: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


# ---- verdicts ----------------------------------------------------------------------------------------------


def test_right_answer_passes_and_stays(check, names):
    assert check(right) == "✓ softmax: 6 checks passed\n"
    assert names["softmax"] is right


def test_unwritten_answer_lets_the_reference_stand_in(check, names):
    assert check(unwritten).startswith("○ softmax is not written yet.")
    assert torch.allclose(names["softmax"](torch.zeros(4)), torch.full((4,), 0.25))


def test_stand_in_repeats_the_earlier_verdict(check):
    check(lambda scores: scores)
    again = check()
    assert again.startswith("✗ softmax: 6 of 6 checks failed")
    assert "the old result" in again


def test_a_new_answer_after_the_stand_in_is_checked(check):
    check(unwritten)
    assert check(right).startswith("✓")


def test_undefined_name(check):
    assert "Run the cell above that begins with `def softmax`" in check()


def test_syntax_error_is_named_and_the_reference_stands_in(check, names):
    names["In"] = ["", "x = 1", "def softmax(scores)\n    return scores"]
    text = check()
    assert "not valid Python" in text and "SyntaxError in line 1" in text
    assert callable(names["softmax"])


def test_syntax_error_after_a_right_answer_is_not_hidden_by_it(check, names):
    names["In"] = ["def softmax(scores): return torch.softmax(scores, -1)", "def softmax(scores:\n    return"]
    assert check(right).startswith("✗ softmax: the answer cell is not valid Python")


@pytest.mark.parametrize(
    "newer", ["softmax = nn.Softmax(-1)", "class softmax:\n    pass", "get_ipython().x('def softmax(s): return 1')"]
)
def test_an_older_syntax_error_is_forgotten(check, names, newer):
    names["In"] = ["def softmax(s)\n    return 1", newer]
    assert check(right).startswith("✓")


def test_errors_of_the_compiler_count_too(check, names):
    names["In"] = ["def softmax(scores, scores):\n    return 1"]
    assert "not valid Python" in check(right)


def test_not_a_function(check):
    assert "✗ softmax is not a function" in check(torch.zeros(3))


class Yes:
    """Claims to be equal to everything, and to have everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __getattr__(self, name: str) -> "Yes":
        return self

    def __call__(self, *args: object) -> "Yes":
        return self

    __hash__ = None
    __class__ = torch.Tensor


class RudeError(Exception):
    def __str__(self) -> str:
        raise SystemExit


class YesTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda scores: None, "got      None (is a `return` missing?)"),
        (lambda scores: scores.numpy(), "an object of type ndarray"),
        (lambda scores: right(scores).tolist(), "a list of length 3"),
        (lambda scores: (right(scores),), "a tuple of length 1"),
        (lambda scores: right(scores)[None], "expected shape (3,)\n    but got shape  (1, 3)"),
        (lambda scores: right(scores).double(), "expected dtype float32\n    but got dtype  float64"),
        (lambda scores: right(scores) * float("nan"), "got nan in 3 of 3 places, first at [0]"),
        (lambda scores: right(scores) * 1.01, "the largest error is at [2]: expected 0.6652, got 0.6719"),
        (lambda scores: Yes(), "an object of type Yes"),
        (lambda scores: torch.zeros(3).as_subclass(YesTensor), "an object of type YesTensor"),
        (lambda scores: right(scores).to_sparse(), "an object of type Tensor (torch.sparse_coo, device cpu)"),
        (lambda scores: right(scores).to("meta"), "an object of type Tensor (torch.strided, device meta)"),
        (lambda scores: sys.exit("bye"), "raised SystemExit: bye"),
        (lambda scores: (_ for _ in ()).throw(RudeError()), "raised RudeError: "),
        (lambda: 3, "takes 0 positional arguments"),
        (lambda scores: scores.sub_(1), "changed its input `scores`"),
        (lambda scores: scores @ torch.ones(99), "in this line: (lambda scores: scores @ torch.ones(99)"),
    ],
)
def test_wrong_answers_get_one_clear_message(check, names, answer, said):
    text = check(answer)
    assert text.startswith("✗ softmax: 6 of 6 checks failed")
    assert said in text
    assert len(text.splitlines()) <= 10
    assert torch.allclose(names["softmax"](torch.zeros(2)), torch.tensor([0.5, 0.5]))


def test_endless_recursion(check):
    def softmax(scores):
        return softmax(scores)

    assert "RecursionError" in check(softmax)


def test_known_mistake_is_named_with_its_hint(check):
    text = check(lambda scores: torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True))
    assert "1 of 6 checks failed" in text
    assert "This looks like: exp without subtracting the largest score. exp(1000) is inf" in text


def test_other_mistakes_are_not_named(check):
    assert "This looks like" not in check(lambda scores: right(scores) * 1.01)


def test_pages_of_text_become_a_few_lines(check):
    def softmax(scores):
        for number in range(1000):
            print("line", number)
        return right(scores)

    text = check(softmax)
    assert text.startswith("✓") and "line 7" in text and "line 8" not in text
    assert "… and 7,992 more lines" in text  # eight calls of the answer


def test_short_text_keeps_a_long_line_short():
    text = ShortText()
    for _ in range(100):
        text.write("x" * 1000)
    assert len(str(text)) == ShortText.CHARACTERS


# ---- loops -------------------------------------------------------------------------------------------------


def loop(scores):
    while True:
        pass


def loop_that_swallows_everything(scores):
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722
            continue


def long_wait(scores):
    time.sleep(60)


def loop_that_answers_when_stopped(scores):
    try:
        while True:
            pass
    except BaseException:
        return right(scores)


def loop_that_raises_something_else(scores):
    try:
        while True:
            pass
    except KeyboardInterrupt:
        raise ValueError("mine") from None


@pytest.mark.parametrize(
    "answer",
    [loop, long_wait, loop_that_swallows_everything, loop_that_answers_when_stopped, loop_that_raises_something_else],
)
def test_endless_loops_are_stopped(monkeypatch, answer):
    monkeypatch.setattr(start_here_exercise(), "seconds", 0.3)
    began = time.monotonic()
    verdict = judge(start_here_exercise(), answer)
    assert time.monotonic() - began < 10
    assert verdict.out_of_time and verdict.status == "wrong"
    assert any("a loop that never ends" in r.problem for r in verdict.failed)
    time.sleep(0.2)  # no late interrupt arrives: this line would raise KeyboardInterrupt


def test_time_limit_leaves_a_stop_by_the_user_alone():
    with pytest.raises(KeyboardInterrupt), time_limit(5):
        raise KeyboardInterrupt


def test_time_limit_restores_the_trace_function():
    before = sys.gettrace()
    with pytest.raises(OutOfTime), time_limit(0.1):
        loop(None)
    assert sys.gettrace() is before


def test_fast_code_is_not_interrupted():
    for _ in range(300):
        with time_limit(5):
            pass


def start_here_exercise() -> Exercise:
    return exercise_module.exercises_of("start_here")["softmax"]


# ---- nothing gets out ----------------------------------------------------------------------------------------


def test_random_states_and_modes_are_as_before(check):
    def softmax(scores):
        torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
        torch.set_grad_enabled(False), torch.set_default_dtype(torch.float64)
        return right(scores)

    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    expected = torch.rand(1), random.random(), numpy.random.rand()
    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    check(softmax)
    assert (torch.rand(1), random.random(), numpy.random.rand()) == expected
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32


def test_settings_of_the_notebook_do_not_reach_the_checks(check):
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        with torch.inference_mode(), torch.autocast("cpu"):
            assert check(right).startswith("✓")
            assert "This looks like" not in check(lambda: None)
        assert torch.get_default_dtype() == torch.float64 and torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_settings_of_the_answer_do_not_stay(check):
    depth, folder, threads = sys.getrecursionlimit(), os.getcwd(), torch.get_num_threads()

    def softmax(scores):
        sys.setrecursionlimit(5000), os.chdir("/"), torch.set_num_threads(threads + 1)
        torch.set_default_device("cpu")
        return right(scores)

    assert check(softmax).startswith("✓")
    assert (sys.getrecursionlimit(), os.getcwd(), torch.get_num_threads()) == (depth, folder, threads)


def test_changing_infinities_in_place_is_noticed(check):
    def softmax(scores):
        return right(scores.clamp_(min=torch.finfo(scores.dtype).min))

    assert "changed its input `scores`" in check(softmax)


# ---- strict mode -------------------------------------------------------------------------------------------


def make_strict(monkeypatch, variable):
    monkeypatch.setattr(strict, "VARIABLES", (variable,))
    monkeypatch.setenv(variable, "1")


@pytest.mark.parametrize("variable", ["PYTEST_CURRENT_TEST", "NBGRADER_EXECUTION", "COURSE_STRICT"])
def test_strict_mode_prints_binds_and_raises(check, names, capsys, monkeypatch, variable):
    assert variable in STRICT_VARIABLES
    make_strict(monkeypatch, variable)
    with pytest.raises(Unsolved, match="○ softmax is not written yet") as raised:
        check(unwritten)
    assert capsys.readouterr().out.startswith("○ softmax")
    assert names["softmax"] is start_here_exercise().reference
    assert len(raised.value._render_traceback_()) == 1
    names["softmax"] = right
    check.lesson.check("softmax")


# ---- the rest of a lesson ------------------------------------------------------------------------------------


def test_hints_come_one_by_one_and_then_point_to_the_solution(check, capsys):
    for _ in range(4):
        check.lesson.hint("softmax")
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11] for line in lines[:3]] == ["Hint 1 of 3", "Hint 2 of 3", "Hint 3 of 3"]
    assert 'lesson.solution("softmax")' in lines[3]


def test_solution_shows_the_source(check, capsys):
    check.lesson.solution("softmax")
    assert capsys.readouterr().out.startswith("def softmax(scores")


def test_unknown_exercise_and_unknown_lesson(check):
    with pytest.raises(ValueError, match="this lesson has no exercise 'sofmax'; it has: softmax"):
        check.lesson.check("sofmax")
    with pytest.raises(ValueError, match="no lesson is called 'start_hear'"):
        start("start_hear", {})


def test_try_out_changes_nothing(check, names, capsys):
    check.lesson.try_out("softmax", unwritten)
    assert capsys.readouterr().out.startswith("○")
    assert "softmax" not in names


def test_summary_counts_verdicts_and_points(check, capsys):
    check.lesson.summary()
    assert "0 of 1 exercises solved, 0 of 1 points" in capsys.readouterr().out
    check(right)
    check.lesson.summary()
    assert "1 of 1 exercises solved, 1 of 1 points" in capsys.readouterr().out


def test_claim_prints_one_line_and_raises_in_strict_mode_only(check, capsys, monkeypatch):
    check.lesson.claim("C01", "Quality falls.", True, {"bleu": 3})
    check.lesson.claim("C01", "Quality falls.", torch.tensor(1) > 2)
    assert capsys.readouterr().out == "✓ C01: Quality falls.\n✗ C01: Quality falls.\n"
    make_strict(monkeypatch, "COURSE_STRICT")
    with pytest.raises(Unsolved):
        check.lesson.claim("C01", "Quality falls.", False)
    with pytest.raises(ValueError, match="looks like C01"):
        check.lesson.claim("one", "Quality falls.", True)


def test_start_twice_is_safe_and_seeds(names):
    start("start_here", names)
    first = torch.rand(3)
    start("start_here", names)
    assert torch.equal(first, torch.rand(3))


def test_start_chooses_triton_interpreter_without_a_gpu(names):
    start("start_here", names)
    assert torch.cuda.is_available() or os.environ["TRITON_INTERPRET"] == "1"


# ---- declaring ---------------------------------------------------------------------------------------------


def test_the_name_of_an_exercise_is_the_name_of_its_reference():
    with pytest.raises(ValueError, match="use one name"):
        Exercise("soft_max", reference=right, points=1, seconds=1, minutes=1, hints=())


def test_a_check_that_cannot_use_the_value_says_so():
    def use(answer, rng):
        answer(1).no_such_thing()

    exercise = start_here_exercise()
    broken = Exercise.__new__(Exercise)
    broken.__dict__ = {**exercise.__dict__, "checks": [Check("use", use)], "mistakes": [Mistake("m", "h", right)]}
    assert "could not be used (the int 3)" in judge(broken, lambda x: 3).failed[0].problem


# ---- comparing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3.0),
        (3, True),
        (3.0, 3),
        (3.0, numpy.float64(3.0)),
        (3.0, 3.01),
        ("a", "b"),
        ([1, 2], (1, 2)),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [1, 3]),
        ({"a": 1}, {"a": 2}),
        (None, 0),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1, 2])),
        (torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0]])),
        (torch.tensor([float("nan"), 2.0]), torch.tensor([1.0, 2.0])),
        (torch.tensor([float("-inf"), 2.0]), torch.tensor([float("inf"), 2.0])),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0 + 1e-6, dtype=torch.float64)),
        (1.0, Yes()),
        ([1], Yes()),
    ],
)
def test_expect_tells_apart(expected, got):
    with pytest.raises(Mismatch):
        expect(got, expected, "here")
    assert difference(expected, expected) is None


def test_expect_accepts_rounding():
    expect(torch.tensor([1.0, float("nan")]), torch.tensor([1.00001, float("nan")]), "float32 rounds")
    expect([torch.ones(2), 3], [torch.ones(2), 3], "nested")
    expect(0.1 + 0.2, 0.3, "floats round")


def test_mismatch_shows_the_place_in_a_list():
    with pytest.raises(Mismatch, match=r"at \[1\]:\nexpected 2\ngot      5"):
        expect([1, 5], [1, 2], "the list")
