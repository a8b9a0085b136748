"""The quick tests decide on a change: no time, no chance, and of each test a case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def collected(*words: str) -> list[str]:
    pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--quiet")
    done = subprocess.run(
        [*pytest, "--collect-only", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE.parents[1],
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def functions(tests: list[str]) -> list[str]:
    return [test.partition("[")[0] for test in tests]


def test_of_tests_that_start_nothing_all_cases_are_quick():
    file = "tests/unit/test_cli.py"
    assert collected(file, "--quick") == collected(file)


def test_of_those_that_start_programs_each_has_its_first_case():
    file = "tests/faults/test_limits.py"
    first = {test.partition("[")[0]: test for test in reversed(collected(file))}
    quick = collected(file, "--quick")
    assert {first[name] for name in functions(quick)} == set(quick)
    assert len(quick) > 10
    thorough = first.keys() - set(functions(quick))
    text = (HERE.parent / "faults" / "test_limits.py").read_text()
    assert len(thorough) == text.count("@pytest.mark.thorough")


def test_what_measures_time_or_is_thorough_is_not_quick():
    files = ("tests/kernel/test_soak.py", "tests/kernel/test_story.py")
    for file in files:
        assert collected(file)
    quick = collected(*files, "tests/unit/test_quick.py", "--quick")
    assert {one.partition("::")[0] for one in quick} == {"tests/unit/test_quick.py"}


def test_what_is_always_tested_is_quick_with_all_cases():
    cases = collected("tests/kernel/test_compilers.py", "--quick")
    assert [one.partition("[")[2] for one in cases] == ["clang-19]"]
