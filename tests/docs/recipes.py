"""The programs of docs/recipes.md, each run in a process of its own with the jars that it needs.

    python -m tests.docs.recipes registry BOOTSTRAP DIRECTORY

Owns: which code of the page is a program, the Spark that runs it, what stands around it in the test.
Does not know: what the programs do.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.spark_session import spark_session

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def code_of(heading: str) -> str:
    """All the Python under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return "\n".join(found)


def functions_of(heading: str) -> str:
    """The first piece of Python under a heading: functions, and no job."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]


def changed(code: str, changes: dict[str, str]) -> str:
    """The code with the test's addresses for the page's; each of these stands in it."""
    for old, new in changes.items():
        assert old in code, old
        code = code.replace(old, new)
    return code


REGISTRY = "Values in the schema registry's format"


def registry(bootstrap: str, directory: Path, spark: Any) -> dict[str, Any]:
    """Orders by Confluent's serializer, the page's job, and its output by Confluent's deserializer."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": "mock://recipes"})
    schema = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"id","type":"long"}]}'
    # Another schema first, so that no id is 1 by accident.
    AvroSerializer(client, '"string"')("x", SerializationContext("other", MessageField.VALUE))
    serialize = AvroSerializer(client, schema)
    given = [{"id": number, "item": f"item {number}"} for number in range(200)]
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for each in given:
        producer.produce(
            "orders", serialize(each, SerializationContext("orders", MessageField.VALUE)), key=str(each["id"])
        )
    assert producer.flush(60) == 0

    code = changed(
        code_of(REGISTRY),
        {
            'SchemaRegistryClient({"url": "http://registry:8081"})': "client",
            "broker:9092": bootstrap,
            "/checkpoints/clean-orders": (directory / "checkpoint").as_uri(),
        },
    )
    exec(compile(code, PAGE.name, "exec"), {"spark": spark, "client": client})

    deserialize = AvroDeserializer(client)
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = reader.list_topics("orders.clean", 30).topics["orders.clean"].partitions
    reader.assign([TopicPartition("orders.clean", number, 0) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = reader.poll(60)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(deserialize(message.value(), SerializationContext("orders.clean", MessageField.VALUE)))
    reader.close()
    ids = [client.get_latest_version(subject).schema_id for subject in ("orders-value", "orders.clean-value")]
    return {"given": given, "found": sorted(found, key=lambda each: each["id"]), "ids": ids}


PROGRAMS = {"registry": registry}


def main(name: str, bootstrap: str, directory: str, jars: str) -> None:
    """Run a program and print its result as the last line."""
    from pyspark_kafka_eos import register

    spark = spark_session(directory, {"spark.jars": jars})
    register(spark)
    result = PROGRAMS[name](bootstrap, Path(directory), spark)
    spark.stop()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
