"""Authorities, certificates, keys and lists of revoked certificates, made by the openssl command in a folder of the
test.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_SETTINGS = """\
[ca]
default_ca = own
[own]
dir = {folder}
database = {folder}/index.txt
new_certs_dir = {folder}
serial = {folder}/serial
crlnumber = {folder}/crlnumber
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = names
prompt = no
[names]
CN = unused
"""


def openssl(*words: str | Path) -> str:
    """The command's output; an AssertionError with its complaint where it fails."""
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"openssl {words}: {done.stderr}"
    return done.stdout


class Authority:
    """One authority. `file` is its certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._settings = folder / "openssl.cnf"
        self._settings.write_text(_SETTINGS.format(folder=folder))
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("01\n")
        (folder / "crlnumber").write_text("01\n")
        self.file = folder / "ca.pem"
        _make_key(folder / "ca.key")
        openssl(
            *("req", "-x509", "-new", "-key", folder / "ca.key", "-config", self._settings, "-days", "30"),
            *(
                "-subj",
                f"/CN={folder.name}",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
                "-out",
                self.file,
            ),
        )

    def issue(self, name: str, *, host: str = "IP:127.0.0.1,DNS:localhost", expired: bool = False) -> tuple[Path, Path]:
        """The files of a certificate and of its key. `host`: the names that it is for."""
        key, request, certificate = (self._folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        _make_key(key)
        openssl(
            *("req", "-new", "-key", key, "-config", self._settings, "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={host}", "-out", request),
        )
        dates = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z") if expired else ()
        openssl(
            *(
                "ca",
                "-batch",
                "-notext",
                "-config",
                self._settings,
                "-in",
                request,
                "-out",
                certificate,
                *dates,
            )
        )
        return certificate, key

    def revoke(self, certificate: Path) -> None:
        """Revoke it; lists made from now on have it."""
        openssl("ca", "-config", self._settings, "-revoke", certificate)

    def revoked(self, name: str = "crl", *, ended: bool = False) -> Path:
        """The file of a list of the revoked certificates. `ended`: the list is no longer valid."""
        path = self._folder / f"{name}.pem"
        dates = ("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z") if ended else ()
        openssl("ca", "-gencrl", "-config", self._settings, *dates, "-out", path)
        return path


def encrypted(key: Path, password: str) -> Path:
    """A copy of a key that the password opens."""
    path = key.with_suffix(".locked")
    openssl("pkcs8", "-topk8", "-in", key, "-out", path, "-passout", f"pass:{password}")
    return path


def _make_key(path: Path) -> None:
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
