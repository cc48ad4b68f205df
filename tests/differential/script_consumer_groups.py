"""Groups of the consumer protocol (KIP-848): joining, reconciling, fencing, static members, offsets, and groups that
pass from one protocol to the other.
"""

from __future__ import annotations

from typing import Any

from tests.differential.play import Play, Transaction
from tests.differential.script import scenario
from tests.differential.script_offsets import SUBSCRIPTION

PARTITIONS = 4
_VERSION = 1


class Group:
    """One group, and the topic that its members read."""

    def __init__(self, play: Play, partitions: int = PARTITIONS) -> None:
        self.play = play
        self.name = play.name("group")
        self.topic = play.topic(partitions)
        asked = [{"topic_id": None, "name": self.topic}]
        found = play.ask(None, "Metadata", 12, topics=asked, allow_auto_topic_creation=False)
        self.topic_id = found["topics"][0]["topic_id"]
        self._wait_for_coordinators()

    def _wait_for_coordinators(self) -> None:
        """Until they know of the topic, which the metadata name a moment before: a member of another group gets it."""
        asked: dict[str, Any] = {"group_id": self.play.name("group"), "member_id": "m"}
        joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}

        def known() -> bool:
            told = self.play.ask(None, "ConsumerGroupHeartbeat", _VERSION, **asked, member_epoch=0, **joining)
            return bool(told["assignment"] and told["assignment"]["topic_partitions"])

        self.play.wait_until(known, f"a group's coordinator knows {self.topic}")
        self.play.ask(None, "ConsumerGroupHeartbeat", _VERSION, **asked, member_epoch=-1)
        self.play.ask(None, "DeleteGroups", 2, groups_names=[asked["group_id"]])

    def beat(self, label: str, member: str, epoch: int, version: int = _VERSION, **fields: Any) -> list[int] | None:
        """ConsumerGroupHeartbeat; notes the codes, the epoch, and how many partitions it was told of. Returns them."""
        answer = self.play.ask(
            None, "ConsumerGroupHeartbeat", version, group_id=self.name, member_id=member, member_epoch=epoch, **fields
        )
        told = answer["assignment"]
        held = None if told is None else sorted(at for topic in told["topic_partitions"] for at in topic["partitions"])
        self.play.note(
            label,
            {
                "error_code": answer["error_code"],
                "member_epoch": answer["member_epoch"],
                "interval_ms": answer["heartbeat_interval_ms"],
                "named": answer["member_id"] is not None and answer["member_id"] != "",
                "partitions": None if held is None else len(held),
            },
        )
        return held

    def join(self, label: str, member: str, version: int = _VERSION, **fields: Any) -> list[int] | None:
        """The first heartbeat of a member."""
        first = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self.beat(label, member, 0, version, **(first | fields))

    def owned(self, partitions: list[int] | None) -> list[dict[str, Any]]:
        """What a member says that it owns."""
        return [{"topic_id": self.topic_id, "partitions": partitions or []}]

    def describe(self, label: str, version: int = 1) -> None:
        """ConsumerGroupDescribe, with members by their names and partitions by their number."""
        answer = self.play.ask(
            None, "ConsumerGroupDescribe", version, group_ids=[self.name], include_authorized_operations=False
        )
        for one in answer["groups"]:
            one["members"].sort(key=lambda member: member["member_id"])
            for member in one["members"]:
                del member["client_host"]
                for kind in ("assignment", "target_assignment"):
                    member[kind] = sum(len(topic["partitions"]) for topic in member[kind]["topic_partitions"])
        self.play.note(label, answer)

    def commit(self, label: str, member: str, epoch: int, *partitions: int, version: int = 9) -> None:
        """OffsetCommit."""
        self.play.ask(
            label, "OffsetCommit", version, group_id=self.name, generation_id_or_member_epoch=epoch, member_id=member,
            topics=[{"name": self.topic, "partitions": [
                {"partition_index": at, "committed_offset": 5, "committed_metadata": "m"} for at in partitions]}],
        )  # fmt: skip

    def commit_within(self, txn: Transaction, label: str, member: str, epoch: int, offset: int) -> None:
        """TxnOffsetCommit 3 of partition 0."""
        self.play.commit_offset(
            label, txn, self.name, offset, topic=self.topic, version=3, member=member, generation=epoch, metadata="t"
        )

    def fetch(self, label: str, member: str | None, epoch: int) -> None:
        """OffsetFetch 9."""
        asked = {"group_id": self.name, "member_id": member, "member_epoch": epoch}
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        self.play.ask(label, "OffsetFetch", 9, groups=[{**asked, "topics": topics}], require_stable=False)

    def join_classic(self, label: str) -> dict[str, Any]:
        """JoinGroup 3, which admits a member at once."""
        answer = self.play.ask(
            None, "JoinGroup", 3, group_id=self.name, member_id="", session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
        )  # fmt: skip
        self.play.note(label, {each: answer[each] for each in ("error_code", "generation_id")})
        return answer


