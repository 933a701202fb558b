"""Names of a model hub, and whether it can be reached, asked once before a library asks it many times over.

Leaves out: fetching (transformers, with the user's settings).

A client that cannot connect tries each file six times, 23 s in all, and from_pretrained asks for several: a mistyped
name would be refused after most of a minute, and a model that is in the cache would come after two.
"""

import time
from functools import lru_cache
from pathlib import Path

from assay.errors import NotFoundError

TRIES = 2
PAUSE_S = 1.0
TIMEOUT_S = 5.0  #: of one try


def hub_id(name: str) -> str | None:
    """The name where it is OWNER/NAME, as models of a hub are called; None for a folder or a name of a workspace."""
    owner, _, model = name.partition("/")
    return name if owner and model and "/" not in model and not name.startswith((".", "~")) else None


@lru_cache(maxsize=64)
def cached_alone(model: str) -> str | None:
    """The folder in the cache that `model`, a hub id, is to be loaded from where the hub cannot be reached; else None.

    Where the hub answers, whatever it answers, the library is to speak with it. Nothing is asked with HF_HUB_OFFLINE:
    the library then looks into the cache alone by itself. Asked once a model in a process. Raises NotFoundError where
    there is neither hub nor cache.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if is_offline_mode():
        return None
    try:
        cached = try_to_load_from_cache(model, "config.json")
        url = hf_hub_url(model, "config.json")
    except HFValidationError:
        return None  # not an id at all: loading says what is wrong with it
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        try:
            get_hf_file_metadata(url, timeout=TIMEOUT_S)
            return None
        except HfHubHTTPError:
            return None  # loading says what it answered (no such model, no right to it) and retries what may pass
        except Exception as error:  # of the client's library, which is another one in each version of the hub's
            reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(cached, str):
        return str(Path(cached).parent)
    raise NotFoundError(
        f"cannot get {model} from the model hub: {constants.ENDPOINT} cannot be reached ({reason}), and the model is "
        "not in the cache; is the name right?"
    )
