"""The text of `sasl.jaas.config`, as Java reads it.

Owns: its grammar.
Does not know: which module a mechanism needs, what an option means.
Invariants: nothing of the text gets into a message, because it has secrets; the module's class is the caller's to
judge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Java reads the text with StreamTokenizer: a class, a flag, then name=value pairs, quoted or not, and a
# semicolon.
_JAAS_WORD = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;="']+)"""
_JAAS_OPTION = rf"\s+{_JAAS_WORD}\s*=\s*{_JAAS_WORD}"
_JAAS = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)((?:{_JAAS_OPTION})*)\s*;\s*",
    re.IGNORECASE | re.DOTALL,
)
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class Jaas:
    """One login module. `module`: its class with the package; `options`: in the order given."""

    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def short(self) -> str:
        """The class without its package: a shaded class (kafkashaded.org.apache.kafka...) is the same module."""
        return self.module.rpartition(".")[2]

    @property
    def named(self) -> str:
        """The class for messages; a text that is no login module is not repeated."""
        return self.module if self.short.endswith("LoginModule") else "no login module"


def parse_jaas(text: str) -> Jaas | None:
    """The login module, or None where the text is not one."""
    match = _JAAS.fullmatch(text)
    if match is None:
        return None
    pairs = re.findall(_JAAS_OPTION, match[2], re.DOTALL)
    return Jaas(match[1], {_unquote(name): _unquote(value) for name, value in pairs})


def _unquote(word: str) -> str:
    """One StreamTokenizer word: inside quotes a backslash begins an escape, as in Java."""
    if word[0] not in "\"'":
        return word

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", plain, word[1:-1], flags=re.DOTALL)
