"""Man pages and completions hold what the parser holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from latprof_agent.cli import RUN_FORMS, SUBCOMMANDS, main


def options_of(capsys, *words: str) -> set[str]:
    """Long options that the help tells."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    return set(re.findall(r"^ +(?:-h, )?(--[a-z0-9-]+)", shown, re.MULTILINE))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of man pages."""
    pytest.importorskip("argparse_manpage")
    folder = tmp_path_factory.mktemp("man1")
    command = [sys.executable, "-m", "latprof_agent.cli.manual", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_every_subcommand_has_a_page_that_renders_without_a_warning(pages):
    names = {"latprof", *(f"latprof-{name}" for name in SUBCOMMANDS)}
    names |= {f"latprof-run-{form}" for form in RUN_FORMS}
    assert {path.name for path in pages.iterdir()} == {f"{n}.1" for n in names}
    if not shutil.which("man"):
        pytest.skip("needs man")
    for path in pages.iterdir():
        shown = subprocess.run(
            ["man", "--warnings=w", "--local-file", path],
            capture_output=True,
            text=True,
            check=True,
            env={"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )
        assert shown.stderr == "", path.name
        assert path.stem in shown.stdout


def test_the_parser_needs_nothing_that_is_compiled(tmp_path):
    """The build makes pages and completions of it, for other machines, too."""
    pytest.importorskip("argparse_manpage")
    run = Path(__file__).parents[2] / "packaging" / "from_sources.py"
    for name in ("numpy", "latprof_agent._drain"):
        refuse = (
            f"import sys; sys.modules[{name!r}] = None; sys.argv = ['', *sys.argv[1:]]"
        )
        code = (
            f"{refuse}; import runpy; runpy.run_path({str(run)!r}, run_name='__main__')"
        )
        for words in (
            ("latprof_agent.cli.manual", str(tmp_path)),
            ("latprof_agent", "completion", "bash"),
        ):
            done = subprocess.run(
                [sys.executable, "-c", code, *words],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr


def test_a_page_has_every_option_and_the_examples_line_by_line(pages, capsys):
    for name in SUBCOMMANDS:
        text = (pages / f"latprof-{name}.1").read_text().replace("\\-", "-")
        missing = options_of(capsys, name) - {"--help"}
        assert {option for option in missing if option not in text} == set(), name
    page = (pages / "latprof-run.1").read_text().replace("\\-", "-")
    assert (
        "\n  latprof run --server 'iperf3 -s -1' -- iperf3 -c {server} -t 2\n" in page
    )


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_bash_completes_every_option_and_choice(name, tmp_path, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "latprof"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> set[str]:
        code = (
            f'source {script}; COMP_WORDS=(latprof "$@"); COMP_CWORD=$#; '
            "${function:=_shtab_latprof}; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        command = ["bash", "-c", code, "bash", *words]
        shown = subprocess.run(command, capture_output=True, check=True, text=True)
        return set(shown.stdout.split())

    assert name in completed("")
    assert options_of(capsys, name) <= completed(name, "--")
    if name == "run":
        assert completed("run", "--protocol", "") == {"tcp", "udp", "both"}
        assert RUN_FORMS.keys() <= completed("run", "")
        assert "--hosts" in completed("run", "mesh", "--")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_theirs(shell, tmp_path, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "fail-if-slower" in text and "no-lab" in text
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    script = tmp_path / shell
    script.write_text(text)
    subprocess.run([shell, "-n", script], check=True, capture_output=True)


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert main(["completion", "bash"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latprof: cannot make completions: shtab is not installed; ")
