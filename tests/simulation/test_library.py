"""asyncio's own loop in a world without sockets."""

from __future__ import annotations

import pytest

from tests.simulation.library import SimLoop
from tests.simulation.network import Net
from tests.simulation.world import Ended, World

pytestmark = pytest.mark.simulation


async def _ends(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "reports"),
    # A kill ended the task. Its report came whenever it was collected: once inside of `ast.parse`, which that broke.
    [(Ended(), 0), (ValueError("a defect of the broker"), 1)],
    ids=["killed", "failed"],
)
def test_only_a_task_that_failed_by_itself_is_reported(
    error: BaseException, reports: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(1)
    loop = SimLoop(Net(world))
    try:
        task = loop.create_task(_ends(error))
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert task.done()
        task.__del__()
    finally:
        loop.close()
        world.close()

    assert len([record for record in caplog.records if record.name == "asyncio"]) == reports
