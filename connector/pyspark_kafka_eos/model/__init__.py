"""Values that pass between the floors: frozen and picklable.

`values` has the small ones, `basis` what rows are read and judged by, `references` the grammar of secrets that are
named by their place, `seal` what a slot wrote, `routes` by which topics, `decision` what the ledger keeps,
`group_offset` what a consumer group does, `handed_over` the version beside what is pickled, `traffic` what sending a
batch took, `ids` the grammar of transactional ids, `write_settings` the options that tasks need.
"""

from pyspark_kafka_eos.model.basis import DEFAULT_MAX_MESSAGE_BYTES, NO_BASIS, Basis, Expired, TopicRules
from pyspark_kafka_eos.model.decision import (
    LEDGER_FORMAT_VERSION,
    Decision,
    LoggedOffsets,
    planned_ms,
    require_format,
)
from pyspark_kafka_eos.model.group_offset import GroupOffset, GroupOffsets, committed, placed
from pyspark_kafka_eos.model.ids import (
    PipelineId,
    all_ids,
    batch_transactional_id,
    driver_transactional_id,
    notes_transactional_id,
    parse_transactional_id,
    slot_transactional_id,
    writing_ids,
)
from pyspark_kafka_eos.model.routes import RoutedTopic, Routes
from pyspark_kafka_eos.model.seal import KeptPartition, Seal, SealedPartition, StageTask
from pyspark_kafka_eos.model.traffic import Traffic
from pyspark_kafka_eos.model.values import LEAST_DEAD_LETTER_BYTES, ClientSettings, Secret, SecretReference
from pyspark_kafka_eos.model.write_settings import RowOptions, WriteSettings

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "LEAST_DEAD_LETTER_BYTES",
    "LEDGER_FORMAT_VERSION",
    "NO_BASIS",
    "Basis",
    "ClientSettings",
    "Decision",
    "Expired",
    "GroupOffset",
    "GroupOffsets",
    "KeptPartition",
    "LoggedOffsets",
    "PipelineId",
    "RoutedTopic",
    "Routes",
    "RowOptions",
    "Seal",
    "SealedPartition",
    "Secret",
    "SecretReference",
    "StageTask",
    "TopicRules",
    "Traffic",
    "WriteSettings",
    "all_ids",
    "batch_transactional_id",
    "committed",
    "driver_transactional_id",
    "notes_transactional_id",
    "parse_transactional_id",
    "placed",
    "planned_ms",
    "require_format",
    "slot_transactional_id",
    "writing_ids",
]
