"""Batches that begin in one process and are committed in another. `phases` has the three calls, `going_on` the cheap
beginning.
"""

from pyspark_kafka_eos.commit.handover.phases import begin, finish, give_up
from pyspark_kafka_eos.commit.run import Handover

__all__ = ["Handover", "begin", "finish", "give_up"]
