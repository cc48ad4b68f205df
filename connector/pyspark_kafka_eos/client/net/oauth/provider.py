"""Token providers: a function of the user, or one of the presets, called by its name.

Owns: how a name becomes a function, what the function gets and may give, whose a failure of it is.
Does not know: what the function does.
Invariants:
- Only the name and the configuration travel to executors, so a provider needs no pickle; its module has to be installed
  there.
- No message contains a value of the configuration, unless it is of three characters or fewer.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable
from typing import Any

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, LoginRefused, OptionsError, TokenUnavailable
from pyspark_kafka_eos.client.net.credentials.secrets import text_of
from pyspark_kafka_eos.client.net.oauth import presets
from pyspark_kafka_eos.client.net.oauth.assertion import claims_of
from pyspark_kafka_eos.client.net.oauth.endpoint import Answer
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.model import Secret
from pyspark_kafka_eos.model.references import secret

_OPTION = "kafka.sasl.oauthbearer.token.provider"
_SHOWN = 200
_SECRET = 4
"""Characters from which on a value is taken for a secret. With fewer, a value such as `c` would blot out the
message.
"""

_AWAY = (ConnectionError, TimeoutError)
"""What an own provider raises where its service is away. Any other error is for the author of the job."""

Provider = Callable[..., Any]


def load(oauth: OAuth) -> Provider:
    """The function; OptionsError where it cannot be imported."""
    if oauth.provider in presets.PRESETS:
        preset = presets.PRESETS[oauth.provider]
        preset.check(configuration(oauth))
        return preset
    module, _, path = oauth.provider.partition(":")
    found: Any
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise OptionsError(
            f"{_OPTION}: {module} cannot be imported on this machine ({type(error).__name__}: {error}); the driver and "
            "every executor need it",
            {"module": module},
        ) from error
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise OptionsError(f"{_OPTION}: {module} has no function {path}", {"module": module})
    return found  # type: ignore[no-any-return]


def configuration(oauth: OAuth) -> dict[str, str]:
    """What the function gets, as keyword arguments; references to secrets are read now."""
    pairs = [word.partition("=") for word in shlex.split(text_of(oauth.config))]
    return {name: text_of(secret(value)) for name, _, value in pairs}


def ask(oauth: OAuth, servers: tuple[str, ...]) -> Answer:
    """A token of the provider.

    TokenUnavailable where it raises ConnectionError or TimeoutError; errors of this package as they are; LoginRefused
    for any other. `servers`: the cluster's, for presets that find their region in the name.
    """
    function, given = load(oauth), configuration(oauth)
    facts = {"provider": oauth.provider}
    try:
        if isinstance(function, presets.Preset):
            found = function(servers, **given)
        else:
            found = function(**given)
    except ExactlyOnceError:
        raise
    except _AWAY as error:
        said = _hidden(error, given)
        raise TokenUnavailable(f"{oauth.where} gives no token now: {said}", facts) from None
    except Exception as error:  # noqa: BLE001 -- the function is the user's
        said = _hidden(error, given)
        raise LoginRefused(f"{oauth.where} gives no token: {said}; nothing was sent", facts) from None
    return _read(oauth, found)


def _hidden(error: BaseException, given: dict[str, str]) -> str:
    shown = " ".join(f"{type(error).__name__}: {error}".split())
    for each in sorted((value for value in given.values() if len(value) >= _SECRET), key=len, reverse=True):
        shown = shown.replace(each, "********")
    return shown[:_SHOWN]


def _read(oauth: OAuth, found: object) -> Answer:
    """A token, or a pair of it and the time when it ends."""
    token, ends = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    token = token.reveal() if isinstance(token, Secret) else token
    is_time = ends is None or (isinstance(ends, (int, float)) and not isinstance(ends, bool))
    if not isinstance(token, str) or not is_time:
        raise OptionsError(
            f"{_OPTION}: {oauth.provider} must give a token, or (token, seconds since 1970 when it ends); it gave "
            f"{type(found).__name__}",
            {"provider": oauth.provider},
        )
    ends = claims_of(token).get("exp") if ends is None else ends
    return Answer(token, float(ends) - runtime.time() if isinstance(ends, (int, float)) else None)
