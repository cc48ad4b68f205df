"""An authority and certificates for brokers on this machine, made by the openssl command.

Owns: the command's arguments.
Does not know: who uses the files.
Invariants: keys are written into the given directory only, which its caller has made private.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kafka_core.errors import OptionsError

_DAYS = "30"
_ENDS_WITHIN_S = 60.0
_SETTINGS = """\
[req]
distinguished_name = names
prompt = no
utf8 = yes
[names]
CN = unused
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
authorityKeyIdentifier = keyid
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
[client]
basicConstraints = critical,CA:FALSE
authorityKeyIdentifier = keyid
extendedKeyUsage = clientAuth
"""


class Authority:
    """An authority of its own, valid for 30 days. `certificate`: its file in PEM. OptionsError where openssl is missing
    or fails.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._settings = directory / "openssl.cnf"
        self._settings.write_text(_SETTINGS)
        self._key = directory / "ca.key"
        self._issued = 0
        self.certificate = directory / "ca.pem"
        _make_key(self._key)
        _openssl(
            "req", "-x509", "-new", "-key", self._key, "-config", self._settings, "-extensions", "authority",
            "-days", _DAYS, "-subj", _subject("embedded-kafka-authority"), "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name: str, file: str, purpose: str) -> tuple[Path, Path]:
        """The files of a certificate for CN=`name` and of its key, `file`.pem and `file`.key. `purpose`: "server",
        which is for localhost and 127.0.0.1, or "client".
        """
        certificate, key, request = (self._directory / f"{file}.{end}" for end in ("pem", "key", "csr"))
        self._issued += 1
        _make_key(key)
        _openssl(
            "req", "-new", "-utf8", "-key", key, "-config", self._settings, "-subj", _subject(name), "-out", request
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-set_serial", str(self._issued),
            "-days", _DAYS, "-extfile", self._settings, "-extensions", purpose, "-out", certificate,
        )  # fmt: skip
        request.unlink()
        return certificate, key


def _make_key(path: Path) -> None:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
    path.chmod(0o600)


def _subject(name: str) -> str:
    return "/CN=" + re.sub(r"([/+\\])", r"\\\1", name)


def _openssl(*words: str | Path) -> None:
    try:
        done = subprocess.run(
            ["openssl", *map(str, words)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=_ENDS_WITHIN_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise OptionsError(
            "certificates are made by the openssl command, which is not on the PATH; install OpenSSL, or give the broker "
            "files of your own by ssl.keystore.location"
        ) from None
    if done.returncode != 0:
        raise OptionsError(f"openssl {words[0]} failed: {done.stderr.strip()}")