@scenario(consumer_protocol=True)
def a_heartbeat_that_contradicts_itself(play: Play) -> None:
    group = Group(play)
    for label, epoch, member, fields in (
        ("goes on", 1, "m", {}),
        ("leaves", -1, "m", {}),
        ("leaves for a while", -2, "m", {"instance_id": "i"}),
        ("leaves for a while without an instance", -2, "m", {}),
        ("leaves without an id", -1, "", {}),
        ("an epoch that is none", -3, "m", {}),
        ("an empty instance", 1, "m", {"instance_id": ""}),
        ("an empty rack", 1, "m", {"rack_id": " "}),
    ):
        group.beat(f"no group: {label}", member, epoch, **fields)
    for label, fields in (
        ("no rebalance timeout", {"rebalance_timeout_ms": -1}),
        ("partitions", {"topic_partitions": group.owned([0])}),
        ("no word of partitions", {"topic_partitions": None}),
        ("no subscription", {"subscribed_topic_names": None}),
        ("an unknown assignor", {"server_assignor": "sticky"}),
        ("an expression that is none", {"subscribed_topic_regex": "("}),
        ("an expression of Perl's", {"subscribed_topic_regex": "a(?=b)"}),
    ):
        group.join(f"join: {label}", "m", **fields)  # type: ignore[arg-type]
    group.join("join without an id", "")
    group.name = " "
    group.join("join without a group", "m")
    group.name = play.name("group")
    group.join("join without an id, version 0", "", 0)
    for label, topics in (("nothing", []), ("what does not exist", [play.name("nobodys")])):
        group.name = play.name("group")
        group.join(f"join for {label}", "m", subscribed_topic_names=topics)
        group.describe(f"joined for {label}")


