"""Every program of docs/recipes.md runs, and a judge that shares no code with it finds what the page promises."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.child.errors import LocalError
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import Artifact, fetch
from tests.docs import recipes_delta
from tests.docs.recipes import PAGE, PROGRAMS, REGISTRY, functions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WITHIN_S = 300


def run(name: str, broker: EmbeddedKafka, directory: Path, *artifacts: Artifact) -> dict[str, Any]:
    """A program's result."""
    import pyspark

    try:
        jars = fetch(f"recipe-{name}-{pyspark.__version__}", artifacts, require_java())
    except LocalError as error:
        if "module not found" not in str(error):
            raise
        pytest.skip(f"not at the repository of artifacts: {artifacts}")
    given = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.docs.recipes", name, broker.bootstrap_servers, str(directory), given],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=WITHIN_S, env=environ,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    return dict(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.embedded
def test_the_registrys_format_is_read_and_written_as_confluents_serializers_do(tmp_path: Path) -> None:
    import pyspark

    try:
        importlib.import_module("confluent_kafka.schema_registry.avro")
    except ImportError as error:
        pytest.skip(f"confluent-kafka[avro,schemaregistry] is not installed: {error}")
    with EmbeddedKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(name, num_partitions=3) for name in ("orders", "orders.clean")]
        for answer in admin.create_topics(topics).values():
            answer.result(30)
        avro = Artifact("org.apache.spark", "spark-avro_2.13", pyspark.__version__)
        result = run("registry", broker, tmp_path, avro)

    assert len(result["given"]) == 200
    assert result["found"] == [{"id": each["id"], "item": each["item"].upper()} for each in result["given"]]
    assert len({1, *result["ids"]}) == 3


@pytest.mark.spark
def test_the_five_bytes_are_put_before_a_value_and_taken_off(spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    # The registry's client and Avro's functions are of the job.
    code = re.sub(
        r"^from confluent_kafka.*\n|^from pyspark.sql.avro.*\n",
        "",
        functions_of(REGISTRY),
        flags=re.MULTILINE,
    )
    exec(compile(code, PAGE.name, "exec"), names)
    framed, schema_id_of, avro_of = names["framed"], names["schema_id_of"], names["avro_of"]
    for number, value in ((7, b"abc"), (2**31 - 1, b""), (256, bytes(range(256)))):
        rows = spark.createDataFrame([(bytearray(value),)], "avro binary")
        whole = rows.select(framed(rows.avro, number).alias("value"))
        (row,) = whole.select("value", schema_id_of(whole.value), avro_of(whole.value, number)).collect()

        assert [bytes(row[0]), row[1], bytes(row[2])] == [
            b"\0" + number.to_bytes(4, "big") + value,
            number,
            value,
        ]

    strange = spark.createDataFrame([(bytearray(b"\1\0\0\0\7abc"),)], "value binary")
    assert strange.select(schema_id_of(strange.value)).collect()[0][0] is None
    for wrong, said in ((bytearray(b"\0\0\0\0\x08abc"), "8"), (bytearray(b"\1\0\0\0\7abc"), "none")):
        rows = spark.createDataFrame([(wrong,)], "value binary")
        with pytest.raises(Exception, match=f"a value of another schema: {said}"):
            rows.select(avro_of(rows.value, 7)).collect()


def test_every_recipe_has_a_program_and_names_its_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")
    recipes = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(recipes) == len(PROGRAMS) + len(recipes_delta.HEADINGS)
    for recipe in recipes:
        assert re.search(r"`test_\w+`", recipe), recipe.partition("\n")[0]
