"""An OpenID Connect provider: the authorization code flow with PKCE, by Authlib, and what an ID token must say.

Covers: the provider's description, where to send the browser, the exchange of the code, the checks of OpenID Connect
Core 1.0, 3.1.3.7 (signature by a key of the provider's, issuer, audience, authorized party, times, nonce), the role
that its claims come to. Leaves out: accounts (`identities`), the browser's part (`assay_web.access.oidc_routes`).
"""

import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import BackendError, BadInputError, ForbiddenError
from assay_web.accounts.accounts import ROLES, Role
from assay_web.accounts.identities import Identity
from assay_web.settings import OidcSettings

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

TIMEOUT_S = 10.0
KEPT_S = 3_600.0  #: how long the provider's description and keys are good
LEEWAY_S = 60
#: By a key pair: a client secret signs nothing, and "none" is no signature.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
MOST_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class OidcProvider:
    """Thread-safe. Raises BackendError where the provider does not answer as one, ForbiddenError for what it does not
    vouch for."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._described: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = 0.0

    def sign_in_url(self, redirect: str, *, state: str, nonce: str, verifier: str) -> str:
        """Where the browser signs in."""
        url, _ = self._session(redirect).create_authorization_url(
            self._description()["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
        )
        return str(url)

    def identity(self, code: str, redirect: str, *, nonce: str, verifier: str) -> Identity:
        """Whom the code stands for."""
        from authlib.common.errors import AuthlibBaseError
        from requests.exceptions import RequestException

        try:
            token = self._session(redirect).fetch_token(
                self._description()["token_endpoint"],
                code=code,
                grant_type="authorization_code",
                code_verifier=verifier,
                timeout=TIMEOUT_S,
                allow_redirects=False,
            )
        except AuthlibBaseError as error:
            raise ForbiddenError(f"the provider refused the sign-in: {error.error}") from None
        except (RequestException, ValueError) as error:
            raise BackendError(f"the provider did not answer: {type(error).__name__}") from error
        id_token = token.get("id_token") if isinstance(token, dict) else None
        if not isinstance(id_token, str):
            raise BackendError("the provider sent no ID token: it is asked for the scope openid")
        return self._identity_of(self._claims(id_token, nonce))

    def _claims(self, id_token: str, nonce: str) -> dict[str, Any]:
        """The checked claims. A key that is not known may be a new one: the provider's are read again, once."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        settings = self.settings
        for again in (False, True):
            try:
                token = jwt.decode(id_token, self._key_set(again=again), algorithms=list(ALGORITHMS))
                break
            except InvalidKeyIdError:
                if again:
                    raise ForbiddenError("the ID token is signed with a key that the provider does not have") from None
            except (JoseError, ValueError) as error:
                raise ForbiddenError(f"the ID token is not the provider's: {type(error).__name__}") from None
        claims: dict[str, Any] = dict(token.claims)
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        now = time.time()
        wrong = next(
            (
                what
                for what, right in (
                    ("issuer", claims.get("iss") == settings.issuer),
                    ("audience", settings.client_id in audiences),
                    ("authorized party", claims.get("azp", settings.client_id) == settings.client_id),
                    ("authorized party", len(audiences) == 1 or "azp" in claims),
                    ("expiry", _number(claims.get("exp"), 0.0) > now - LEEWAY_S),
                    ("time of issue", _number(claims.get("iat"), now + 2 * LEEWAY_S) < now + LEEWAY_S),
                    ("nonce", claims.get("nonce") == nonce),
                    ("subject", isinstance(claims.get("sub"), str) and bool(claims["sub"])),
                )
                if not right
            ),
            None,
        )
        if wrong is not None:
            raise ForbiddenError(f"the ID token is not for this sign-in: wrong {wrong}")
        return claims

    def _identity_of(self, claims: dict[str, Any]) -> Identity:
        settings = self.settings
        names = (settings.name_claim, "preferred_username", "email", "name", "sub")
        name = next(str(claims[claim]) for claim in names if isinstance(claims.get(claim), str) and claims[claim])
        role: Role | None = None
        if settings.role_claim is not None:
            stated = claims.get(settings.role_claim)
            values = {str(value) for value in (stated if isinstance(stated, list) else [stated])}
            roles = {role for value, role in settings.roles if value in values}
            role = next((each for each in reversed(ROLES) if each in roles), settings.default_role)
            if role is None:
                raise ForbiddenError(f"the provider gives {name} no role here")
        return Identity(settings.issuer, claims["sub"], name, role)

    def _session(self, redirect: str) -> Any:
        try:
            from authlib.integrations.requests_client import OAuth2Session
        except ImportError:
            raise BackendError("signing in by a provider needs the extra `oidc`: pip install 'assay[oidc]'") from None

        described = self._description()
        basic = "client_secret_basic" in described.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        session = OAuth2Session(
            self.settings.client_id,
            self.settings.client_secret,
            scope=self.settings.scope,
            redirect_uri=redirect,
            code_challenge_method="S256",
            token_endpoint_auth_method="none"
            if self.settings.client_secret is None
            else ("client_secret_basic" if basic else "client_secret_post"),
        )
        session.max_redirects = 0
        return session

    def _description(self) -> dict[str, Any]:
        """As the provider publishes it (OpenID Connect Discovery 1.0), at most KEPT_S old."""
        with self._lock:
            if not self._described or time.monotonic() - self._read_at > KEPT_S:
                address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                described = _fetched(address)
                if described.get("issuer") != self.settings.issuer:
                    raise BackendError(f"{address} describes another issuer: {described.get('issuer')!r}")
                for endpoint in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    require_secure(str(described.get(endpoint)), endpoint)
                self._described, self._keys, self._read_at = described, None, time.monotonic()
            return self._described

    def _key_set(self, *, again: bool) -> "KeySet":
        from joserfc.jwk import KeySet

        address = self._description()["jwks_uri"]
        with self._lock:
            if self._keys is None or again:
                try:
                    self._keys = KeySet.import_key_set(_fetched(address))  # type: ignore[arg-type]
                except (ValueError, KeyError, TypeError) as error:
                    raise BackendError(f"{address} holds no keys") from error
            return self._keys


def require_secure(url: str, what: str) -> None:
    """Raises BadInputError for a URL that is neither https nor of this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise BadInputError("https://..., or http on this machine", field=what)


def _fetched(address: str) -> dict[str, Any]:
    """A JSON object. Raises BackendError."""
    import httpx

    try:
        reply = httpx.get(address, timeout=TIMEOUT_S, follow_redirects=False)
        reply.raise_for_status()
        payload = json.loads(reply.content[:MOST_BYTES])
    except (httpx.HTTPError, ValueError) as error:
        raise BackendError(f"the provider did not answer at {address}: {type(error).__name__}") from error
    if not isinstance(payload, dict):
        raise BackendError(f"{address} is no JSON object")
    return payload


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