@scenario(consumer_protocol=True)
def members_come_and_go(play: Play) -> None:
    group = Group(play)
    group.join("a joins", "a")
    group.describe("a alone")
    group.describe("a alone, version 0", 0)
    group.beat("a goes on", "a", 2)
    group.beat("a with a later epoch", "a", 3)
    group.beat("a with an earlier epoch", "a", 1)
    group.beat("a stranger", "x", 2)
    group.beat("a stranger leaves", "x", -1)
    group.join("a joins again", "a")
    group.join("b joins", "b")
    group.describe("a has to give back")
    group.beat("b waits", "b", 3)
    kept = group.beat("a is told", "a", 2)
    given = [at for at in range(PARTITIONS) if at not in (kept or [])]
    group.commit("a commits what it keeps", "a", 2, (kept or [0])[0])
    group.commit("a commits what it gives back", "a", 2, *given)
    group.beat("a still owns all", "a", 2, topic_partitions=group.owned(list(range(PARTITIONS))))
    group.beat("b still waits", "b", 3)
    group.beat("a gave back", "a", 2, topic_partitions=group.owned(kept))
    group.commit("a commits with the epoch before what it kept", "a", 2, *(kept or []))
    group.commit("a commits with the epoch before what it gave back", "a", 2, *given)
    group.commit("a commits with the epoch before some of both", "a", 2, (kept or [0])[0], given[0])
    group.beat("a lost the answer and owns all", "a", 2, topic_partitions=group.owned(list(range(PARTITIONS))))
    group.beat("a lost the answer", "a", 2, topic_partitions=group.owned(kept))
    group.beat("a lost the answer again", "a", 2, topic_partitions=group.owned(kept))
    group.beat("a lost the answer and says nothing", "a", 2)
    taken = group.beat("b takes", "b", 3)
    group.describe("both have their share")
    everything = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group.topic]}
    group.beat("a says everything", "a", 3, topic_partitions=group.owned(kept), **everything)
    group.beat("a leaves", "a", -1)
    group.describe("a has left")
    group.beat("b takes all", "b", 3, topic_partitions=group.owned(taken))
    group.beat("b unsubscribes", "b", 4, subscribed_topic_names=[])
    group.beat("b gave back", "b", 4, topic_partitions=[])
    group.describe("b has nothing")
    group.beat("b leaves", "b", -1)
    group.describe("nobody")
    listed = play.ask(None, "ListGroups", 5, states_filter=["EMPTY"], types_filter=["Consumer"])["groups"]
    play.note("listed", [one for one in listed if one["group_id"] == group.name])
    listed = play.ask(None, "ListGroups", 5, states_filter=[], types_filter=["classic"])["groups"]
    play.note("listed as classic", [one for one in listed if one["group_id"] == group.name])
    play.ask("deleted", "DeleteGroups", 2, groups_names=[group.name])
    group.describe("gone")


@scenario(consumer_protocol=True)
def members_of_an_instance(play: Play) -> None:
    group = Group(play)
    group.join("joins", "s1", instance_id="i")
    group.join("another joins", "s2", instance_id="i")
    group.join("the same joins again", "s1", instance_id="i")
    group.beat("another goes on", "s2", 2, instance_id="i")
    group.beat("goes on as another instance", "s1", 2, instance_id="j")
    group.beat("goes on as nobody", "s1", 2)
    group.beat("another leaves", "s2", -1, instance_id="i")
    group.beat("leaves for a while", "s1", -2, instance_id="i")
    group.describe("away")
    group.beat("goes on though it is away", "s1", 2, instance_id="i")
    group.join("comes back as another", "s2", instance_id="i")
    group.describe("back")
    group.beat("the former one goes on", "s1", 2, instance_id="i")
    play.ask(
        "an operator removes it", "LeaveGroup", 4, group_id=group.name,
        members=[{"member_id": "", "group_instance_id": "i"}, {"member_id": "x", "group_instance_id": None}],
    )  # fmt: skip
    group.describe("removed")


@scenario(consumer_protocol=True)
def offsets_of_the_consumer_protocol(play: Play) -> None:
    group = Group(play)
    group.commit("nobody, before there is a group", "", -1, 0)
    group.describe("a group of offsets alone")
    group.join("joins", "a")
    group.describe("it is one of the consumer protocol")
    for label, member, epoch in (
        ("a", "a", 2), ("a before", "a", 1), ("a later", "a", 3), ("nobody", "", -1), ("a stranger", "x", 2),
    ):  # fmt: skip
        group.commit(f"{label} commits", member, epoch, 0)
        group.commit(f"{label} commits, version 8", member, epoch, 0, version=8)
        group.fetch(f"{label} fetches", member, epoch)
    group.fetch("whoever fetches", None, -1)
    txn: Transaction = play.transaction()
    play.add_offsets(None, txn, group.name)
    for label, member, epoch in (("before", "a", 1), ("a stranger", "x", 2), ("nobody", "", -1), ("a", "a", 2)):
        group.commit_within(txn, f"in a transaction: {label}", member, epoch, 7)
    play.ended(txn, commit=True)
    group.fetch("after the transaction", "a", 2)
    topics = [{"name": group.topic, "partitions": [{"partition_index": 0}]}]
    play.ask("delete what is subscribed", "OffsetDelete", 0, group_id=group.name, topics=topics)
    play.ask("delete a group with members", "DeleteGroups", 2, groups_names=[group.name])
    group.beat("leaves", "a", -1)
    play.ask("delete what nobody subscribes to", "OffsetDelete", 0, group_id=group.name, topics=topics)
    group.fetch("deleted", None, -1)


