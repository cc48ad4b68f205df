"""Compare-and-set on the node of a real ZooKeeper, with answers lost and others at work."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from embedded_kafka.producer_ids.allocator import ProducerIds
from embedded_kafka.producer_ids.block import MAX_PRODUCER_ID, Block, encode, parse
from embedded_kafka.producer_ids.zookeeper import PATH, ZooKeeperBlocks
from embedded_kafka.real import LocalZooKeeper
from kafka_core.errors import AuthorizationFailed, BlocksUnavailable, GarbledBlock, ProducerIdsExhausted
from tests.embedded_kafka.producer_ids.proxy import LosingProxy

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]
WITHIN_MS = 30_000
_names = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[LocalZooKeeper]:
    """One for all; every test has a chroot of its own."""
    with LocalZooKeeper() as started:
        yield started


@pytest.fixture
def chroot(server: LocalZooKeeper) -> str:
    """Does not exist yet."""
    return f"/test-{next(_names)}"


@pytest.fixture
def judge(server: LocalZooKeeper, chroot: str) -> Iterator[KazooClient]:
    """Looks at the node and changes it, by kazoo itself."""
    client = KazooClient(server.hosts)
    client.start()
    client.create(chroot)
    client.chroot = chroot
    yield client
    client.stop()
    client.close()


@pytest.fixture
def proxy(server: LocalZooKeeper) -> Iterator[LosingProxy]:
    """In front of the server."""
    between = LosingProxy(server.hosts)
    yield between
    between.close()


@pytest.fixture
def store(server: LocalZooKeeper, chroot: str) -> Iterator[Callable[..., ZooKeeperBlocks]]:
    """Makes stores: of broker 1, straight to the server, in this test's chroot."""
    with ExitStack() as closing:

        def make(hosts: str = server.hosts, broker_id: int = 1) -> ZooKeeperBlocks:
            made = ZooKeeperBlocks(hosts + chroot, broker_id)
            closing.callback(made.close)
            return made

        yield make


Make = Callable[..., ZooKeeperBlocks]


def kept(judge: KazooClient) -> Block:
    return parse(judge.get(PATH)[0])


def test_the_first_block_is_0_to_999_and_makes_the_node_in_kafkas_json(store: Make, judge: KazooClient) -> None:
    """Rule: seed 000 §5.1.2: the node is not there yet, so 0 to 999."""
    assert store(broker_id=35).claim() == Block(0, 999)

    assert judge.get(PATH)[0] == b'{"version":1,"broker":35,"block_start":"0","block_end":"999"}'


def test_the_next_block_is_behind_the_one_that_another_broker_claimed(store: Make, judge: KazooClient) -> None:
    """Rule: seed 000 §5.1.2: read, take the segment behind block_end, write it back."""
    judge.create(PATH, b'{"version":1,"broker":35,"block_start":"4000","block_end":"4999"}')

    assert store().claim() == Block(5000, 5999)
    assert kept(judge) == Block(5000, 5999)


def test_a_node_without_data_as_kafkas_brokers_make_it_is_no_block_yet(store: Make, judge: KazooClient) -> None:
    judge.create(PATH, None)
    assert judge.get(PATH)[0] is None

    assert store().claim() == Block(0, 999)


def test_a_chroot_that_is_not_there_is_made(store: Make, server: LocalZooKeeper, chroot: str) -> None:
    store().claim()

    assert server.has(chroot + PATH)


@pytest.mark.parametrize("exists", [False, True], ids=["creating", "setting"])
def test_who_loses_the_race_reads_again_and_takes_the_next(
    exists: bool, store: Make, judge: KazooClient, proxy: LosingProxy
) -> None:
    """Rule: seed 000 §5.1.2: compare-and-set on the version, again until it wins."""
    first, second = store(proxy.hosts), store(broker_id=2)
    if exists:
        judge.create(PATH, encode(Block(0, 999), 9))
    won: list[Block] = []
    proxy.before_write = lambda: won.append(second.claim())

    lost_at_first = first.claim()

    start = 1000 if exists else 0
    assert won == [Block(start, start + 999)], "the race did not take place"
    assert lost_at_first == Block(start + 1000, start + 1999)


