"""The agent as a service: one thread measures, another answers scrapers."""

from __future__ import annotations

import os
import platform
import select
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from latprof_analysis.calling_user import User
from latprof_analysis.version import VERSION
from prometheus_client.process_collector import ProcessCollector

from latprof_agent import _drain, privileges
from latprof_agent.containers.container import Container
from latprof_agent.containers.listing_child import ListingChild
from latprof_agent.containers.runtime import List, list_containers
from latprof_agent.errors import ContainerError, LatprofError, StoreError, remedy
from latprof_agent.foreign_files import open_regular
from latprof_agent.monitor.monitor import TakesSample
from latprof_agent.monitor.producer import Producer
from latprof_agent.monitor.totals import Totals
from latprof_agent.service.config import ALL, Address, Config, Tls
from latprof_agent.service.metrics.families import Family, counter, gauge
from latprof_agent.service.published_sample import PublishedSample
from latprof_agent.service.service_manager import (
    READY,
    STOPPING,
    ServiceManager,
    reloading,
)
from latprof_agent.service.states import States
from latprof_agent.service.web.hosts import Hosts, own_names
from latprof_agent.service.web.passwords import Passwords
from latprof_agent.service.web.routes import Pages, Settings
from latprof_agent.service.web.server import Server, ServerThread
from latprof_agent.service.web.story_pages import StoryPages
from latprof_agent.story.live_stories import Story, TakesStory
from latprof_agent.story.story_folder import TOKEN, StoryFolder
from latprof_agent.watched_thread import Apart

_READ_SECONDS = 10.0  # that the configuration may take
_BACKLOG = 128
_process = ProcessCollector(registry=None)

Say = Callable[[str], None]
_Read = tuple[Config, list[str], ssl.SSLContext | None]


class Monitor(Producer, Protocol):
    """What measures, and can be loaded before it starts."""

    notice: Callable[[str], None]
    takes_stories: list[TakesStory]
    takes_sample: TakesSample | None

    @property
    def step_seconds(self) -> float: ...

    def load(self) -> None: ...