@scenario(consumer_protocol=True)
def a_member_that_was_removed_commits_under_its_new_epoch_what_it_read_before(play: Play) -> None:
    """Its epoch says that it is a member, not of which partitions: another one's offset goes back."""
    group = Group(play)
    group.join("a joins", "a")
    removed = [{"member_id": "a", "group_instance_id": None}]
    play.ask("a is removed", "LeaveGroup", 4, group_id=group.name, members=removed)
    group.join("b joins", "b")
    group.commit("b commits", "b", 4, 0)
    group.join("a joins again", "a")
    txn: Transaction = play.transaction()
    play.add_offsets(None, txn, group.name)
    for label, epoch in (("the epoch of then", 2), ("its new epoch", 5)):
        group.commit_within(txn, f"a commits under {label}", "a", epoch, 1)
    play.ended(txn, commit=True)
    group.fetch("the offset has gone back", None, -1)
    group.describe("b has all")


@scenario(consumer_protocol=True)
def configurations_of_a_group(play: Play) -> None:
    """With values that Kafka's limits allow: a session of 45 s to 60 s, a heartbeat every 5 s to 15 s."""
    group = Group(play)
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def described(label: str, keys: list[str] | None = None, name: str = group.name) -> list[str]:
        answer = play.ask(
            None, "DescribeConfigs", 4, include_synonyms=True, include_documentation=False,
            resources=[{"resource_type": 32, "resource_name": name, "configuration_keys": keys or [session, heartbeat]}],
        )  # fmt: skip
        (one,) = answer["results"]
        for config in one["configs"]:
            # The heartbeat's is one that both brokers were started with.
            config["synonyms"] = [each for each in config["synonyms"] if each["source"] not in (4, 5)]
            config["config_source"] = (
                "given or default" if config["config_source"] in (4, 5) else config["config_source"]
            )
        play.note(label, one)
        return [config["value"] for config in sorted(one["configs"], key=lambda config: str(config["name"]))]

    def change(label: str | None, *changes: tuple[str, int, str | None], name: str = group.name) -> None:
        configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
        play.ask(
            label, "IncrementalAlterConfigs", 1, validate_only=False,
            resources=[{"resource_type": 32, "resource_name": name, "configs": configs}],
        )  # fmt: skip

    described("before")
    described("nothing of that name", ["retention.ms"])
    described("no name", name="")
    change("both", (session, 0, "50000"), (heartbeat, 0, "6000"))
    play.wait_until(lambda: described(play.name("look"))[0] == "6000", "the change is seen")
    play.transcript[:] = [step for step in play.transcript if not step[0].startswith("look-")]
    described("set")
    group.join("a joins", "a")
    for label, key, value in (
        ("not a number", session, "x"), ("nothing", session, ""), ("zero", session, "0"), ("a session no longer than a heartbeat", session, "6000"),
        ("a name of no configuration", "retention.ms", "1"), ("null", session, None),
    ):  # fmt: skip
        change(label, (key, 0, value))
    change("appended", (session, 2, "1"))
    change("no name of a group", (session, 0, "50000"), name="")
    asked = {"resource_type": 32, "resource_name": group.name}
    play.ask(
        "replaced", "AlterConfigs", 2, validate_only=False,
        resources=[{**asked, "configs": [{"name": session, "value": "55000"}]}],
    )  # fmt: skip
    play.wait_until(lambda: described(play.name("look"))[1] == "55000", "the change is seen")
    play.transcript[:] = [step for step in play.transcript if not step[0].startswith("look-")]
    described("replaced: described")
    change("removed", (session, 1, None))
    play.wait_until(lambda: described(play.name("look"))[1] == "45000", "the change is seen")
    play.transcript[:] = [step for step in play.transcript if not step[0].startswith("look-")]
    group.beat("a goes on", "a", 2)


