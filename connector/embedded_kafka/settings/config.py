"""The broker's settings, under Kafka's names with underscores, with Kafka's defaults unless a comment says otherwise.

Owns: every limit of the broker.
Invariants: every resource has a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class LogConfig:
    """Settings of one partition's log, derived from its topic's configuration."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    """-1: no limit on the age of records."""
    retention_bytes: int = -1
    """-1: no limit on the size of a log."""
    log_append_time: bool = False
    """message.timestamp.type: the broker's time instead of the producer's."""
    timestamp_before_max_ms: int = 2**63 - 1
    """How much older than now a record may be. The default allows any age."""
    timestamp_after_max_ms: int = 60 * 60 * 1000
    """How far ahead of now a record may be: Kafka's default since 4.0 (KIP-1030)."""
    codec: int | None = None
    """compression.type, as the number in a batch's attributes; None: the log keeps each batch as
    its producer packed it."""
    flush_messages: int = 0
    """fsync after this many records; 0: only when a segment is rolled or the log is closed. Acknowledged
    records are in the page cache: they survive SIGKILL of the broker, but not a power loss of the machine."""
    producer_id_expiration_ms: int = DAY_MS
    """Idle producers expire after this time (KIP-854); a producer with an open transaction never does."""
    segment_ms: int = 7 * DAY_MS
    """A record closes the segment when it is later than the segment's first record by more than this."""
    compact: bool = False
    """Keep each key's latest record. Records without a key could never be replaced, so they are rejected."""
    delete_retention_ms: int = DAY_MS
    """How long tombstones, and markers of transactions without records, stay once a cleaner has met them."""
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    internal: bool = False
    """One of the broker's own topics. A start reads all of it, so its active segment may be sealed early."""


@dataclass(frozen=True)
class SecurityConfig:
    """Settings of the one listener: who may connect, and as whom. Paths are of PEM files."""

    protocol: str = "PLAINTEXT"
    keystore_location: str = ""
    """The listener's unencrypted key and its certificate chain, in one file."""
    truststore_location: str = ""
    """The authorities of the clients' certificates."""
    client_auth: str = "none"
    mechanisms: str = ""
    """Names with commas between them."""
    users_file: str = ""
    """The users of PLAIN and SCRAM. A file, because settings are visible in the list of processes."""
    jwks_url: str = ""
    """Where the keys of signed tokens are; empty: tokens are unsecured."""
    audience: str = ""
    """Audiences with commas between them, one of which a token must have; empty: any."""
    issuer: str = ""
    user_claim: str = "sub"
    authorizer: str = ""
    """The class of Kafka's authorizer; empty: everyone may do everything."""
    super_users: str = ""
    """Principals with semicolons between them."""
    allow_everyone: bool = False
    """Whether a resource without ACLs is open to everyone."""
    max_reauth_ms: int = 0
    """A session's length; 0: as long as the credentials are valid."""


@dataclass(frozen=True)
class BrokerConfig:
    """Settings of the whole broker."""

    node_id: int = 0
    transaction_version: int = 2
    """The finalised feature transaction.version: 0 and 1 are version 1's protocol, 2 is KIP-890."""
    two_phase_commit: bool = False
    """transaction.two.phase.commit.enable with InitProducerId v6 offered (KIP-939)."""
    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * DAY_MS
    transaction_state_partitions: int = 50
    offsets_topic_partitions: int = 50
    offsets_retention_ms: int = 7 * DAY_MS
    offset_metadata_max_bytes: int = 4096
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * 60 * 1000
    group_initial_rebalance_delay_ms: int = 0
    """Kafka's default of 3000 only makes tests wait."""
    group_max_size: int = 1_000
    group_coordinator_rebalance_protocols: str = "classic,consumer"
    """Names with commas between them: without "consumer" the APIs of KIP-848 are not offered."""
    group_consumer_assignors: str = "uniform,range"
    """Names with commas between them; the first is the default."""
    group_consumer_heartbeat_interval_ms: int = 1_000
    """Kafka's default of 5000 only makes tests wait: a rebalance takes two or three heartbeats of each member."""
    group_consumer_max_size: int = 1_000
    """Kafka has no limit, but every resource has one here."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_session_timeout_ms: int = 45_000
    broker_session_timeout_ms: int = 0
    """How long a broker of several may be silent before others lead in its place. Kafka's default of 9000 only makes
    tests wait."""
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    max_partitions: int = 20_000
    """Over all topics; the broker rejects a request for more (each partition is a directory)."""
    sweep_interval_ms: int = 100
    """How often timeouts and expiry are checked. Kafka's intervals are 10 s and more;
    tests should not wait."""
    log_retention_check_interval_ms: int = 300_000
    """How often the broker checks every log for records and producers that are too old; the first
    check comes after 30 s, as in Kafka. A test that writes records of 1970 can therefore read them
    before they are removed."""
    cleaner_backoff_ms: int = 15_000
    """How often the cleaner checks compacted topics."""
    socket_request_max_bytes: int = 104_857_600
    small_request_max_bytes: int = 2 * 1024 * 1024
    """For every API but Produce: an array of tiny elements takes about 50 times its bytes once unpacked."""
    max_connections: int = 2_000
    unread_answers_max_bytes: int = 128 * 1024 * 1024
    """Answers that clients have not read, over all connections. Kafka sends records from its files and
    needs no such limit. At half, twenty readers of Kafka's largest answers wait for each other; at
    double, they may take 250 MB."""
    fetch_max_bytes: int = 57_671_680
    max_fetch_wait_ms: int = 5 * 60 * 1000
    log: LogConfig = LogConfig()
    security: SecurityConfig = SecurityConfig()

    @property
    def consumer_protocol(self) -> bool:
        """Whether groups may use the consumer protocol (KIP-848)."""
        return "consumer" in self.group_coordinator_rebalance_protocols.split(",")
