"""A KDC of MIT krb5 on loopback, and the Python package that logs in by its tickets; nobody has to be root.

Owns: where krb5's programs and gssapi are found, the realm, its keytabs, its krb5.conf.
Does not know: Kafka.
Invariants: the machine's packages and the environment stay as they are.

krb5's programs are those on the PATH, else those of Debian's packages (Ubuntu's are alike), unpacked into the user's
cache. gssapi is the installed one, else it is built once against the headers of the same packages (a minute on two
cores) and kept there, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import spawn
from embedded_kafka.real.cache import cache_dir, making
from tests.support import debian

REALM = "EOS.TEST"
HOST = "localhost"
BROKER = f"kafka/{HOST}"
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev")
_WITHIN_S = 60
_BUILT_WITHIN_S = 1800
_LOOK_AGAIN_AFTER_S = 0.05
_WANTED = "gssapi>=1.9,<2"

_KRB5 = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
[domain_realm]
{host} = {realm}
"""
_KDC = """\
[kdcdefaults]
kdc_ports = {port}
kdc_tcp_ports = {port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  max_renewable_life = 1d
}}
{modules}
"""


class NoKerberos(Exception):
    """Neither the machine nor the registries have it; the text has the reason."""


@dataclass(frozen=True)
class Realm:
    """A running KDC. `settings`: krb5.conf; `broker`, `user`: keytabs; `principal`: the user's."""

    settings: Path
    broker: Path
    user: Path
    principal: str


def offer_gssapi() -> None:
    """Have this process, and those that it starts, find gssapi; NoKerberos where it is not to be had."""
    if find_spec("gssapi") is not None:
        return
    site = _fetched("gssapi-" + ".".join(map(str, sys.version_info[:2])), _build)
    sys.path.append(str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(site))))


@contextmanager
def running(folder: Path, user: str) -> Iterator[Realm]:
    """A KDC that knows a broker and one user, with their keytabs; NoKerberos where krb5 is not to be had."""
    root = None if shutil.which("krb5kdc") and shutil.which("kadmin.local") else _krb5()
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    settings, kdc = folder / "krb5.conf", folder / "kdc.conf"
    plugins = "" if root is None else f"[dbmodules]\ndb_module_dir = {_folder(root, 'krb5/plugins/kdb')}"
    settings.write_text(_KRB5.format(realm=REALM, port=port, host=HOST))
    kdc.write_text(_KDC.format(realm=REALM, port=port, folder=folder, modules=plugins))
    environ = _environ(root) | {"KRB5_CONFIG": str(settings), "KRB5_KDC_PROFILE": str(kdc)}
    _run(environ, root, "kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    keytabs = {}
    for name, file in ((BROKER, "broker.keytab"), (user, "user.keytab")):
        keytabs[name] = folder / file
        _run(environ, root, "kadmin.local", "-r", REALM, "addprinc", "-randkey", name)
        _run(environ, root, "kadmin.local", "-r", REALM, "ktadd", "-k", str(keytabs[name]), name)
    program = _program(root, "krb5kdc")
    before = {name: os.environ.get(name) for name in environ}
    # The process that is started has this process's environment.
    os.environ.update(environ)
    try:
        child = spawn([program, "-n", "-r", REALM], log_path=folder / "kdc.log")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    os.environ["KRB5_CONFIG"] = str(settings)
    try:
        _wait(port, folder / "kdc.log")
        yield Realm(settings, keytabs[BROKER], keytabs[user], f"{user}@{REALM}")
    finally:
        os.environ.pop("KRB5_CONFIG", None)
        child.stop()


def _wait(port: int, log: Path) -> None:
    import socket

    until = time.monotonic() + _WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise NoKerberos(f"the KDC does not answer: {log.read_text()[-1000:]}") from None
            time.sleep(_LOOK_AGAIN_AFTER_S)
        else:
            return


def _run(environ: dict[str, str], root: Path | None, name: str, *words: str) -> None:
    done = subprocess.run(
        [_program(root, name), *words], env={**os.environ, **environ}, capture_output=True, text=True,
        timeout=_WITHIN_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise NoKerberos(f"{name}: {done.stdout}{done.stderr}")


def _program(root: Path | None, name: str) -> str:
    return name if root is None else str(root / "usr" / "sbin" / name)


def _folder(root: Path, name: str) -> Path:
    """A folder of the unpacked libraries, below the machine's architecture."""
    found = next(iter(sorted((root / "usr" / "lib").glob(f"*-linux-*/{name}"))), None)
    if found is None:
        raise NoKerberos(f"Debian's packages have no {name}")
    return found


def _environ(root: Path | None) -> dict[str, str]:
    return {} if root is None else {"LD_LIBRARY_PATH": str(_folder(root, "libkrb5.so.3").parent)}


def _krb5() -> Path:
    """The unpacked packages."""
    return _fetched("krb5", _unpack)


def _fetched(name: str, make: object) -> Path:
    kept = cache_dir() / name
    try:
        with making(kept) as unfinished:
            if unfinished is not None:
                make(unfinished)  # type: ignore[operator]
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        raise NoKerberos(f"{name}: {error} {said[-300:]}".strip()) from error
    return kept


def _unpack(into: Path) -> None:
    debian.unpack(into, *_PACKAGES, needed_too=True)


def _build(into: Path) -> None:
    """Build gssapi with pip against the unpacked headers; a library of krb5 is on every machine that has Kerberos at
    all.
    """
    usr = _krb5() / "usr"
    libraries = _folder(_krb5(), "libkrb5.so.3").parent
    environ = {
        **os.environ,
        "GSSAPI_COMPILER_ARGS": f"-I{usr}/include/mit-krb5 -I{usr}/include -DHAS_GSSAPI_EXT_H",
        # The machine may have no libgssapi_krb5 of its own.
        "GSSAPI_LINKER_ARGS": f"-L{libraries}/mit-krb5 -L{libraries} -lgssapi_krb5 -Wl,-rpath,{libraries}",
        "GSSAPI_MAIN_LIB": str(libraries / "libgssapi_krb5.so.2"),
    }
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(into),
        _WANTED,
    ]
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=_BUILT_WITHIN_S, env=environ)
