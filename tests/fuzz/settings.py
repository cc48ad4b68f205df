"""What users give: options of every side, Java's patterns of topics, the YAML files of jobs."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.jobs.config import (
    ConfigError,
    ConsumeConfig,
    JobConfig,
    KafkaToKafka,
    ProduceConfig,
    TransformConfig,
    load_config,
    wrong_fields,
)
from pyspark_kafka_eos.options import (
    SinkOptions,
    SourceOptions,
    documented_options,
    documented_without_effect,
    migrate,
    parse_ledger,
)
from pyspark_kafka_eos.options.java_pattern import to_python
from pyspark_kafka_eos.options.login.security import SECRET_NAMES
from pyspark_kafka_eos.options.yaml_file import read_fields
from tests.fuzz.changes import changed_bytes, changed_json_text, other_text
from tests.fuzz.target import SECRET, Stateless, judged

_RIGHT = {
    "sink": {"kafka.bootstrap.servers": "broker:9092", "pipeline": "totals", "topic": "orders", "checkpointLocation": "/c"},
    "source": {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"},
    "ledger": {"kafka.bootstrap.servers": "broker:9092", "ledger": "totals"},
}  # fmt: skip
_VALUES = (
    "1", "0", "true", "false", "earliest", "latest", "read_committed", "SASL_SSL", "SASL_PLAINTEXT", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER",
    "GSSAPI", "gzip", "zstd", "batch", "task", "60000", "a,b", "a:1,b:2", '{"orders":{"0":23,"1":-2}}', '{"orders":[0,1]}', '{"orders":{}}',
    "${file:/nowhere:key}", "${env:NOT_SET}", "${file:" + "x" * 5_000 + ":key}", "${file:a\0b:key}", "http://127.0.0.1:1/token", "file:///nowhere", "-----BEGIN CERTIFICATE-----\nAAAA\n",
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";', "org.x.Y required a=b;", "5 minutes",
)  # fmt: skip
_JSON = (
    b'{"orders":{"0":23,"1":-2}}',
    b'{"orders":[0,1]}',
    b'{"orders":{"0":1},"version:1":{},"topic:orders:id:4":{}}',
    b'{"a":1700000000000}',
)

_PARSERS: Mapping[str, tuple[Callable[[dict[str, Any]], object], ...]] = {
    "sink": (SinkOptions.parse, lambda given: SinkOptions.parse(given, "batch"), lambda given: migrate(given, "sink")),
    "source": (
        SourceOptions.parse, lambda given: SourceOptions.parse(given, "stream"), lambda given: SourceOptions.parse(given, "batch"),
        lambda given: migrate(given, "source"),
    ),
    "ledger": (parse_ledger,),
}  # fmt: skip


class Options(Stateless):
    """Names and values of one side: right ones, others, secrets among them."""

    name = "options"
    reads = "options of sinks, sources, ledger reads and of migrating jobs"

    @cached_property
    def _names(self) -> list[str]:
        known = {name for name, *_ in (*documented_options(), *documented_without_effect())}
        return sorted(known) + sorted(f"kafka.{name}" for name in SECRET_NAMES)

    def made(self, chance: random.Random) -> Any:
        """Side, which of its parsers, options."""
        side = chance.choice(tuple(_RIGHT))
        given: dict[str, Any] = dict(_RIGHT[side])
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            name = chance.choice(self._names)
            kind = chance.randrange(10)
            if kind == 0:
                name = other_text(chance, name)
            elif kind == 1:
                name = chance.choice(
                    (name.upper(), f" {name}", name[:-1], name.removeprefix("kafka."), f"kafka.{name}")
                )
            given[name] = SECRET if name.removeprefix("kafka.") in SECRET_NAMES else self._value(chance)
        if chance.random() < 0.1:
            del given[chance.choice(tuple(given))]
        return side, chance.randrange(len(_PARSERS[side])), given

    def _value(self, chance: random.Random) -> Any:
        kind = chance.randrange(10)
        if kind <= 4:
            return chance.choice(_VALUES)
        if kind <= 6:
            return changed_json_text(chance, chance.choice(_JSON)).decode("utf-8", "replace")
        if kind == 7:
            return chance.choice((1, 0, -1, True, None, 1.5, 2**70, float("1e308"), b"x"))
        return other_text(chance, chance.choice(_VALUES))

    def played(self, case: Any) -> str:
        """Options, or one error that names what is wrong and shows no secret."""
        side, which, given = case
        try:
            _PARSERS[side][which](given)
        except OptionsError as error:
            return judged(error)
        return "taken"


_PATTERNS = (
    "orders-[0-9]+", "(a|b)*c", r"\p{Alpha}\d{2,3}", "(?i)orders", "(?<name>x)\\k<name>", "[a-z&&[^aeiou]]+", r"\Qa.b\E", "a{1,3}?", "^x$", "a++",
    "(?=x)x", r"\x{10FFFF}", r"[\w.-]+",
)  # fmt: skip


class Patterns(Stateless):
    """Java's regular expressions, of which ours are made."""

    name = "patterns"
    reads = "Java's patterns of topics"

    def made(self, chance: random.Random) -> str:
        """One, changed."""
        text = changed_bytes(chance, chance.choice(_PATTERNS).encode()).decode("utf-8", "replace")
        return text * chance.choice((1, 1, 1, 2, 40))

    def played(self, case: str) -> str:
        """A pattern, or ValueError, which the options make a line of their error of."""
        try:
            to_python(case)
        except ValueError:
            return "refused"
        return "taken"


