"""Links to test, removed afterwards."""

import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec

# Below 1280 bytes there is no IPv6 on the link: no packets but the test's own.
MTU_BYTES = 1200


@pytest.fixture
def link(tmp_path):
    """Build a lab whose link is the emulator with these options."""
    labs = []

    def build(*options, **spec):
        spec = {"mtu": MTU_BYTES, "emulator": "always", **spec}
        lab = Lab(LinkSpec(emulator_options=options, **spec), registry=tmp_path)
        labs.append(lab)
        return lab.__enter__()

    yield build
    for lab in labs:
        lab.close()
