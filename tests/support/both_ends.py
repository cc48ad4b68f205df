"""Files of tests are handed out from both ends of their order: one process computes while the others wait.

The order begins with the files that wait for Spark and ends with those that only compute. Taken from the front alone
they leave cores idle first and crowd them afterwards.

Owns: which file a process of xdist is given next.
Does not know: the order, what a file needs.
Invariant: one process takes from the end, all others from the front, and every file is taken once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler.loadfile import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class FromBothEnds(LoadFileScheduling):
    """xdist's own scheduling by files; the process that was ready last has the file that would come last."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
