"""What Ivy is asked for."""

from __future__ import annotations

from embedded_kafka.real.maven import Artifact


def test_an_artifact_is_asked_for_by_its_coordinates() -> None:
    assert Artifact("a.b", "c", "1").dependency == '<dependency org="a.b" name="c" rev="1"></dependency>'


def test_another_jar_of_an_artifact_is_asked_for_beside_the_main_one() -> None:
    asked = Artifact("a.b", "c", "1", "test").dependency

    assert asked.count("<artifact ") == 2
    assert asked.count('m:classifier="test"') == 1
