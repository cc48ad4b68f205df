"""A second user of the machine has prepared every directory that he may write to: he reads nothing of the broker, and
nothing of his runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.two_users import ONLY_ROOT, SECOND, VICTIM, owned, play, shared_folder

pytestmark = [pytest.mark.processes, ONLY_ROOT]

BROKER = """
import warnings
warnings.simplefilter("ignore")
import encodings.idna, resource, embedded_kafka.embedded, embedded_kafka.serving.serve, kafka.protocol.admin  # what cannot be read afterwards
from embedded_kafka import EmbeddedKafka, Security
from embedded_kafka.log import encode_batch
from embedded_kafka.wire.server import MetadataRequest, ProduceRequest

def broker():
    given = None if sys.argv[2] == "none" else Path(sys.argv[2])
    security = None if sys.argv[3:] == ["open"] else Security("SASL_PLAINTEXT", ("PLAIN",), {"alice": "wonderland"}, acls=True)
    with EmbeddedKafka(data_dir=given, in_process=True, security=security) as kafka:
        if security is None:
            asked = MetadataRequest(version=4, topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
            data = ProduceRequest.TopicProduceData
            part = data.PartitionProduceData(index=0, records=bytes(encode_batch([(None, b"v")], timestamp_ms=1_000)))
            written = ProduceRequest(
                version=7, transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=[data(name="t", partition_data=[part])]
            )
            host, port = kafka.bootstrap_servers.split(":")
            with socket.create_connection((host, int(port))) as client:
                for each in (asked, written):
                    each.with_header(correlation_id=7, client_id="me")
                    client.sendall(each.encode(header=True, framed=True))
                    client.recv(1000)
        places = {str(kafka.data_dir), *(str(each) for each in Path(sys.argv[1]).iterdir() if each.name != "his")}
        os.setresuid(VICTIM, VICTIM, VICTIM)
        return ["started", sorted(places), sorted(str(each) for each in kafka.data_dir.rglob("*"))[:3], second(places)]

def second(places):
    # A process of the second user that was there before.
    asks.sendall(json.dumps(sorted(places)).encode() + b"\\n")
    return json.loads(asks.makefile().readline())

asks, hears = socket.socketpair()
if os.fork() == 0:
    asks.close()
    os.setgroups([]); os.setresgid(SECOND, SECOND, SECOND); os.setresuid(SECOND, SECOND, SECOND)
    line = hears.makefile().readline()
    if line:
        hears.sendall(json.dumps([done for place in json.loads(line) for done in attack(place)]).encode() + b"\\n")
    os._exit(0)
hears.close()
print(json.dumps(as_user(VICTIM, broker)))
"""

CACHE = """
from embedded_kafka.real.cache import cache_dir

print(json.dumps(as_user(VICTIM, lambda: ["kept", str(cache_dir())])))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """As /tmp is."""
    with shared_folder() as folder:
        yield folder


def test_a_broker_without_a_directory_of_its_own_shows_nothing(shared: Path) -> None:
    said, *seen = play(BROKER, shared, "none")  # type: ignore[misc]

    assert said == "started", seen
    places, inside, managed = seen
    assert places and inside and managed == []


def test_a_directory_below_one_that_all_may_write_to_is_made_and_shows_nothing(shared: Path) -> None:
    said, *seen = play(BROKER, shared, shared / "kafka-data")  # type: ignore[misc]

    assert said == "started", seen
    _, inside, managed = seen
    assert inside and managed == []


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755, 0o700])
@pytest.mark.parametrize("below", ["", "data"])
def test_a_directory_that_the_second_user_made_first_is_refused(shared: Path, mode: int, below: str) -> None:
    his = owned(shared / "his", SECOND, mode)

    error, message = play(BROKER, shared, his / below)  # type: ignore[misc]

    assert error in ("OptionsError", "PermissionError"), message
    assert list(his.rglob("*")) == []


def test_his_own_folder_within_a_directory_of_ours_is_refused(shared: Path) -> None:
    """The folder of the users' passwords, made before, where all could write for a while."""
    ours = owned(shared / "kafka-data", VICTIM, 0o755)
    his = owned(ours / "security", SECOND, 0o777)

    error, message = play(BROKER, shared, ours)  # type: ignore[misc]

    assert error == "OptionsError" and "security belongs to another user" in message
    assert list(his.iterdir()) == []


def test_a_link_of_his_leads_nowhere(shared: Path) -> None:
    own = owned(shared / "own", VICTIM, 0o700)
    (shared / "kafka-data").symlink_to(own)
    import os

    os.lchown(shared / "kafka-data", SECOND, SECOND)

    error, message = play(BROKER, shared, shared / "kafka-data")  # type: ignore[misc]

    assert error == "OptionsError" and "kafka-data belongs to another user" in message
    assert list(own.iterdir()) == []


def test_a_directory_that_others_may_enter_shows_no_record(shared: Path) -> None:
    """A group may write to it, as a umask of 002 makes it, and as Kubernetes mounts volumes."""
    ours = owned(shared / "kafka-data", VICTIM, 0o2775)

    said, *seen = play(BROKER, shared, ours, "open")  # type: ignore[misc]

    assert said == "started", seen
    _, _, managed = seen
    assert next(ours.rglob("*.log"))
    shown = {each.removeprefix(f"read {ours}/") for each in managed if each != f"listed {ours}"}
    assert shown <= {".lock", "meta.json", "leader-epochs.json", "latest_producer_id_block", "topics.json"}


@pytest.mark.parametrize("prepared", ["cache", "inside"])
def test_jars_are_not_kept_where_he_could_put_others(shared: Path, prepared: str) -> None:
    his = owned(shared / "cache", SECOND if prepared == "cache" else VICTIM, 0o777 if prepared == "cache" else 0o755)
    if prepared == "inside":
        owned(his / "kafka-eos", SECOND, 0o755)

    error, message = play(CACHE, shared, XDG_CACHE_HOME=his)  # type: ignore[misc]

    assert error in ("LocalError", "PermissionError") and (prepared == "cache" or "belongs to another user" in message)


def test_jars_are_kept_where_only_their_user_could(shared: Path) -> None:
    own = owned(shared / "cache", VICTIM, 0o755)

    assert play(CACHE, shared, XDG_CACHE_HOME=own) == ["kept", str(own / "kafka-eos")]