class _InMemory(type(Path())):  # type: ignore[misc]
    """A path whose file is these bytes."""

    content = b""

    def open(self, *_: Any, **__: Any) -> Any:
        """For reading alone."""
        return io.BytesIO(self.content)


_FORMS: dict[str, type[JobConfig]] = {
    "consume.yaml": ConsumeConfig, "produce.yaml": ProduceConfig, "transform.yaml": TransformConfig, "job.yaml": KafkaToKafka,
}  # fmt: skip
_TEMPLATES = Path(load_config.__code__.co_filename).parent / "templates"
_YAML = (
    b"a: &x [1, 2]\nb: *x\n", b"a: !!python/object:os.system x\n", b"a: 2020-99-99\n", b"a: 0b1\n? [1]\n: 2\n", b"<<: {a: 1}\na: 2\n",
    b"a: &a [*a]\n", b"%YAML 1.1\n---\na: 1\n---\nb: 2\n", b"a: |\n  text\n", b"a: 1:2:3\nb: .inf\nc: 1e5\nd: ~\n", b"- 1\n- 2\n",
)  # fmt: skip


class YamlFiles(Stateless):
    """The jobs' own, and what only YAML has."""

    name = "YAML"
    reads = "YAML files of jobs"

    @cached_property
    def _originals(self) -> list[bytes]:
        return [*self._templates.values(), *_YAML]

    @cached_property
    def _templates(self) -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in sorted(_TEMPLATES.glob("*.yaml"))}

    def made(self, chance: random.Random) -> Any:
        """Which form, and the file."""
        name = chance.choice(tuple(_FORMS))
        content = self._templates.get(name, b"") if chance.random() < 0.7 else chance.choice(self._originals)
        for _ in range(chance.choice((0, 1, 1, 2))):
            lines = content.split(b"\n")
            at = chance.randrange(len(lines))
            kind = chance.randrange(5)
            if kind == 0:
                lines[at] = changed_bytes(chance, lines[at])
            elif kind == 1:
                lines.insert(at, chance.choice(self._originals).split(b"\n")[0])
            elif kind == 2:
                lines[at] = lines[at].split(b":")[0] + b": " + other_text(chance).encode()
            elif kind == 3:
                lines[at] = b" " * chance.choice((0, 2, 5)) + lines[at].strip()
            else:
                del lines[at]
            content = b"\n".join(lines)
        kind = chance.randrange(20)
        if kind == 0:
            content = content.decode("utf-8", "replace").encode(chance.choice(("utf-16", "utf-32", "utf-8-sig")))
        elif kind == 1:
            content = changed_bytes(chance, content)
        elif kind == 2:
            content += chance.choice((b"[", b"{a: ", b"- ", b"'")) * chance.choice((3, 200, 5_000))
        return name, content

    def played(self, case: Any) -> str:
        """A checked configuration, or an error that says what is wrong."""
        name, content = case
        # Beside it are the settings of Spark that it names.
        path = _InMemory(_TEMPLATES / name)
        path.content = content
        try:
            fields = read_fields(path)
        except OptionsError:
            fields = {}
        wrong_fields(fields)
        try:
            load_config(path, _FORMS[name], {})
        except ConfigError:
            return "refused"
        return "taken"
