"""The machines that packaging/latprof sets up in these tests."""

import pytest
from small_machine import SmallMachine


@pytest.fixture
def machine(tmp_path):
    return SmallMachine(tmp_path)


@pytest.fixture(scope="session")
def set_up_once(tmp_path_factory):
    machine = SmallMachine(tmp_path_factory.mktemp("machine"))
    ended = machine.call("install")
    assert ended.returncode == 0, ended.stderr
    return machine


@pytest.fixture
def installed(set_up_once, tmp_path):
    """A machine on which version 1.0 works."""
    return SmallMachine(tmp_path, like=set_up_once)
