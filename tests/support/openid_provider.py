"""An OpenID provider for tests: real HTTP, real signatures, and every fault that a relying party must notice."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

CLIENT, SECRET = "assay-web", "the-clients-secret"


@dataclass
class Provider:
    """`claims`: of whoever signs in next. `overrides`: claims of the ID token that are set wrong; None leaves one out.
    `algorithm`: that it signs with; HS256 with the client's secret, none without a signature. `stranger`: it signs with
    a key that it does not publish."""

    issuer: str
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "s-1", "preferred_username": "grace"})
    overrides: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    stranger: bool = False
    refuses: str | None = None
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"use": "sig"}, auto_kid=True))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        answer = {"state": query["state"]}
        if self.refuses is not None:
            return f"{query['redirect_uri']}?{urlencode(answer | {'error': self.refuses})}"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode(answer | {'code': code, 'iss': self.issuer})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and body. A code is good once."""
        asked = self.codes.pop(form.get("code", ""), None)
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if asked is None or authorization != basic or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= self.claims | self.overrides
        return 200, {
            "access_token": "of-no-use-here",
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": self._signed({name: value for name, value in claims.items() if value is not None}),
        }

    def _signed(self, claims: dict[str, Any]) -> str:
        if self.algorithm == "none":
            parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
            return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
        if self.algorithm == "HS256":
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])
        key = RSAKey.generate_key(2048, {"use": "sig"}, auto_kid=True) if self.stranger else self.key
        return jwt.encode({"alg": self.algorithm, "kid": self.key.kid}, claims, key)


@contextmanager
def openid_provider() -> Iterator[Provider]:
    """Serves on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize({name: values[0] for name, values in query.items()}))
                self.end_headers()
            elif path == "/.well-known/openid-configuration":
                at = provider.issuer
                endpoints = {"authorization_endpoint": f"{at}/authorize", "token_endpoint": f"{at}/token"}
                self._json(200, {"issuer": at, "jwks_uri": f"{at}/jwks", **endpoints})
            else:
                self._json(200, KeySet([provider.key]).as_dict(private=False))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._json(*provider.token(form, self.headers.get("authorization", "")))

        def _json(self, status: int, payload: Any) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(payload).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
