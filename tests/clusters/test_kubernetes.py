"""The Dockerfile and the manifests in deploy/: Kubernetes' own schemas accept them, and their parts fit together.
Nothing is run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyspark_kafka_eos.jobs.__main__ import SCRIPT, SPARK_DEFAULTS, template
from tests.clusters.packed import pip_environ, wheels

ROOT = Path(__file__).parents[2]
MANIFESTS, DOCKERFILE = ROOT / "deploy" / "kubernetes.yaml", ROOT / "deploy" / "Dockerfile"
IMAGE = "registry.example.com/clean-orders:1"


def parts() -> dict[str, dict[str, Any]]:
    found = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS.read_text())}
    assert len(found) == 6
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = parts()["Deployment"]["spec"]["template"]["spec"]
    return spec


def settings() -> dict[str, str]:
    words = pod()["containers"][0]["args"]
    pairs = [words[place + 1] for place, word in enumerate(words) if word == "--conf"]
    return dict(each.split("=", 1) for each in pairs)


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with kubernetes-validate, for PYTHONPATH."""
    target = tmp_path_factory.mktemp("validator")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target, "kubernetes-validate"]
    subprocess.run(command, check=True, env={**os.environ, **pip_environ(wheels())})
    return target


def validate(validator: Path, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", path], env={**os.environ, "PYTHONPATH": str(validator)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.clusters
def test_the_schemas_of_kubernetes_accept_the_manifests_and_refuse_a_mistake(validator: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFESTS.read_text().replace("claimName:", "claim:"))

    accepted, refused = validate(validator, MANIFESTS), validate(validator, wrong)

    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert refused.returncode != 0


def test_every_part_has_the_name_that_the_others_use() -> None:
    found = parts()
    name, labels = "clean-orders", {"app": "clean-orders"}

    assert {each["metadata"]["namespace"] for each in found.values()} == {"streaming"}
    assert found["Service"]["spec"]["selector"] == labels
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Deployment"]["spec"]["template"]["metadata"]["labels"] == labels
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"] == name
    assert found["RoleBinding"]["subjects"][0]["name"] == found["ServiceAccount"]["metadata"]["name"] == name
    assert pod()["serviceAccountName"] == name
    assert settings()["spark.kubernetes.authenticate.serviceAccountName"] == name


def test_the_executors_reach_the_driver_by_the_ports_of_its_service() -> None:
    service = parts()["Service"]
    ports = {each["name"]: str(each["port"]) for each in service["spec"]["ports"]}

    assert settings()["spark.driver.host"] == f"{service['metadata']['name']}.streaming.svc"
    assert settings()["spark.driver.port"] == ports["driver"]
    assert settings()["spark.driver.blockManager.port"] == ports["blocks"]


def test_the_driver_can_write_to_all_that_it_writes_to() -> None:
    (driver,) = pod()["containers"]
    mounted = {each["mountPath"]: each["name"] for each in driver["volumeMounts"]}
    environ = {each["name"]: each.get("value", "") for each in driver["env"]}

    assert set(mounted.values()) == {each["name"] for each in pod()["volumes"]}
    assert driver["securityContext"]["readOnlyRootFilesystem"] and mounted["/tmp"] == "scratch"
    assert environ["CHECKPOINT_LOCATION"].startswith("file:///checkpoint/") and "/checkpoint" in mounted
    assert "/etc/job" in mounted and "/etc/job/transform.yaml" in driver["args"]


def test_the_variables_are_those_of_the_jobs_file() -> None:
    known = set(re.findall(r"\$\{(\w+):-", template("transform.yaml")))
    (driver,) = pod()["containers"]

    assert {each["name"] for each in driver["env"]} - {"POD_NAME", "PYSPARK_PYTHON"} <= known


def test_driver_and_executors_run_one_image_whose_kernels_are_compiled() -> None:
    (driver,) = pod()["containers"]
    text = DOCKERFILE.read_text()
    cache = re.search(r"NUMBA_CACHE_DIR=(\S+)", text)
    user = re.findall(r"^USER (\w+)$", text, re.MULTILINE)

    assert driver["image"] == settings()["spark.kubernetes.container.image"] == IMAGE and IMAGE in text
    assert cache is not None and settings()["spark.executorEnv.NUMBA_CACHE_DIR"] == cache[1]
    assert text.index("ENV NUMBA_CACHE_DIR") < text.index("RUN kafka-eos warm --shared")
    assert user[-1] == str(pod()["securityContext"]["runAsUser"])
    for name in (SCRIPT, SPARK_DEFAULTS, "transform.yaml"):
        assert name in text
