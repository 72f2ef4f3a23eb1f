"""How long tests of random steps run: a few seconds in the suite, and as long as `PROPERTY_STEPS` says elsewhere."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_STEPS_OF_AN_EXAMPLE = 40
_STEPS_IN_THE_SUITE = 800


def for_steps(in_the_suite: int = _STEPS_IN_THE_SUITE) -> settings:
    """Return settings for at least this many random steps altogether, in the suite or as the environment says."""
    steps = int(os.environ.get("PROPERTY_STEPS", in_the_suite))
    return settings(
        max_examples=-(-steps // _STEPS_OF_AN_EXAMPLE),
        stateful_step_count=_STEPS_OF_AN_EXAMPLE,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # The same steps in each run of the suite; a long run looks for new ones.
        derandomize="PROPERTY_STEPS" not in os.environ,
        database=None,
        # Looking for fewer steps that fail takes minutes, and 40 can be read.
        phases=[Phase.generate],
    )
