"""What the client does about each of Kafka's codes: the one table (API, code) -> action."""

from __future__ import annotations

import kafka.errors as library
import pytest

from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, action_for, name_of

INIT = m.InitProducerIdRequest.API_KEY
ADD = m.AddPartitionsToTxnRequest.API_KEY
OFFSETS = m.TxnOffsetCommitRequest.API_KEY
END = m.EndTxnRequest.API_KEY
LIST_OFFSETS = m.ListOffsetsRequest.API_KEY
PRODUCE = m.ProduceRequest.API_KEY
COORDINATED = (INIT, ADD, m.AddOffsetsToTxnRequest.API_KEY, OFFSETS)
EVERY_API = tuple(m.HIGHEST)


def test_the_numbers_are_kafkas() -> None:
    """Checked against the codes of kafka-python, written by somebody else."""
    theirs = {cls.errno: cls for cls in vars(library).values() if isinstance(cls, type) and hasattr(cls, "errno")}
    flat = {code: theirs[code].__name__.removesuffix("Error").lower() for code in Code if code in theirs}
    assert len(flat) > 35
    # The library abbreviates or renames these.
    renamed = {
        Code.UNKNOWN_SERVER_ERROR,
        Code.NONE,
        Code.CORRUPT_MESSAGE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.MESSAGE_TOO_LARGE,
        Code.INVALID_TOPIC_EXCEPTION,
        Code.INVALID_FETCH_SIZE,
        Code.INVALID_REPLICA_ASSIGNMENT,
        Code.INVALID_CONFIG,
        Code.UNSUPPORTED_VERSION,
        Code.KAFKA_STORAGE_ERROR,
    }
    differing = {code for code, name in flat.items() if name != code.name.replace("_", "").lower()}
    assert differing <= renamed, {code.name: flat[code] for code in differing - renamed}


@pytest.mark.parametrize("api", EVERY_API, ids=m.api_name)
def test_no_code_but_none_and_the_duplicate_is_ever_done(api: int) -> None:
    done = {code for code in Code if action_for(api, code) is Action.DONE}
    assert done == ({Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER} if api == PRODUCE else {Code.NONE})


@pytest.mark.parametrize("api", EVERY_API, ids=m.api_name)
def test_an_unheard_of_code_is_a_violation_of_the_protocol(api: int) -> None:
    assert action_for(api, 31_999) is Action.BUG
    assert name_of(31_999) == "error code 31999"


@pytest.mark.parametrize("api", COORDINATED, ids=m.api_name)
@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED])
def test_an_older_epoch_is_fenced_by_the_coordinator(api: int, code: Code) -> None:
    """Rule: seed 001 (safe epoch incrementing, step 3) and seed 004 (zombie fencing); 90 takes 47's place at the
    coordinator since Kafka 2.7 (KIP-588)."""
    assert action_for(api, code) is Action.FENCED


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED])
def test_an_older_epoch_is_fenced_by_the_leader(code: Code) -> None:
    """Rule: seed 003 (recovery, epoch): a partition's leader refuses the records of an older epoch."""
    assert action_for(PRODUCE, code) is Action.FENCED


@pytest.mark.parametrize("api", [*COORDINATED, END, PRODUCE], ids=m.api_name)
@pytest.mark.parametrize(
    "code",
    [
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_a_missing_permission_is_never_retried(api: int, code: Code) -> None:
    """Rule: seed 000 §5.1.1 and §5.5 (server, authorisation): transactional id, cluster and topic rights are told
    apart from everything else, and only an operator can mend them."""
    assert action_for(api, code) is Action.AUTHORIZE


def test_a_timeout_above_the_brokers_cap_is_refused_to_the_user() -> None:
    """Rule: seed 003 (broker configs: max transaction timeout): InitProducerId answers INVALID_TRANSACTION_TIMEOUT."""
    assert action_for(INIT, Code.INVALID_TRANSACTION_TIMEOUT) is Action.REFUSE


def test_a_duplicate_is_a_success() -> None:
    """Rule: seed 004 (How does the idempotent producer work) and seed 003 (idempotence, duplicate): no exception."""
    assert action_for(PRODUCE, Code.DUPLICATE_SEQUENCE_NUMBER) is Action.DONE


@pytest.mark.parametrize("code", [Code.UNKNOWN_PRODUCER_ID, Code.INVALID_PRODUCER_ID_MAPPING])
@pytest.mark.parametrize("api", [*COORDINATED, PRODUCE], ids=m.api_name)
def test_lost_producer_state_aborts_the_transaction_and_not_the_session(api: int, code: Code) -> None:
    """Rule: seed 001 (motivation 2, and InvalidProducerIdMapping): no longer fatal; abort, bump, go on."""
    assert action_for(api, code) is Action.ABORT


@pytest.mark.parametrize("api", [*COORDINATED, END], ids=m.api_name)
def test_a_transaction_that_is_being_completed_is_waited_for(api: int) -> None:
    """Rule: seed 003 (EndTxnRequest: prepare, markers, complete): CONCURRENT_TRANSACTIONS lasts until the markers are
    written."""
    assert action_for(api, Code.CONCURRENT_TRANSACTIONS) is Action.RETRY


@pytest.mark.parametrize("api", [*COORDINATED, END], ids=m.api_name)
@pytest.mark.parametrize("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for_again(api: int, code: Code) -> None:
    """Rule: seed 003 (high availability): the leader of the id's transaction-log partition is the coordinator."""
    assert action_for(api, code) is Action.REDISCOVER


@pytest.mark.parametrize(
    "code",
    [
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.INVALID_TXN_STATE,
        Code.TRANSACTIONAL_ID_NOT_FOUND,
    ],
)
def test_no_refusal_of_an_end_says_how_the_transaction_ended(code: Code) -> None:
    """Design section 3 (proof of outcome): 90, 47, 48 and 49 alone prove nothing."""
    assert action_for(END, code) is Action.PROVE


def test_a_partition_that_the_coordinator_does_not_know_yet_is_asked_again() -> None:
    """A topic that was just created: the coordinator's metadata follows a moment later."""
    for code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.OPERATION_NOT_ATTEMPTED):
        assert action_for(ADD, code) is Action.RETRY


@pytest.mark.parametrize("code", [Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_produce_whose_fate_is_open_is_sent_again(code: Code) -> None:
    """Rule: seed 000 §4 (at least once): uncertain is retried; the sequences make it exactly once."""
    assert action_for(PRODUCE, code) is Action.RETRY


@pytest.mark.parametrize(
    ("api_key", "code"), [(PRODUCE, Code.REQUEST_TIMED_OUT), (LIST_OFFSETS, Code.OFFSET_NOT_AVAILABLE)]
)
def test_a_leader_that_was_cut_off_is_not_asked_for_ever(api_key: int, code: Code) -> None:
    """Rule: seed 000 §4 (at least once). It has nothing replicated, and no high watermark."""
    assert action_for(api_key, code) is Action.REDISCOVER
