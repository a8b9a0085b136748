"""A sample of the tests has a case of each that is quick."""

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


def test_each_function_has_a_case_in_the_sample_and_the_same_each_time():
    file = "tests/unit/test_cli.py"
    everything, sample = collected(file), collected(file, "--sample")
    functions = [
        {test.partition("[")[0] for test in one} for one in (everything, sample)
    ]
    assert functions[0] == functions[1]
    assert set(sample) < set(everything)
    assert sample == collected(file, "--sample")


def test_what_is_thorough_is_in_no_sample():
    names = {"test_counts_stay_exact_and_memory_flat_under_churn"}
    file = "tests/kernel/test_soak.py"
    assert {one.partition("::")[2] for one in collected(file)} >= names
    sample = {
        one.partition("::")[2]
        for one in collected(file, "--sample", "tests/unit/test_cli.py")
    }
    assert not names & sample


def test_what_is_always_tested_is_in_the_sample_with_all_cases():
    cases = collected("tests/kernel/test_compilers.py", "--sample")
    assert [one.partition("[")[2] for one in cases] == ["clang-19]"]
