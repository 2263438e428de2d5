"""Snapshots of the hub's repositories, downloaded through huggingface_hub; what goes wrong becomes one sentence."""

import errno
import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    hf_hub_url,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import validate_repo_id

from geomprobe.errors import ModelNotFound
from geomprobe.models.aliases import near_name
from geomprobe.models.folder import CONFIG
from geomprobe.models.wording import in_brief

logger = logging.getLogger("geomprobe")

DEADLINE: Final = 7.0  # seconds until the hub counts as out of reach, all in all
_SOCKET: Final = 5.0  # seconds for one step of a request
_WANTED: Final = ("*.safetensors", "*.json", "tokenizer.model*", "*.txt", "*.tiktoken", "*.jinja")
_CODE: Final = "*.py"
# Subfolders hold other formats of the same weights, and consolidated* is Mistral's second copy of them.
_UNWANTED: Final = ("*/*", "consolidated*")
_NOT_THE_MODEL: Final = ("consolidated", "adapter")
_BUSY: Final = (408, 429, 500, 502, 503, 504)

T = TypeVar("T")


class Snapshot(NamedTuple):
    """A repository's files at one commit."""

    path: Path
    revision: str


class _OutOfReach(Exception):
    """No answer, or none that came from a hub."""


def download(hub_id: str, *, revision: str | None = None, trust_remote_code: bool = False) -> Snapshot:
    """The snapshot of a repository, from the hub or, where that is out of reach, from the hub's cache.

    Parameters
    ----------
    hub_id : str
        ``owner/name``.
    revision : str or None
        A branch, tag or commit; None for the main branch.
    trust_remote_code : bool
        Download the repository's Python files as well.

    Raises
    ------
    ModelNotFound
        Where the repository is unknown, gated, without safetensors, or out of reach and not cached.
    """
    try:
        validate_repo_id(hub_id)
    except HFValidationError as error:
        raise ModelNotFound(
            f"{hub_id!r} is not a hub id; it must look like 'owner/name', in letters, digits, '-', '_' and '.'."
        ) from error
    patterns = (*_WANTED, _CODE) if trust_remote_code else _WANTED
    if constants.is_offline_mode():
        return _from_cache(hub_id, revision, patterns, reason="HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
    try:
        files = _within(DEADLINE, lambda: _ask(hub_id, revision))
    except HfHubHTTPError as error:
        if error.response.status_code not in _BUSY:
            raise _refusal(error, hub_id, revision) from error
        return _from_cache(hub_id, revision, patterns, reason=f"it answers {error.response.status_code}")
    except _OutOfReach as error:
        return _from_cache(hub_id, revision, patterns, reason=str(error))
    _check_files(hub_id, files)
    return _snapshot(hub_id, revision, patterns)


def is_cached(hub_id: str) -> bool:
    """Whether the hub's cache holds the repository's config (the weights may still be on their way)."""
    return isinstance(try_to_load_from_cache(hub_id, CONFIG), str)


def _ask(hub_id: str, revision: str | None) -> set[str]:
    """The repository's files, by requests that are not repeated; the second one tells whether it is gated."""
    try:
        info = HfApi().model_info(hub_id, revision=revision, timeout=_SOCKET)
        files = {file.rfilename for file in info.siblings or ()}
        if CONFIG in files:
            get_hf_file_metadata(hf_hub_url(hub_id, CONFIG, revision=info.sha), timeout=_SOCKET)
    except HfHubHTTPError:
        raise
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise _OutOfReach(f"{type(error).__name__}: {in_brief(error)}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # a page of a proxy or a login portal
        raise _OutOfReach("what answers there does not speak the hub's language") from error
    return files


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call, or _OutOfReach: a name look-up, for one, is bound by no timeout of the client."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            future.set_exception(error)

    Thread(target=run, name="geomprobe-hub", daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except TimeoutError as error:
        raise _OutOfReach(f"no answer within {seconds:.0f} seconds") from error


def _refusal(error: HfHubHTTPError, hub_id: str, revision: str | None) -> ModelNotFound:
    """What the hub means; the X-Error-Code says it, the status (often 401) does not."""
    headers = error.response.headers
    code, page = headers.get("X-Error-Code"), f"{constants.ENDPOINT}/{hub_id}"
    if code == "GatedRepo":
        return ModelNotFound(
            f"{hub_id!r} is gated: accept its terms at {page}, then log in with `hf auth login` or set HF_TOKEN, "
            "for the account that was given access."
        )
    if code == "RepoNotFound":
        return ModelNotFound(
            f"The hub has no model {hub_id!r}, or it is private and needs `hf auth login` or HF_TOKEN; there is no "
            f"folder of that name here either.{near_name(hub_id)} `geomprobe models` lists the short names."
        )
    if code == "RevisionNotFound":
        return ModelNotFound(f"{hub_id!r} has no revision {revision!r}; give a branch, tag or commit of {page}.")
    said = headers.get("X-Error-Message") or error.response.reason_phrase
    if error.response.status_code in (401, 403):
        return ModelNotFound(
            f"The hub refuses {hub_id!r} ({error.response.status_code}: {said}); check the token of "
            "`hf auth login` or HF_TOKEN, and that its account has access."
        )
    return ModelNotFound(
        f"The hub at {constants.ENDPOINT} answers {error.response.status_code} ({code or said}) for {hub_id!r}; "
        "check the name and HF_ENDPOINT, or try again later."
    )


def _check_files(hub_id: str, files: set[str]) -> None:
    """Raise before the download where it could not be loaded after it."""
    top = {name for name in files if "/" not in name}
    if CONFIG not in top:
        hint = (
            "download one of its .gguf files and give that"
            if any(name.endswith(".gguf") for name in files)
            else "give a repository that transformers can load"
        )
        raise ModelNotFound(f"{hub_id!r} has no {CONFIG}; {hint}.")
    if not any(name.endswith(".safetensors") and not name.startswith(_NOT_THE_MODEL) for name in top):
        raise ModelNotFound(
            f"{hub_id!r} has no safetensors weights, and others (.bin, .pt) are never loaded; a converted copy may "
            "wait as a pull request of the repository: then give it as --revision refs/pr/NUMBER."
        )


def _snapshot(hub_id: str, revision: str | None, patterns: tuple[str, ...], **options: Any) -> Snapshot:
    try:
        folder = snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=list(patterns),
            ignore_patterns=list(_UNWANTED),
            etag_timeout=_SOCKET,
            **options,
        )
    except LocalEntryNotFoundError as error:  # before OSError, of which it is one
        raise _interrupted(hub_id, error) from error
    except HfHubHTTPError as error:
        raise _refusal(error, hub_id, revision) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelNotFound(
                f"The disk of the hub's cache {constants.HF_HUB_CACHE!r} is full; free some space, or set HF_HOME to a "
                "folder on another disk."
            ) from error
        raise _interrupted(hub_id, error) from error
    except (httpx2.HTTPError, RuntimeError) as error:  # RuntimeError: the hub's other transport
        raise _interrupted(hub_id, error) from error
    return Snapshot(Path(folder), Path(folder).name)


def _interrupted(hub_id: str, error: Exception) -> ModelNotFound:
    return ModelNotFound(
        f"The download of {hub_id!r} did not finish ({in_brief(error)}); run it again, it goes on from there."
    )


def _from_cache(hub_id: str, revision: str | None, patterns: tuple[str, ...], *, reason: str) -> Snapshot:
    try:
        snapshot = _snapshot(hub_id, revision, patterns, local_files_only=True)
    except ModelNotFound as error:
        at = f" at revision {revision!r}" if revision else ""
        raise ModelNotFound(
            f"The hub at {constants.ENDPOINT} is out of reach ({reason}), and {hub_id!r}{at} is not whole in its "
            "cache; check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or give a local folder or .gguf file."
        ) from error
    logger.info(
        "The hub is out of reach (%s); using %s from its cache, revision %s.", reason, hub_id, snapshot.revision
    )
    return snapshot
