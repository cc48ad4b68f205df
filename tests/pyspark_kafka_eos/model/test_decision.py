"""A decision's bytes: read back as written, the topics once for all slots, no other version's taken for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.model import (
    LEDGER_FORMAT_VERSION,
    Decision,
    KeptPartition,
    RoutedTopic,
    RowOptions,
    Seal,
    SealedPartition,
    Traffic,
)

WHO = ProducerIdentity(17, 3)
ORDERS = RoutedTopic("orders", "5f0c-one", 4)
MORE_ORDERS = replace(ORDERS, partitions=6)
ANEW = replace(ORDERS, topic_id="77aa-two")
DEAD = RoutedTopic("dead", "91bd-dead", 1)


def seal(slot: int, *topics: RoutedTopic, **more: Any) -> Seal:
    parts = tuple(SealedPartition(name, 0, 10, 4, 5, 2**63 + slot) for name in sorted({t.name for t in topics}))
    return Seal(f"p:{slot}", slot, WHO, 2, records=5, partitions=parts, topics=topics, **more)


def decision(*seals: Seal, **more: Any) -> Decision:
    return Decision("p", "q", 3, seals, **more)


EMPTY = Seal("p:9", 9, None, 0)
KEPT = (KeptPartition(WHO, SealedPartition("orders", 1, 7, 0, 1, None)),)

DECISIONS = [
    decision(),
    decision(EMPTY),
    decision(seal(0, ORDERS), seal(1, ORDERS), EMPTY),
    decision(seal(0, DEAD, ORDERS), seal(1, ORDERS), seal(2, DEAD)),
    decision(seal(0, ORDERS), seal(1, MORE_ORDERS), seal(2, ORDERS)),
    decision(seal(0, ORDERS), seal(1, ANEW)),
    decision(seal(0, ORDERS, ANEW)),
    decision(seal(0, ORDERS, kept=KEPT), replace(seal(1, ORDERS), topics=())),
    decision(replace(seal(0, ORDERS), measured=(KEPT[0].part,), partitions=())),
    decision(
        seal(0, ORDERS),
        source_offsets=("a",),
        earlier=(("p:7", WHO),),
        warnings=("w",),
        traffic=Traffic(requests=2),
        sticky_bytes=9,
        row_options=RowOptions("orders", "dead", "gzip", -1, 7, 8),
        connector_version="0.1.0",
    ),
]


@pytest.mark.parametrize("made", DECISIONS, ids=range(len(DECISIONS)))
def test_a_decision_is_read_back_as_it_was_written(made: Decision) -> None:
    assert Decision.from_bytes(made.to_bytes()) == made


@pytest.mark.parametrize(
    "garbled", [None, [], ["a b", None, "none", None, None, 1], [None, None, 7, None, None, 1], [None] * 6]
)
def test_row_options_that_are_none_are_not_read_as_some(garbled: Any) -> None:
    body = json.loads(DECISIONS[-1].to_bytes()) | {"row_options": garbled}

    with pytest.raises(LedgerUnreadable):
        Decision.from_bytes(json.dumps(body).encode())


@pytest.mark.parametrize("made", [seal(0, ORDERS, DEAD), seal(0, ORDERS, kept=KEPT), EMPTY], ids=range(3))
def test_a_task_tells_the_driver_all_of_its_seal(made: Seal) -> None:
    assert Seal.from_json(json.loads(json.dumps(made.to_driver()))) == made


def test_topics_that_all_slots_routed_by_alike_stand_in_the_record_once() -> None:
    text = decision(*(seal(slot, ORDERS) for slot in range(100))).to_bytes().decode()

    assert text.count(ORDERS.topic_id) == 1


def test_only_a_slot_that_routed_in_another_way_has_topics_of_its_own() -> None:
    made = decision(*(seal(slot, MORE_ORDERS if slot == 2 else ORDERS) for slot in range(4)))
    body = json.loads(made.to_bytes())

    assert body["topics"] == [["orders", ORDERS.topic_id, 4]]
    assert [each.get("topics") for each in body["seals"]] == [
        None,
        None,
        [["orders", ORDERS.topic_id, 6]],
        None,
    ]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (
            LEDGER_FORMAT_VERSION + 1,
            "by a newer version of this connector; nothing was changed; run at least",
        ),
        (LEDGER_FORMAT_VERSION - 1, "by an older version .* nothing was changed; let that version finish"),
    ],
)
def test_a_record_of_another_format_is_refused_with_the_version_that_wrote_it(version: int, words: str) -> None:
    body = json.loads(decision(seal(0, ORDERS), connector_version="9.8.7").to_bytes())

    with pytest.raises(LedgerUnreadable, match=words) as refused:
        # Of another format only the version's own field is the same.
        Decision.from_bytes(json.dumps({**body, "version": version, "seals": [{"transactional_id": 1}]}).encode())

    assert refused.value.facts == {
        "format": version,
        "known_format": LEDGER_FORMAT_VERSION,
        "written_by": "9.8.7",
    }


REQUIRED = sorted(json.loads(decision().to_bytes()))


@pytest.mark.parametrize("name", REQUIRED)
def test_no_field_of_a_decision_is_made_up_where_it_is_missing(name: str) -> None:
    body = json.loads(decision(seal(0, ORDERS)).to_bytes())
    del body[name]

    with pytest.raises(LedgerUnreadable, match="not a decision of this connector"):
        Decision.from_bytes(json.dumps(body).encode())


@pytest.mark.parametrize("name", sorted({*EMPTY.to_json()} - {"topics"}))
def test_no_field_of_a_seal_is_made_up_where_it_is_missing(name: str) -> None:
    body = json.loads(decision(seal(0, ORDERS)).to_bytes())
    del body["seals"][0][name]

    with pytest.raises(LedgerUnreadable, match="not a decision of this connector"):
        Decision.from_bytes(json.dumps(body).encode())
