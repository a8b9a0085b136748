"""Without a compiler the set-up takes a wheel that was put beside it."""

import os
import platform

import pytest
import tiny_backend

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def put_wheel(machine, monkeypatch):
    """Put a wheel of another program than the checkout's into a folder of it."""

    def put(folder, said):
        into = machine.checkout / folder
        into.mkdir(exist_ok=True)
        monkeypatch.chdir(machine.checkout)
        program = machine.checkout / "agent" / "latprof_agent" / "cli" / "__init__.py"
        text = program.read_text()
        program.write_text(f"def main(): print({said!r})\n")
        built = into / tiny_backend.build_wheel(into)
        program.write_text(text)
        built.rename(into / f"latprof-1.0-py3-none-linux_{platform.machine()}.whl")

    return put


@pytest.mark.parametrize("folder", ["dist", "packaging"])
def test_a_wheel_is_taken_where_nothing_compiles(machine, put_wheel, folder):
    machine.lacks = ["clang"]
    put_wheel(folder, "of the wheel")
    first = machine.call("run")
    assert (first.returncode, first.stdout) == (0, "of the wheel\n"), first.stderr
    assert "latprof-setup: installing latprof-1.0-" in first.stderr
    put_wheel(folder, "of the next one")
    assert machine.call("run").stdout == "of the next one\n"
    assert machine.call("run").stderr == ""
    assert machine.at("/usr/local/share/man/man1/latprof.1").is_symlink()


@pytest.mark.thorough
def test_the_checkout_is_built_where_there_is_a_compiler(machine, put_wheel):
    put_wheel("dist", "of the wheel")
    ended = machine.call("run")
    assert ended.returncode == 0, ended.stderr
    assert "latprof-setup: building latprof\n" in ended.stderr
    assert "of the wheel" not in ended.stdout
