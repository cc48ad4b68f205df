"""Finding a Java, and getting by with the trimmed one from PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedded_kafka.real import java


def fake_java(home: Path, answer: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("Error: could not find libjava.so", None),
    ],
)
def test_the_feature_release_is_read_from_what_java_prints(answer: str, version: int | None) -> None:
    assert java.parse_version(answer) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    other = fake_java(tmp_path / "other", 'openjdk version "21.0.1"')

    found = java.find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin"})

    assert found == java.Java(home, 17)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "11.0.2"')
    new = fake_java(tmp_path / "new", 'openjdk version "21.0.1"')

    found = java.find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"})

    assert found == java.Java(new, 21)


def test_a_java_home_without_a_working_java_is_passed_over(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", 'openjdk version "21.0.1"')

    found = java.find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": f"{new}/bin"})

    assert found == java.Java(new, 21)


def test_a_java_on_path_is_found_through_symbolic_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "real", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert java.find_java({"PATH": str(tmp_path / "bin")}) == java.Java(home, 17)


def test_the_wrapper_drops_the_missing_module_and_keeps_every_other_argument_as_it_was(
    tmp_path: Path,
) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor argument do printf "%s\\n" "$argument"; done\n')
    echo.chmod(0o755)

    home = java._wrapped(echo, tmp_path / "cache")
    arguments = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "",
        "--add-modules=java.sql",
        "$HOME 'x'",
    ]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert answer.stdout.split("\n")[:-1] == ["-cp", "a b:*", "", "--add-modules=java.sql", "$HOME 'x'"]


def test_the_environment_for_spark_names_the_java_and_this_python_and_leaves_this_process_alone(
    tmp_path: Path,
) -> None:
    before = dict(os.environ)

    environ = java.Java(tmp_path, 17).environ({"PATH": "/bin", "JAVA_HOME": "/old"})

    assert environ == {"PATH": "/bin", "JAVA_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert dict(os.environ) == before
