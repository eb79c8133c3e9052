"""How the hub is asked: first a question with two seconds to answer, then with few retries, and without one offline.

The library retries for over 20 seconds where nobody answers, even with a filled cache, and again for every request
that fails on the way.
"""

import logging
from functools import cache
from typing import Any
from urllib.parse import quote

PROBE_SECONDS = 2.0
TRIES = 2


def endpoint() -> str:
    """The address of the hub or its mirror: HF_ENDPOINT as it was when the library was imported."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def commit_of(repository: str, revision: str | None) -> str | None:
    """The commit that a revision (None: the newest state) stands for; None if the hub does not answer, or is not asked.

    Then the libraries are offline from here on. Raises what `huggingface_hub` does where the hub says no.
    """
    from huggingface_hub import constants, errors, get_token
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        get_session,
        hf_raise_for_status,
        httpx,
        validate_repo_id,
    )

    validate_repo_id(repository)
    if constants.HF_HUB_OFFLINE:
        return None
    _give_up_soon()
    token = get_token()
    try:
        response = get_session().get(
            f"{endpoint()}/api/datasets/{repository}/revision/{quote(revision or 'main', safe='')}",
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=PROBE_SECONDS,
        )
        hf_raise_for_status(response)
        return str(response.json()["sha"])
    except errors.HfHubHTTPError as error:
        if error.response.status_code < 500 and error.response.status_code != 429:
            raise
    except (GaveUpError, httpx.TransportError, ValueError, KeyError):  # the last two: a page of some other server
        pass
    go_offline()
    return None


def go_offline() -> None:
    """As if HF_HUB_OFFLINE=1 had been set; the libraries read the environment only when they are imported."""
    import datasets
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


@cache
def _give_up_soon() -> None:
    """Have the library use a client that ends its retries after TRIES failures at the same address."""
    from huggingface_hub import constants, errors, set_client_factory
    from huggingface_hub.utils import hf_raise_for_status, httpx  # type: ignore[attr-defined]

    for name in ("httpx", "httpx2"):  # one line a request otherwise
        logging.getLogger(name).setLevel(logging.WARNING)
    failures: dict[str, int] = {}

    class ImpatientClient(httpx.Client):  # type: ignore[misc, name-defined]
        def send(self, request: Any, **options: Any) -> Any:
            if constants.HF_HUB_OFFLINE:
                raise errors.OfflineModeIsEnabled(f"HF_HUB_OFFLINE is set, so {request.url} is not asked")
            address = f"{request.method} {request.url}"
            try:
                response = super().send(request, **options)
            except httpx.TransportError as error:
                failures[address] = failures.get(address, 0) + 1
                if failures[address] >= TRIES:
                    raise GaveUpError(f"{error or type(error).__name__} ({address})") from error
                raise
            failures[address] = failures.get(address, 0) + 1 if response.status_code >= 500 else 0
            if failures[address] >= TRIES:
                response.read()
                hf_raise_for_status(response)
            return response

    set_client_factory(lambda: ImpatientClient(follow_redirects=True, timeout=None))


class GaveUpError(OSError):
    """The same address failed several times; unlike the error of the last failure, the library does not retry on it."""


def first_words(error: BaseException) -> str:
    """What an exception of a library says, or the request that it comes from, without the advice on the lines below."""
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, GaveUpError | httpx.HTTPError) and str(link).strip():
            error = link
        link = link.__cause__ or link.__context__
    text = str(error).strip() or type(error).__name__
    return " ".join(text.partition("\n")[0].split()).rstrip(".:")
