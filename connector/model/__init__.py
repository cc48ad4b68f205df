"""Values that pass between the floors: frozen and picklable.

`values` has the small ones, `basis` what rows are read and judged by, `references` the grammar of secrets that are named by their place, `seal` what a slot wrote, `routes` by which topics,
`decision` what the ledger keeps, `group_offset` what a consumer group does, `handed_over` the version beside what is pickled, `traffic` what
sending a batch took, `ids` the grammar of transactional ids, `write_settings` the options that tasks need.
"""

from connector.model.basis import DEFAULT_MAX_MESSAGE_BYTES, NO_BASIS, Basis, Expired, TopicRules
from connector.model.decision import (
    LEDGER_FORMAT_VERSION,
    Decision,
    LoggedOffsets,
    planned_ms,
    require_format,
)
from connector.model.group_offset import GroupOffset, GroupOffsets, committed, placed
from connector.model.ids import (
    PipelineId,
    batch_transactional_id,
    driver_transactional_id,
    parse_transactional_id,
    slot_transactional_id,
)
from connector.model.routes import RoutedTopic, Routes
from connector.model.seal import KeptPartition, Seal, SealedPartition, StageTask
from connector.model.traffic import Traffic
from connector.model.values import (
    LEAST_DEAD_LETTER_BYTES,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ClientSettings,
    ProducerIdentity,
    Secret,
    SecretReference,
    TopicPartition,
    by_topic,
)
from connector.model.write_settings import DEFAULT_UNPACKED_BYTES, RowOptions, WriteSettings

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "DEFAULT_UNPACKED_BYTES",
    "LEAST_DEAD_LETTER_BYTES",
    "LEDGER_FORMAT_VERSION",
    "NO_BASIS",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "Basis",
    "ClientSettings",
    "Decision",
    "Expired",
    "GroupOffset",
    "GroupOffsets",
    "KeptPartition",
    "LoggedOffsets",
    "PipelineId",
    "ProducerIdentity",
    "RoutedTopic",
    "Routes",
    "RowOptions",
    "Seal",
    "SealedPartition",
    "Secret",
    "SecretReference",
    "StageTask",
    "TopicPartition",
    "TopicRules",
    "Traffic",
    "WriteSettings",
    "batch_transactional_id",
    "by_topic",
    "committed",
    "driver_transactional_id",
    "parse_transactional_id",
    "placed",
    "planned_ms",
    "require_format",
    "slot_transactional_id",
]
