"""Whether the codecs of compressed records can be used here: pyarrow and numpy are no requirements of a broker alone.

Owns: the refusal where they are missing.
Does not know: batches, the codecs (`kafka_core.compression`).
"""

from __future__ import annotations

from importlib.util import find_spec

from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code

CODECS = "kafka_core.compression"


def installed() -> bool:
    """Whether they are there. Does not load them, which takes a third of a second."""
    return all(find_spec(name) is not None for name in (CODECS, "pyarrow", "numpy"))


def missing(code: Code, what: str) -> Refused:
    """The refusal of `what`, which cannot be done without them."""
    return Refused(
        code,
        f"{what} needs pyarrow and numpy, which the broker's Python does not have: pip install pyarrow numpy",
    )
