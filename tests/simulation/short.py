"""Short faults of the request that is sent now, for storms that have many of them.

Owns: how likely each fault is there, and how long it takes.
Does not know: when it strikes, what it does (`requests`).
"""

from __future__ import annotations

from tests.simulation.play import Scene
from tests.simulation.requests import REQUEST_FAULTS, Extent

SHORT = Extent(
    late_s=(0.002, 0.005, 0.02, 0.1),
    outage_s=(0.05, 0.5, 3.0),
    again_s=(0.0, 0.003, 0.02, 0.3),
    refusals=(1, 1, 1, 2),
    answers=(1, 1, 2),
    store_ms=(2, 10, 100),
)

ODDS = {
    "late answer": 20,
    "late request": 20,
    "slow request": 20,
    "refused request": 12,
    "fewer records": 12,
    "done and refused": 6,
    "doubled request": 4,
    "lost answer": 3,
    "lost request": 2,
    "unanswered request": 1,
}
"""How likely each is, where it can meet the request. The last four cost a connection, so they are fewer."""

THIS_REQUEST = "this request"


def this_request(scene: Scene) -> None:
    """A short fault of the request that is sent now; nothing where none can meet its API."""
    api, chance = scene.broker.tap.sending, scene.world.random
    possible = [name for name in ODDS if api in REQUEST_FAULTS[name][1]]
    if possible:
        name = chance.choices(possible, [ODDS[each] for each in possible])[0]
        REQUEST_FAULTS[name][0](scene, api, 1, SHORT)
