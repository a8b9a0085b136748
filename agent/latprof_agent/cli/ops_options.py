"""The options of `latprof run ops`, and what they ask for."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from latprof_analysis import units

from latprof_agent.cli.host_option import host_and_port

OWN = (
    *("ops", "payload_sizes", "backend", "redis", "endpoint"),
    "redis_parser",
)
TEXT = """\
Do operations on stores of keys, one after the other, and show where each of them
spent its time, beside the floor: the same bytes to latprof's own responder, which
is what the network allows.
"""
_NAMES = {"redis": "redis", "endpoint": "proxystore", "to": "floor"}
_BACKENDS = ("redis", "proxystore", "floor")
_OPS = ("GET", "SET", "EXISTS", "EVICT")
_PARSERS = ("hiredis", "python")
_REDIS_PORT = 6379  # IANA's for redis


def add_options(group: Any) -> None:
    """Add them."""
    group.add_argument(
        "--ops",
        type=_some_of(_OPS, str.upper),
        metavar="OP,...",
        help="with payloads: GET, SET; of a key that is not there: EXISTS, EVICT "
        "(default: all four)",
    )
    group.add_argument(
        "--payload-sizes",
        type=units.listed(units.within(units.size, "1", "10000000")),
        metavar="BYTES,...",
        help="1 to 10000000 (default: 1000,10000,100000,1000000,10000000)",
    )
    group.add_argument(
        "--backend",
        type=_some_of(_BACKENDS, str.lower),
        metavar="NAME,...",
        help="redis; proxystore: an endpoint, of the Python package "
        "proxystore[endpoints]; floor: latprof's own responder with redis' sizes, "
        "what the network allows (default: redis,floor; those of --redis, --endpoint "
        "and --to, which is the floor's)",
    )
    group.add_argument(
        "--redis",
        type=host_and_port(_REDIS_PORT),
        metavar="HOST[:PORT]",
        help="a redis-server that runs already, over this host's own network "
        f"(default: the run starts one in the lab; port: {_REDIS_PORT})",
    )
    group.add_argument(
        "--endpoint",
        type=_uuid,
        metavar="UUID",
        help="a ProxyStore endpoint of yours that runs already (default: the run "
        "starts one in the lab)",
    )
    group.add_argument(
        "--redis-parser",
        choices=_PARSERS,
        default=_PARSERS[0],
        help="what the client of redis reads replies with (default: hiredis)",
    )


def plan_of(
    options: argparse.Namespace,
    client_cpu: int | None,
    server_cpu: int | None,
    **responder: Any,
) -> Any:
    """Make the plan; raises UsageError where options contradict each other.

    `responder`: where that of the floor is, if it is not the lab's.
    """
    from latprof_agent.errors import UsageError
    from latprof_agent.workload import ops

    given = tuple(backend for name, backend in _NAMES.items() if getattr(options, name))
    backends = options.backend or given or ("redis", "floor")
    for wrong, text in (
        (set(backends) - set(given) if given else (), "is for the lab"),
        (set(given) - set(backends), "is given a server"),
    ):
        if wrong:
            name = sorted(wrong)[0]
            raise UsageError(
                f"--backend {','.join(backends)}: {name} {text}; name redis with "
                "--redis, proxystore with --endpoint, floor with --to, or none of "
                "these options; see latprof run --help"
            )
    if options.redis_parser != _PARSERS[0] and "redis" not in backends:
        raise UsageError(
            "--redis-parser: is of the backend redis, not of "
            f"{','.join(backends)}; see latprof run --help"
        )
    return ops.OpsPlan(
        backends=backends,
        ops=options.ops or _OPS,
        sizes=options.payload_sizes or ops.DEFAULT_SIZES,
        rounds=options.rounds or ops.DEFAULT_ROUNDS,
        warmup_rounds=ops.DEFAULT_WARMUP if options.warmup is None else options.warmup,
        redis=options.redis,
        endpoint=options.endpoint or "",
        parser=options.redis_parser,
        client_cpu=client_cpu,
        server_cpu=server_cpu,
        seed=options.seed,
        congestion=options.congestion if options.to else None,
        in_lab=not given,
        **responder,
    )


def _some_of(names: tuple[str, ...], written: Any) -> Any:
    def convert(text: str) -> tuple[str, ...]:
        found = tuple(written(word.strip()) for word in text.split(","))
        if len(set(found)) < len(found) or not set(found) <= set(names):
            known = ", ".join(names)
            raise argparse.ArgumentTypeError(
                f"must be some of {known}, each once, got {text!r}"
            )
        return found

    return convert


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a UUID, got {text!r}") from None
