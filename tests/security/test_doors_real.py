"""Delegation tokens and Kerberos against Apache Kafka, without Spark: what is right connects, what is wrong is
named.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embedded_kafka.real import NEWEST_KAFKA
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, LoginRefused, OptionsError
from pyspark_kafka_eos import ExactlyOnceWriter, delegation_token_options
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.login.jaas import parse_jaas
from tests.security import cells, kdc, real, ways
from tests.security.kdc import NoKerberos, Realm
from tests.security.ways import Door
from tests.support.spark_tokens import token_in_spark

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.slow, pytest.mark.long]

SHORT_MS = 4_000
PATIENT_MS = 60_000


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Realm, dict[str, Door]]]:
    folder = tmp_path_factory.mktemp("doors")
    before = os.environ.get("PYTHONPATH")
    try:
        kdc.offer_gssapi()
        with (
            kdc.running(folder / "kdc", ways.USER) as realm,
            real.opened(NEWEST_KAFKA, folder, realm) as doors,
        ):
            yield realm, {door.way: door for door in doors if isinstance(door, Door)}
    except NoKerberos as why:
        pytest.skip(str(why))
    finally:
        os.environ.pop("PYTHONPATH", None) if before is None else os.environ.update(PYTHONPATH=before)


def settings(door: Door, **changed: str) -> ClientSettings:
    """Of a pipeline that uses this door; `sasl__kerberos__keytab="..."`."""
    more = {f"kafka.{name.replace('__', '.')}": value for name, value in changed.items()}
    return SinkOptions.parse({**door.given, "pipeline": "p", **more}).client


def refused(wanted: ClientSettings, patience_ms: int = PATIENT_MS) -> ExactlyOnceError:
    with pytest.raises(ExactlyOnceError) as caught:
        Cluster(wanted, patience_ms).close()
    return caught.value


@pytest.mark.parametrize("way", [ways.TOKEN, ways.KERBEROS])
def test_the_way_connects(opened: tuple[Realm, dict[str, Door]], way: str) -> None:
    cluster = Cluster(settings(opened[1][way]))
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()


def test_javas_line_with_a_keytab_connects(opened: tuple[Realm, dict[str, Door]]) -> None:
    realm, doors = opened
    given = {name: value for name, value in doors[ways.KERBEROS].given.items() if "sasl.kerberos" not in name}
    module = "com.sun.security.auth.module.Krb5LoginModule"
    jaas = f'{module} required useKeyTab=true keyTab="{realm.user}" principal="{realm.principal}";'

    cluster = Cluster(settings(Door(ways.KERBEROS, given, {}), sasl__jaas__config=jaas))
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()


@pytest.mark.spark
def test_a_token_that_spark_obtained_commits_batches_of_foreach_batch(
    opened: tuple[Realm, dict[str, Door]], spark: SparkSession, tmp_path: Path
) -> None:
    """The token stands where Spark's provider puts it; the options of the writer name no login."""
    door = opened[1][ways.TOKEN]
    jaas = parse_jaas(door.given["kafka.sasl.jaas.config"])
    assert jaas is not None
    scene = cells.prepared(spark, door, tmp_path)
    name, checkpoint, options = scene.fresh("spark-token")
    prefix = "spark.kafka.clusters.here"
    conf = {
        f"{prefix}.auth.bootstrap.servers": door.given["kafka.bootstrap.servers"],
        f"{prefix}.sasl.token.mechanism": door.given["kafka.sasl.mechanism"],
    }
    without = {option: value for option, value in options.items() if "sasl" not in option}

    with token_in_spark(spark, "here", jaas.options["username"], jaas.options["password"], conf):
        login = delegation_token_options(spark, door.given["kafka.bootstrap.servers"])
        source = spark.readStream.format("kafka_eos").options(**{**without_sink(without), **login})
        rows = source.options(subscribe=scene.source, startingOffsets="earliest").load().selectExpr("value")
        writer = rows.writeStream.foreachBatch(ExactlyOnceWriter(without))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    assert cells.committed(door, name) == Counter(scene.values)


def without_sink(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a source has too."""
    return {name: value for name, value in options.items() if name.startswith("kafka.")}


def test_a_token_that_the_broker_does_not_know_is_refused_in_words(
    opened: tuple[Realm, dict[str, Door]],
) -> None:
    door = opened[1][ways.TOKEN]
    jaas = f'{real.MODULES}.scram.ScramLoginModule required tokenauth="true" username="none" password="bm9uZQ==";'

    error = refused(settings(door, sasl__jaas__config=jaas))

    assert type(error) is LoginRefused and "refused the delegation token" in error.message


def test_a_users_password_is_no_token(opened: tuple[Realm, dict[str, Door]]) -> None:
    door = opened[1][ways.TOKEN]
    jaas = f'{real.MODULES}.scram.ScramLoginModule required tokenauth="true" username="{ways.USER}" password="{ways.PASSWORD}";'

    assert type(refused(settings(door, sasl__jaas__config=jaas))) is LoginRefused


def test_a_keytab_without_the_principals_keys_is_refused_with_its_name(
    opened: tuple[Realm, dict[str, Door]],
) -> None:
    realm, doors = opened

    error = refused(settings(doors[ways.KERBEROS], sasl__kerberos__principal=f"bob@{kdc.REALM}"))

    assert type(error) is LoginRefused
    assert str(realm.user) in error.message and "klist -k" in error.message


def test_a_service_that_the_kdc_does_not_know_is_refused(opened: tuple[Realm, dict[str, Door]]) -> None:
    error = refused(settings(opened[1][ways.KERBEROS], sasl__kerberos__service__name="nobody"))

    assert type(error) is LoginRefused
    assert "nobody@localhost" in error.message and "kafka.sasl.kerberos.service.name" in error.message


@pytest.mark.parametrize("content", [None, b"no keytab"])
def test_a_keytab_that_is_none_is_refused_before_anything_is_opened(
    opened: tuple[Realm, dict[str, Door]], tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "some.keytab"
    if content is not None:
        file.write_bytes(content)

    error = refused(settings(opened[1][ways.KERBEROS], sasl__kerberos__keytab=str(file)))

    assert type(error) is OptionsError
    assert str(file) in error.message and "kafka.sasl.kerberos.keytab" in error.message


def test_a_kdc_that_is_away_is_asked_until_the_time_is_over(
    opened: tuple[Realm, dict[str, Door]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm, doors = opened
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = tmp_path / "krb5.conf"
    lines = realm.settings.read_text().splitlines()
    away.write_text("\n".join(f"  kdc = 127.0.0.1:{port}" if "kdc = " in each else each for each in lines))
    monkeypatch.setenv("KRB5_CONFIG", str(away))
    copy = tmp_path / "other.keytab"
    copy.write_bytes(realm.user.read_bytes())

    # Another file is another cache, so no ticket is there yet.
    error = refused(settings(doors[ways.KERBEROS], sasl__kerberos__keytab=str(copy)), SHORT_MS)

    assert type(error) is BrokerUnavailable
    assert "KDC" in error.message
