"""A small OpenID provider: discovery, consent without a question, tokens signed with RS256."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


def _number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8)).rstrip(b"=").decode()


class IdentityProvider:
    """Answers for the present value of `person`."""

    def __init__(self, client_id: str) -> None:
        self.person: dict[str, Any] = {}
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._nonce = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                if address.path == "/authorize":
                    asked = {name: values[0] for name, values in parse_qs(address.query).items()}
                    outer._nonce = asked.get("nonce", "")
                    answer = urlencode({"code": "a-code", "state": asked["state"]})
                    self.send_response(302)
                    self.send_header("Location", f"{asked['redirect_uri']}?{answer}")
                    self.end_headers()
                    return
                self._json(outer._document(address.path, client_id))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._json(outer._tokens(client_id))

            def _json(self, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def _document(self, path: str, client_id: str) -> dict[str, Any]:
        if path == "/jwks":
            public = self._key.public_key().public_numbers()
            key = {"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256"}
            return {"keys": [{**key, "n": _number(public.n), "e": _number(public.e)}]}
        if path == "/userinfo":
            return self.person
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def _tokens(self, client_id: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {**self.person, "iss": self.issuer, "aud": client_id, "iat": now, "exp": now + 60}
        if self._nonce:
            claims["nonce"] = self._nonce
        token = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "k"})
        return {"access_token": "an-access-token", "token_type": "Bearer", "expires_in": 60, "id_token": token}

    def stop(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