class _Wake:
    """Lets one thread, or a signal, wake another."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        os.eventfd_write(self._event, 1)

    def wait(self, seconds: float) -> None:
        if select.select([self._event], [], [], seconds)[0]:
            os.eventfd_read(self._event)


class Service:
    """Measures and answers from `run` until a signal ends it."""

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config],  # raises LatprofError
        monitor: Monitor,
        listener: socket.socket,
        say: Say,
        stories: StoryFolder | None = None,
    ) -> None:
        self._config = config
        self._stories = stories
        if stories:
            monitor.takes_stories.append(self._keep)
        self._sample = PublishedSample() if config.samples else None
        monitor.takes_sample = self._sample
        self._reread = reread
        self._monitor = monitor
        self._say = say
        self._wake = _Wake()
        self._ending = self._reload_asked = False
        self._reading: Apart[_Read] | None = None
        self._reloaded, self._reloaded_at = True, time.time()
        self._manager = ServiceManager()
        self._states = States(self._wake.set)
        self._pages = Pages(
            self._states,
            _settings(config),
            self._own_families,
            StoryPages(stories) if stories else None,
            self._sample,
        )
        self._server = Server(listener, self._pages.respond, tls_context(config.tls))

    def end(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; for signals."""
        self._ending = True
        self._wake.set()

    def reload(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Read the configuration again soon; for signals."""
        self._reload_asked = True
        self._wake.set()

    def run(self, ready: str) -> None:
        """Measure and answer until the end; `ready` is said once it does.

        The monitor is loaded and attached.
        """
        thread = ServerThread(self._server)
        thread.start()
        self._states.ready = True
        self._manager.notify(READY)
        self._say(ready)
        try:
            while not self._ending:
                thread.check()
                self._monitor.step()
                self._states.answer(self._totals)
                self._manager.alive()
                self._read_again()
                self._wake.wait(self._monitor.step_seconds)
        finally:
            self._manager.notify(STOPPING)
            thread.stop()

    def _keep(self, story: Story, document: dict[str, Any]) -> None:
        assert self._stories
        try:
            self._stories.add(story, document)
        except StoreError as error:
            self._say(str(error))

    def _totals(self) -> Totals:
        """A state; of stories those that are there to be read."""
        found = self._monitor.totals()
        if self._stories and found.story_counts is not None:
            kept = {k: s for k, s in found.stories.items() if s["id"] in self._stories}
            counts = found.story_counts | {"not_written": self._stories.failed}
            return replace(found, stories=kept, story_counts=counts)
        return found

    def _read_again(self) -> None:
        """Take over what was read apart: a file may keep its reader waiting."""
        if self._reload_asked and not self._reading:
            self._reload_asked = False
            self._manager.notify(reloading())
            self._reading = Apart("reading it", _READ_SECONDS, self._read)
        if not self._reading or not self._reading.is_over:
            return
        read, self._reading = self._reading, None
        before = self._config
        try:
            later, waiting, self._server.tls = read.result()
            settings = _settings(later)
            if later.watched != before.watched:
                self._monitor.watch(later.watched)
        except (LatprofError, TimeoutError) as error:
            self._reloaded = False
            self._say(f"the configuration stays as it was: {error}")
        else:
            self._config, self._pages.settings = later, settings
            self._reloaded, self._reloaded_at = True, time.time()
            if later.by != before.by:  # loads anew: where that fails, all ends
                self._monitor.group_by(later.by)
            for name in waiting:
                self._say(f"{name} changes with the next start")
        self._manager.notify(READY)

    def _read(self) -> _Read:
        """What may change, and what waits for the next start; raises LatprofError."""
        later, waiting = self._config.fixed_in(self._reread())
        return later, waiting, tls_context(later.tls)

    def _own_families(self) -> Iterator[Family]:
        """What is known of this process."""
        labels = {"version": VERSION, "kernel": platform.release()}
        yield gauge("latprof_build_info", "This version of latprof.", [(labels, 1)])
        yield gauge(
            "latprof_config_last_reload_successful",
            "1 where the configuration in use is that of the last SIGHUP or start.",
            [({}, int(self._reloaded))],
        )
        yield gauge(
            "latprof_config_last_reload_success_timestamp_seconds",
            "When the configuration in use was read.",
            [({}, self._reloaded_at)],
        )
        yield counter(
            "latprof_http_refused",
            "Requests and connections that were not served.",
            [({"cause": c}, n) for c, n in sorted(self._server.refused.items())],
        )
        if self._sample:
            yield counter(
                "latprof_sample_records",
                "Records of the sample that were handed out at /samples, or fell out "
                "of memory before.",
                [({"outcome": o}, n) for o, n in sorted(self._sample.outcomes.items())],
            )
        if self._stories:
            kept = self._stories.kept()
            yield gauge("latprof_stories_kept", "In story_dir.", [({}, len(kept))])
            yield gauge(
                "latprof_stories_kept_bytes",
                "Of their files.",
                [({}, sum(one.size_bytes for one in kept))],
            )
        yield from _process.collect()


def serve(
    config: Config,
    reread: Callable[[], Config],
    make_monitor: Callable[[Config, Callable[[], int], List], Monitor],
    say: Say,
) -> None:
    """Become another user, load and serve until SIGTERM or SIGINT; SIGHUP reloads.

    `make_monitor` is given what switches on the kernel's statistics of programs, and
    what lists containers.
    """
    user = privileges.service_user(config.user)
    keeper = privileges.StatisticsKeeper(user, _drain.statistics)
    try:
        with (
            _runtime(config, user) as ask,
            listening(config.listen) as listener,
            closing(make_monitor(config, keeper.switch_on, ask)) as monitor,
            _story_folder(config, user) as stories,  # last, as it leaves something
        ):
            service = Service(config, reread, monitor, listener, say, stories)
            monitor.notice = say
            for number, handler in (
                (signal.SIGTERM, service.end),
                (signal.SIGINT, service.end),
                (signal.SIGHUP, service.reload),
            ):
                signal.signal(number, handler)
            # the last removes what root made, where the start fails
            until_loaded = *privileges.LOADING, privileges.CAP_DAC_OVERRIDE
            privileges.drop(user, until_loaded)
            monitor.load()
            # before any thread is started: each has capabilities of its own
            privileges.drop(user)
            if stories:
                stories.begin()
            monitor.start()
            try:
                service.run(_ready(config, user, listener))
            finally:
                monitor.stop()
    finally:
        keeper.close()


@contextmanager
def _runtime(config: Config, user: User) -> Iterator[List]:
    """Give what lists containers: a child, if names are wanted."""
    if not config.by.asks_runtime:
        yield _lists_nothing
        return
    child = ListingChild(user, partial(list_containers, config.runtime))
    try:
        yield child.list_containers
    finally:
        child.close()


def _lists_nothing() -> list[Container]:
    raise ContainerError(
        "what is asked for lists is started where `by` needs it; start the agent again"
    )


@contextmanager
def _story_folder(config: Config, user: User) -> Iterator[StoryFolder | None]:
    """Make the folder of stories, if any is wanted; what fails leaves none behind."""
    if not config.story_dir:
        yield None
        return
    bounds = config.story_count, config.story_bytes
    stories = StoryFolder(config.story_dir, user, *bounds, config.story_group)
    try:
        yield stories
    except BaseException:
        stories.discard()
        raise


@contextmanager
def listening(where: Address) -> Iterator[socket.socket]:
    """Listen there, or raise LatprofError."""
    try:
        listener = _listener(where)
    except OSError as error:
        named = isinstance(error, socket.gaierror)
        why = error.strerror if named else os.strerror(error.errno or 0)
        todo = remedy(error.errno, "choose another --listen")
        raise LatprofError(f"cannot listen on {where}: {why}; {todo}") from error
    with listener:
        yield listener


def _listener(where: Address) -> socket.socket:
    if where.host == ALL:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(
            ("", where.port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual
        )
    found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    family, *_, bound = found[0]
    return socket.create_server(bound[:2], family=family, backlog=_BACKLOG)


def _ready(config: Config, user: User, listener: socket.socket) -> str:
    """Say who serves where; and how to come to stories, where no password leads."""
    locked = config.story_dir and not config.users
    key = f", stories with the token in {config.story_dir}/{TOKEN}" if locked else ""
    return f"as user {user.name}{key}: {_url(config, listener)}"


def _url(config: Config, listener: socket.socket) -> str:
    scheme = "https" if config.tls else "http"
    return f"{scheme}://{Address(*listener.getsockname()[:2])}/metrics"


def _settings(config: Config) -> Settings:
    return Settings(
        Hosts({*own_names(), config.listen.host.lower(), *config.hosts}),
        Passwords(config.users),
        config.edges,
        {"version": VERSION, "told apart by": ", ".join(config.by.by)},
    )


def _opened(path: Path, stack: ExitStack) -> str:
    """Open a file until the stack ends, and return where it can be read."""
    descriptor, _ = open_regular(path)
    stack.callback(os.close, descriptor)
    return f"/proc/self/fd/{descriptor}"


def _no_password() -> bytes:
    return b""  # instead of asking at a terminal


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """Read certificate and key, or raise LatprofError."""
    if not tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        with ExitStack() as stack:
            certificate = _opened(tls.certificate, stack)
            context.load_cert_chain(certificate, _opened(tls.key, stack), _no_password)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise LatprofError(
            f"cannot use {tls.certificate} with {tls.key}: {why}; give the "
            "certificate and its own key, as PEM and without a password"
        ) from error
    return context
