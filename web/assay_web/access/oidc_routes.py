"""Routes by which a browser signs in at an OpenID provider and comes back.

Both are visits of addresses, not calls of the page: what goes wrong is a word in the page's address, which the page
puts into a sentence. The state is good once, and only in the browser that has its cookie: nobody can be signed in to
somebody else's account by a link. Leaves out: the provider (`assay_web.accounts.provider`), sessions (`routes`).
"""

import logging
import re
import secrets
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from assay.errors import AssayError, BackendError, BadInputError, ConflictError, ForbiddenError, NotFoundError
from assay.http.problems import ProblemError
from assay_web.access.audited_route import AuditedRoute, address_of
from assay_web.access.guard import Anybody, PersonNow, cookie_of
from assay_web.access.routes import set_session_cookie
from assay_web.accounts.audit_log import record
from assay_web.accounts.identities import PendingSignIn, account_of, begin_sign_in, link_identity, take_sign_in
from assay_web.accounts.sessions import begin_session
from assay_web.service import ServiceNow, WebService

log = logging.getLogger(__name__)

router = APIRouter(tags=["access"], route_class=AuditedRoute)

PATH = "/api/session/oidc"
MINUTES = 10
_OWN_PAGE = re.compile(r"/(?![/\\])[^\\\x00-\x20]*")


@router.get(PATH, status_code=303, response_class=RedirectResponse)
def sign_in_by_provider(
    request: Request,
    service: ServiceNow,
    person: PersonNow,
    _: Anybody,
    to: Annotated[str, Query(max_length=2_000, description="Address of the page to go to afterwards.")] = "/",
) -> Response:
    """To the provider. Somebody who is signed in gets the provider's identity for their account."""
    provider = service.provider
    if provider is None:
        raise NotFoundError("this server knows no provider to sign in by")
    nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    target = to if _OWN_PAGE.fullmatch(to) else "/"
    if person is not None and person.token is not None:  # a program's, which would get its person's whole account
        raise ProblemError(403, "no API token may do this: sign in")
    name = person.name if person is not None else None
    state, browser = begin_sign_in(service.access, PendingSignIn(nonce, verifier, target, name))
    try:
        url = provider.sign_in_url(_redirect_of(request), state=state, nonce=nonce, verifier=verifier)
    except (BackendError, BadInputError) as error:
        log.error("signing in by %s: %s", provider.settings.issuer, error)
        return _to_page("provider")
    response = RedirectResponse(url, 303)
    response.set_cookie(
        _cookie(request),
        browser,
        max_age=60 * MINUTES,
        path=PATH,
        httponly=True,
        samesite="lax",  # it must come back with the visit from the provider's page
        secure=service.settings.secure_cookies or request.url.scheme == "https",
    )
    return response


@router.get(f"{PATH}/callback", status_code=303, response_class=RedirectResponse)
def return_from_provider(
    request: Request,
    service: ServiceNow,
    _: Anybody,
    state: Annotated[str, Query(max_length=500)] = "",
    code: Annotated[str, Query(max_length=5_000)] = "",
    error: Annotated[str, Query(max_length=500)] = "",
    iss: Annotated[str | None, Query(max_length=500, description="RFC 9207.")] = None,
) -> Response:
    """From the provider: begin the session and go to the page."""
    provider = service.provider
    if provider is None:
        raise NotFoundError("this server knows no provider to sign in by")
    pending = take_sign_in(service.access, state, request.cookies.get(_cookie(request), ""))
    if pending is None:
        return _refused(service, request, "expired", "no sign-in of this browser is on its way")
    if iss is not None and iss != provider.settings.issuer:
        return _refused(service, request, "refused", "the answer is another provider's")
    if error or not code:
        return _refused(service, request, "cancelled", f"the provider: {error[:60] or 'no code'}")
    try:
        identity = provider.identity(code, _redirect_of(request), nonce=pending.nonce, verifier=pending.verifier)
        if pending.name is not None:
            link_identity(service.access, identity, pending.name)
            record(service.access, pending.name, "link_identity", pending.name, address=address_of(request))
            return _to_page(None, pending.target)
        settings = provider.settings
        name = account_of(service.access, identity, default_role=settings.default_role, project=settings.project)
    except ForbiddenError as refusal:
        return _refused(service, request, "refused", str(refusal))
    except ConflictError as conflict:
        return _refused(service, request, "taken", str(conflict))
    except AssayError as failure:
        return _refused(service, request, "provider", str(failure))
    token = begin_session(service.access, name, None, service.settings)
    record(service.access, name, "sign_in_by_provider", name, address=address_of(request))
    response = _to_page(None, pending.target)
    set_session_cookie(response, request, service, token)
    response.delete_cookie(_cookie(request), path=PATH)
    return response


def _refused(service: WebService, request: Request, word: str, why: str) -> Response:
    log.warning("a sign-in by the provider was refused: %s", why)
    record(service.access, "", "sign_in_refused", "", detail={"provider": word}, address=address_of(request))
    return _to_page(word)


def _to_page(problem: str | None, target: str = "/") -> RedirectResponse:
    return RedirectResponse(target if problem is None else f"/?sign-in={quote(problem)}", 303)


def _redirect_of(request: Request) -> str:
    """The address that the provider sends the browser back to; it must be one that was registered there."""
    return f"{request.url.scheme}://{request.headers.get('host', '')}{PATH}/callback"


def _cookie(request: Request) -> str:
    return cookie_of(request).replace("session", "oidc")