@scenario(consumer_protocol=True)
def from_one_protocol_to_the_other(play: Play) -> None:
    group = Group(play)
    group.join("joins", "a")
    group.commit("commits", "a", 2, 0)
    for version in (5, 6):
        asked = {"groups": [group.name], "include_authorized_operations": False}
        play.ask(f"described as a classic group, version {version}", "DescribeGroups", version, **asked)
    known = {"group_id": group.name, "member_id": "a", "generation_id": 2}
    play.ask("a heartbeat of the classic protocol", "Heartbeat", 3, **known, group_instance_id=None)
    play.ask("a sync of the classic protocol", "SyncGroup", 3, **known, assignments=[])
    group.beat("leaves", "a", -1)
    joined = group.join_classic("an empty group takes a classic member")
    group.fetch("the offsets are there", None, -1)
    group.beat("a heartbeat in the classic group", "a", 2)
    group.beat("leaves the classic group", "a", -1)
    group.describe("the classic group described")
    leaver = [{"member_id": joined["member_id"], "group_instance_id": None}]
    play.ask(None, "LeaveGroup", 4, group_id=group.name, members=leaver)
    group.join("an empty classic group takes a member", "b")
    group.fetch("the offsets are still there", None, -1)
    group.describe("again of the consumer protocol")


@scenario(consumer_protocol=True)
def a_subscription_by_an_expression(play: Play) -> None:
    group = Group(play, 2)
    first = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], "subscribed_topic_regex": f"{group.topic}(-x)?"}
    play.ask(None, "ConsumerGroupHeartbeat", 1, group_id=group.name, member_id="a", member_epoch=0, **first)

    def held() -> int:
        """How many partitions the member has, once it has joined anew; Kafka looks for the topics after its answer."""
        answer = play.ask(
            None, "ConsumerGroupHeartbeat", 1, group_id=group.name, member_id="a", member_epoch=0, **first
        )
        return sum(len(topic["partitions"]) for topic in answer["assignment"]["topic_partitions"])

    play.wait_until(lambda: held() == 2, "the expression's topic is assigned")
    group.describe("described")
    topics = [{"name": group.topic, "partitions": [{"partition_index": 0}]}]
    group.commit("commits", "a", 2, 0)
    play.ask("delete what is subscribed", "OffsetDelete", 0, group_id=group.name, topics=topics)


@scenario(consumer_protocol=True)
def topics_grow_and_go(play: Play) -> None:
    group = Group(play, 2)
    group.join("joins", "a")
    more = [{"name": group.topic, "count": 3, "assignments": None}]
    play.ask(None, "CreatePartitions", 1, topics=more, timeout_ms=20_000, validate_only=False)
    epoch = 2

    def told(partitions: int) -> bool:
        nonlocal epoch
        fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group.topic], "topic_partitions": []}
        asked = {"group_id": group.name, "member_id": "a", "member_epoch": 0}
        answer = play.ask(None, "ConsumerGroupHeartbeat", 1, **asked, **fields)
        epoch = answer["member_epoch"]
        return sum(len(topic["partitions"]) for topic in answer["assignment"]["topic_partitions"]) == partitions

    play.wait_until(lambda: told(3), "the new partition is assigned")
    group.describe("grown")
    play.ask(None, "DeleteTopics", 3, topic_names=[group.topic], timeout_ms=20_000)
    play.wait_until(lambda: told(0), "the deleted topic is taken away")
    group.describe("gone")
