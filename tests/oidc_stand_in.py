"""An OpenID Connect provider on loopback: discovery, authorization, tokens signed with RS256, user info.

Everybody who is sent to it is `provider.claims` and agrees at once. It refuses a wrong client, a wrong secret, a wrong
address to return to and a code whose proof (PKCE) does not fit.
"""

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

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "assistant", "only-for-tests"


@dataclass
class Provider:
    claims: dict[str, Any]
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    wrong_issuer: bool = False
    port: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def providing(**claims: Any) -> Iterator[Provider]:
    provider = Provider(claims)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    provider.port = http.server_address[1]
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield provider
    finally:
        http.shutdown()
        http.server_close()


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            match parts.path:
                case "/.well-known/openid-configuration":
                    self._json(_discovery(provider.issuer))
                case "/jwks":
                    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(provider.key.public_key()))
                    self._json({"keys": [public | {"kid": "1", "use": "sig", "alg": "RS256"}]})
                case "/authorize":
                    self._authorize(query)
                case "/claims":  # for tests: who comes next
                    provider.claims = json.loads(query["claims"])
                    self._json({})
                case "/userinfo":
                    self._json(provider.claims)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            asked = provider.codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            known = (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
            if asked is None or not known or proof != asked["code_challenge"]:
                return self._json({"error": "invalid_grant"}, status=400)
            now = int(time.time())
            issuer = "http://evil.example" if provider.wrong_issuer else provider.issuer
            claims = provider.claims | {"iss": issuer, "aud": CLIENT, "iat": now, "exp": now + 60}
            id_token = jwt.encode(claims, provider.key, algorithm="RS256", headers={"kid": "1"})
            return self._json({"access_token": "opaque", "token_type": "Bearer", "id_token": id_token})

        def _authorize(self, query: dict[str, str]) -> None:
            assert query["client_id"] == CLIENT
            assert query["code_challenge_method"] == "S256"
            code = secrets.token_urlsafe()
            provider.codes[code] = query
            self.send_response(302)
            self.send_header(
                "Location", f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
            )
            self.end_headers()

        def _json(self, value: Any, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


def _discovery(issuer: str) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "userinfo_endpoint": f"{issuer}/userinfo",
        "jwks_uri": f"{issuer}/jwks",
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }
