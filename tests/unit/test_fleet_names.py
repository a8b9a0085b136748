"""Agents by names of DNS: whom a fleet asks while answers change."""

from __future__ import annotations

import socket

import pytest
from latprof_agent.fleet.dns_names import KEPT_SECONDS, Names, NamesThread, addresses_of
from latprof_agent.service.config import Address
from recording import wait_until

NAME = Address("agents.example.org", 9989)


class Answers:
    """DNS, as a test has it say."""

    def __init__(self) -> None:
        self.found: list[str] | OSError = []
        self.now = 0.0
        self.said: list[str] = []
        self.names = Names(self.said.append, self.look_up, lambda: self.now)

    def look_up(self, _name: str) -> list[str]:
        if isinstance(self.found, OSError):
            raise self.found
        return self.found

    def asked(self, after: float, *found: str) -> set[str]:
        """The hosts that are known once it answers so, that much later."""
        self.now += after
        self.found = list(found)
        agents = self.names.ask([NAME])
        assert {agent.port for agent in agents} <= {NAME.port}
        return {agent.host for agent in agents}


def test_all_addresses_are_asked_and_what_is_gone_ages_out():
    dns = Answers()
    assert dns.asked(0, "10.0.0.1", "10.0.0.2") == {"10.0.0.1", "10.0.0.2"}
    assert dns.asked(60, "10.0.0.2", "::1") == {"10.0.0.1", "10.0.0.2", "::1"}
    assert dns.asked(KEPT_SECONDS - 60, "::1") == {"10.0.0.1", "10.0.0.2", "::1"}
    assert dns.asked(1, "::1") == {"10.0.0.2", "::1"}
    assert dns.asked(60, "::1") == {"::1"}
    assert dns.said == []
    assert dns.names.ask([]) == frozenset()


def test_where_dns_does_not_answer_what_is_known_stays_and_it_is_said_once():
    dns = Answers()
    dns.asked(0, "10.0.0.1")
    dns.found = socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
    for _ in range(2):
        assert dns.names.ask([NAME]) == {Address("10.0.0.1", 9989)}
    (line,) = dns.said
    assert line.startswith("cannot find the addresses of agents.example.org: Temporary")
    dns.asked(1, "10.0.0.1")
    dns.found = socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
    dns.names.ask([NAME])
    assert len(dns.said) == 2  # it had an answer meanwhile


def test_addresses_are_those_of_the_system():
    try:
        told = socket.gethostbyname_ex("localhost")[2]
    except OSError:
        pytest.skip("localhost has no address here")
    assert set(told) <= set(addresses_of("localhost"))


def test_a_thread_asks_at_once_what_is_wanted_now():
    dns = Answers()
    dns.found = ["10.0.0.1"]
    thread = NamesThread(dns.names)
    thread.start([NAME])
    wait_until(lambda: thread.agents == {Address("10.0.0.1", 9989)}, "its addresses")
    thread.change([Address("agents.example.org", 1000)])
    wait_until(lambda: thread.agents == {Address("10.0.0.1", 1000)}, "the other port")
    thread.stop()
    thread.check()
