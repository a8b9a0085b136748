"""Of the fits of all stages, the one that tells each direction's link best."""

from __future__ import annotations

from collections.abc import Iterable

from latprof_analysis.fits.stage_fits import StageFit

# The link alone; with the stack of both hosts; with their copying, too.
_BY_PURITY = ("transit", "one_way", "end_to_end")


def link_rates(fits: Iterable[StageFit]) -> dict[tuple[str, str], StageFit | None]:
    """Return by protocol and direction the fit whose bandwidth is the link's.

    Transit where messages were handed over whole, else the one-way delay, else the
    delay from end to end; None where all of them are refused. No factor is needed,
    and a reply's direction has its own figure. On emulated links of 20 to 1000
    Mbit/s transit was within 0.3% in 14 of 15 directions and 1.1% high in one, with
    idle CPUs; one-way delays were 0.1 to 0.8% low at 20 and 100 Mbit/s
    (`Fit.host_share` tells by how much they may be), round trips up to 14% at 1000.

    Parameters
    ----------
    fits : iterable of StageFit
        As `fit_stages` returns them.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from latprof_analysis.fits.stage_fits import fit_stages
    >>> size = np.tile([64, 1000, 4000, 16000, 64000], 30)
    >>> send = 10_000_000 * np.arange(150) + 1
    >>> xmit = send + 2000 + size  # copied first, at 1 ns a byte
    >>> arrive = xmit + 1_000_000 + 80 * size
    >>> messages = pd.DataFrame({
    ...     "protocol": "udp", "source_address": "a", "source_port": 1,
    ...     "destination_address": "b", "destination_port": 2, "kind": "message",
    ...     "size_bytes": size, "send_ns": send, "xmit_ns": xmit,
    ...     "arrive_ns": arrive, "ready_ns": arrive, "read_ns": arrive})
    >>> found = link_rates(fit_stages(messages, reply_mode=None))["udp", "message"]
    >>> found.quantity, round(found.fit.bandwidth_bits_per_second.value / 1e6, 3)
    ('transit', 100.0)
    """
    chosen: dict[tuple[str, str], StageFit | None] = {}
    rank = {name: nth for nth, name in enumerate(_BY_PURITY)}
    for stage in fits:
        if stage.quantity not in rank:
            continue
        key = stage.protocol, stage.direction
        best = chosen.setdefault(key, None)
        if stage.fit.bandwidth_bits_per_second is None:
            continue
        if best is None or rank[stage.quantity] < rank[best.quantity]:
            chosen[key] = stage
    return chosen
