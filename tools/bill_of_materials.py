"""The bill of materials of a wheel, in CycloneDX: what it requires, in the versions and with the hashes of a lock.

Owns: reading the lock, and which of it every install has.
Does not know: how the wheel is made. The form is that of cyclonedx-python-lib, which also judges it by its schema.
Invariants:
- The same wheel, lock and environment make the same text: no time of the run, no random number.
- A component has the hashes of all its files, for each platform has its own.
- Licences are those of the metadata of what is installed here; what is not installed has none in the bill.
"""

from __future__ import annotations

import hashlib
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.parser import BytesParser
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SPACE = uuid.UUID("8b9b2a3e-3a5d-4c6f-9a64-5a2f6a1d7c10")
"""Of serial numbers, which are made of the content."""

_DAY = datetime(2020, 1, 1, tzinfo=timezone.utc)
"""That of the wheel's files."""


@dataclass
class Pin:
    """One line of the lock. `needed_by`: names, of which the project's own is `project`."""

    name: str
    version: str
    marker: str
    hashes: list[str]
    needed_by: set[str] = field(default_factory=set)


def pins(lock: str) -> Iterator[Pin]:
    """The pins of a lock, in its order."""
    for part in re.split(r"\n(?=\S)", lock.strip()):
        lines = [line.strip().rstrip("\\").strip() for line in part.splitlines()]
        needed = [line.lstrip("# ").removeprefix("via").strip() for line in lines if line.startswith("#")]
        requirement = Requirement(lines[0])
        (pinned,) = requirement.specifier
        yield Pin(
            canonicalize_name(requirement.name), pinned.version, str(requirement.marker or ""),
            sorted(line.removeprefix("--hash=sha256:") for line in lines if line.startswith("--hash=")),
            {canonicalize_name(each.partition(" (")[0]) for each in needed if each},
        )  # fmt: skip


def required(found: Iterable[Pin], project: str, directly: Iterable[str]) -> set[str]:
    """The names that every install has: those that the project requires without an extra, and what they need."""
    by_name: dict[str, set[str]] = {}
    for pin in found:
        by_name.setdefault(pin.name, set()).update(pin.needed_by - {project})
    names: set[str] = {canonicalize_name(each) for each in directly}
    while more := {name for name, parents in by_name.items() if name not in names and parents & names}:
        names |= more
    return names


def written(wheel: Path, lock: Path) -> str:
    """The bill as JSON, judged by the schema of CycloneDX."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    about = _metadata(wheel)
    project, found = canonicalize_name(about["Name"]), list(pins(lock.read_text()))
    directly = [Requirement(each).name for each in about.get_all("Requires-Dist") or () if "extra ==" not in each]
    always = required(found, project, directly)
    root = _component(
        project,
        about["Version"],
        [hashlib.sha256(wheel.read_bytes()).hexdigest()],
        about["License-Expression"] or about["License"],
    )
    bom = Bom()
    bom.metadata.component = root
    bom.metadata.timestamp = _DAY
    parts = {(pin.name, pin.version): _of_pin(pin, pin.name in always) for pin in found}
    bom.components.update(parts.values())
    by_name: dict[str, list[Any]] = {}
    for (name, _), part in parts.items():
        by_name.setdefault(name, []).append(part)
    needs: dict[str, set[Any]] = {}
    for pin in found:
        for parent in pin.needed_by:
            needs.setdefault(parent, set()).add(parts[pin.name, pin.version])
    for parent, children in needs.items():
        for part in [root] if parent == project else by_name.get(parent, ()):
            bom.register_dependency(part, children)
    bom.serial_number = uuid.uuid5(_SPACE, hashlib.sha256(wheel.read_bytes() + lock.read_bytes()).hexdigest())
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise SystemExit(f"the bill of materials is not CycloneDX: {wrong}")
    return text + "\n"


def _of_pin(pin: Pin, always: bool) -> Any:
    from cyclonedx.model import Property
    from cyclonedx.model.component import ComponentScope

    part = _component(pin.name, pin.version, pin.hashes, _licence(pin))
    part.scope = ComponentScope.REQUIRED if always else ComponentScope.OPTIONAL
    if pin.marker:
        part.properties.add(Property(name="python:marker", value=pin.marker))
    return part


def _component(name: str, pinned: str, hashes: Iterable[str], licence: str | None) -> Any:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL("pypi", name=name, version=pinned)
    made = Component(name=name, version=pinned, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))
    made.hashes.update(HashType(alg=HashAlgorithm.SHA_256, content=each) for each in hashes)
    if licence:
        made.licenses.add(LicenseFactory().make_from_string(licence))
    return made


def _licence(pin: Pin) -> str | None:
    """As the package's own metadata say it: an expression of SPDX where they have one, else their words."""
    try:
        if version(pin.name) != pin.version:
            return None
        about: Any = metadata(pin.name)
    except PackageNotFoundError:
        return None
    said = about.get("License-Expression")
    classes = [
        each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License ::")
    ]
    in_a_word = str(about.get("License") or "").strip()
    # Some have the whole text there.
    return said or ", ".join(classes) or (in_a_word if 0 < len(in_a_word) < 60 and "\n" not in in_a_word else None)


def _metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name))
