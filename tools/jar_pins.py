"""Writes the hashes of the jars that the tests fetch: `python -m tools.jar_pins`, after a new version of Kafka is used.

It takes the jars of the cache as they are: look at the difference that it makes. A line that changes for a version that
was there before is another file under the same name.
"""

from __future__ import annotations

from embedded_kafka.real.cache import cache_dir
from embedded_kafka.real.pins import PINS, hashes, text_of


def main() -> None:
    """Every complete directory of the cache."""
    jars = cache_dir() / "jars"
    complete = [each for each in jars.iterdir() if each.is_dir() and not each.name.endswith((".ivy", ".unfinished"))]
    PINS.write_text(text_of(hashes(complete)))


if __name__ == "__main__":
    main()
