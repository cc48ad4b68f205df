"""A secret that Spark would show is refused before a format does anything; one that it hides, and a place, are not."""

from __future__ import annotations

import re

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options.login.in_clear import HIDDEN_IN_STATEMENTS, refuse_in_clear
from pyspark_kafka_eos.options.login.security import SECRET_NAMES
from pyspark_kafka_eos.spark import opening

SPARKS_DEFAULT = re.compile("(?i)secret|password|token|access[.]?key")
PLANTED = "PLANTED-hunter2"
PLACES = ["${file:/run/it}", "${file:/run/all:it}", "${directory:/run:it}", "${env:IT}", " ${env:IT} "]
SHOWN = [
    "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
    "ssl.key.pem", "ssl.keystore.key",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(SECRET_NAMES))
@pytest.mark.parametrize("spelt", [str.lower, str.upper])
def test_every_secret_by_its_text_is_hidden_by_spark_or_refused(name: str, spelt: object) -> None:
    value = {
        "sasl.jaas.config": f'PlainLoginModule required username="u" password="{PLANTED}";',
        "sasl.oauthbearer.config": f"tenant=t-1 key={PLANTED}",
    }.get(name, PLANTED)
    key = spelt(f"kafka.{name}")  # type: ignore[operator]
    if SPARKS_DEFAULT.search(key) or SPARKS_DEFAULT.search(value):
        refuse_in_clear({key: value})
        return
    with pytest.raises(OptionsError) as refused:
        refuse_in_clear({key: value})
    assert key in refused.value.message and "${file:" in refused.value.message
    assert PLANTED not in str(refused.value)


def test_those_that_spark_shows_are_the_ones_that_were_found() -> None:
    for name in SHOWN:
        with pytest.raises(OptionsError, match=re.escape(name)):
            refuse_in_clear({f"kafka.{name}": PLANTED})


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_no_secret(name: str, place: str) -> None:
    refuse_in_clear({f"kafka.{name}": place})


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ("region=eu-central-1 profile=p", False),
        ("tenant=t-1 secret=${env:TENANT_SECRET}", False),
        ("tenant=t-1 key=${file:/run/key}", False),
        ("tenant=t-1 client_secret=abc", False),
        ("tenant=t-1 key=abc", True),
        ("apikey=abc", True),
        ("abc", True),
    ],
)
def test_what_a_provider_is_told_is_no_secret_where_its_names_say_so(config: str, refused: bool) -> None:
    """Spark hides a text that has the word secret in it."""
    options = {"kafka.sasl.oauthbearer.config": config}
    if not refused:
        refuse_in_clear(options)
        return
    with pytest.raises(OptionsError):
        refuse_in_clear(options)


def test_all_of_them_are_named_at_once() -> None:
    with pytest.raises(OptionsError, match=r"kafka\.ssl\.key\.pem, kafka\.ssl\.keystore\.key are secrets"):
        refuse_in_clear({"kafka.ssl.keystore.key": PLANTED, "kafka.ssl.key.pem": PLANTED, "topic": "t"})


@pytest.mark.parametrize("step", ["columns", "stream_reader", "batch_reader", "batch_writer", "stream_writer"])
def test_every_step_of_the_format_refuses(step: str) -> None:
    more = {"columns": (), "stream_reader": (None,), "batch_reader": (None,), "batch_writer": (None, False)}
    named = {"overwrite": False, "planning": True} if step == "stream_writer" else {}
    with pytest.raises(OptionsError, match="Spark shows"):
        getattr(opening, step)({"kafka.ssl.keystore.key": PLANTED}, *more.get(step, (None,)), **named)


@pytest.mark.parametrize("name", sorted(SECRET_NAMES))
@pytest.mark.parametrize("value", [PLANTED, f'say \\"{PLANTED}\\"\\n{PLANTED}', f"{'x' * 100_000}{PLANTED}", ""])
def test_a_statement_of_spark_connect_is_hidden_from_the_name_to_the_end_of_the_value(name: str, value: str) -> None:
    """As the server writes it: protobuf's text format, in which a quote in a value has a backslash."""
    # Python takes the possessive form from 3.11 on; it matches the same.
    pattern = re.compile(HIDDEN_IN_STATEMENTS.replace("]++", "]+").replace(")*+", ")*"))
    before = 'options {\n  key: "topic"\n  value: "t"\n}\noptions {\n  '
    after = '\n}\noptions {\n  key: "kafka.client.id"\n  value: "c"\n}\n'

    hidden = pattern.sub("*", f'{before}key: "KAFKA.{name}"\n  value: "{value}"{after}')

    assert hidden == f"{before}*{after}"