def test_eight_that_begin_at_once_get_eight_different_blocks(store: Make) -> None:
    claimed: list[Block] = []
    ready = threading.Barrier(8)

    def claim(mine: ZooKeeperBlocks) -> None:
        ready.wait()
        claimed.extend(mine.claim() for _ in range(5))

    threads = [threading.Thread(target=claim, args=(store(broker_id=number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_MS / 1000)

    assert sorted(block.start for block in claimed) == list(range(0, 40_000, 1000))


@pytest.mark.parametrize("exists", [False, True], ids=["creating", "setting"])
def test_a_block_whose_answer_was_lost_is_abandoned_and_the_one_behind_it_is_claimed(
    exists: bool, store: Make, judge: KazooClient, proxy: LosingProxy
) -> None:
    mine = store(proxy.hosts)
    if exists:
        judge.create(PATH, encode(Block(0, 999), 9))
    start = 1000 if exists else 0
    proxy.lose = "answer"

    with pytest.raises(BlocksUnavailable, match="abandoned") as refused:
        mine.claim()

    assert proxy.fired == 1
    assert refused.value.facts == {"outcome": "unknown", "block_start": start, "block_end": start + 999}
    assert kept(judge) == Block(start, start + 999), "the write was applied"
    assert mine.claim() == Block(start + 1000, start + 1999)


def test_a_write_that_never_arrived_changed_nothing_and_its_numbers_are_claimed_by_a_new_one(
    store: Make, judge: KazooClient, proxy: LosingProxy
) -> None:
    judge.create(PATH, encode(Block(0, 999), 9))
    mine = store(proxy.hosts)
    proxy.lose = "request"

    with pytest.raises(BlocksUnavailable) as refused:
        mine.claim()

    assert proxy.fired == 1
    assert refused.value.facts["outcome"] == "unknown"
    assert kept(judge) == Block(0, 999)
    assert mine.claim() == kept(judge) == Block(1000, 1999)


def test_the_same_bytes_by_another_process_under_the_same_id_are_not_taken_for_the_own_write(
    store: Make, judge: KazooClient, proxy: LosingProxy
) -> None:
    """Both read one version and write the same; the twin's is applied, and the answer to ours is lost."""
    first, twin = store(proxy.hosts), store()
    judge.create(PATH, encode(Block(0, 999), 9))
    won: list[Block] = []
    proxy.before_write = lambda: won.append(twin.claim())
    proxy.lose = "answer"

    with pytest.raises(BlocksUnavailable) as refused:
        first.claim()

    assert proxy.fired == 1
    assert won == [kept(judge)] == [Block(1000, 1999)]
    assert refused.value.facts["block_start"] == 1000, "both wrote the same"
    assert first.claim() == Block(2000, 2999)


def test_ids_of_an_abandoned_block_are_never_handed_out(store: Make, judge: KazooClient, proxy: LosingProxy) -> None:
    proxy.lose = "answer"
    ids = ProducerIds(store(proxy.hosts))
    ids.start()

    assert ids.wait_until_ready(WITHIN_MS)

    assert proxy.fired == 1
    assert ids.next_id() == 1000
    ids.close()


@pytest.mark.parametrize("content", [b"garbled", b"", b'{"version":1}'])
def test_a_garbled_node_hands_out_nothing_and_is_not_written(content: bytes, store: Make, judge: KazooClient) -> None:
    judge.create(PATH, content)

    with pytest.raises(GarbledBlock, match="no id was handed out"):
        store().claim()

    data, stat = judge.get(PATH)
    assert (data, stat.version) == (content, 0)


def test_when_all_ids_are_claimed_the_node_is_not_written(store: Make, judge: KazooClient) -> None:
    """Rule: seed 000 §5.1.2: exhaustion is fatal."""
    judge.create(PATH, encode(Block(0, 9), 1))
    judge.set(PATH, encode(Block(MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID), 1))

    with pytest.raises(ProducerIdsExhausted, match=r"Have exhausted all producerIds\."):
        store().claim()

    assert judge.get(PATH)[1].version == 1


def test_a_node_that_goes_back_does_not_bring_the_own_ids_back(store: Make, judge: KazooClient) -> None:
    mine = store()
    mine.claim()
    judge.delete(PATH)
    assert mine.claim() == Block(1000, 1999)
    judge.set(PATH, encode(Block(0, 999), 9))

    assert mine.claim() == kept(judge) == Block(2000, 2999)


@pytest.mark.parametrize(
    ("allowed", "forbidden"), [({"read": True}, "write"), ({"write": True}, "read")], ids=["write", "read"]
)
def test_an_acl_that_forbids_it_is_named(
    allowed: dict[str, bool], forbidden: str, store: Make, judge: KazooClient
) -> None:
    judge.create(PATH, encode(Block(0, 999), 9))
    judge.set_acls(PATH, [make_digest_acl("other", "secret", all=True), make_acl("world", "anyone", **allowed)])

    with pytest.raises(AuthorizationFailed, match=forbidden) as refused:
        store().claim()

    assert refused.value.facts["operation"] == forbidden


def test_closing_ends_the_session_and_its_threads(store: Make) -> None:
    before = set(threading.enumerate())
    mine = store()
    mine.claim()
    assert set(threading.enumerate()) - before

    mine.close()

    assert not set(threading.enumerate()) - before


def test_ids_go_on_by_themselves_after_zookeeper_was_killed_and_came_back(server: LocalZooKeeper, store: Make) -> None:
    """Rule: seed 000 §5.1.2: a block is never reused after a crash, here of ZooKeeper."""
    ids = ProducerIds(store())
    ids.start()
    assert ids.wait_until_ready(WITHIN_MS)
    drawn = [ids.next_id()]

    server.kill()
    # The block at hand is used up, and the next one too if it was there in time.
    use_up(ids, drawn)
    assert ids.wait_until_ready(1) is False
    server.restart()

    assert ids.wait_until_ready(WITHIN_MS)
    assert drawn == list(range(len(drawn)))
    assert ids.next_id() >= len(drawn) >= 1000
    ids.close()


def use_up(ids: ProducerIds, drawn: list[int]) -> None:
    """Until the refusal."""
    with pytest.raises(BlocksUnavailable):  # noqa: PT012 -- which call is refused depends on what was fetched ahead
        while True:
            drawn.append(ids.next_id())
