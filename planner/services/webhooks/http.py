"""Sending to addresses that people type: only to public ones, and to the one that was looked up and checked.

A name is resolved once and the connection goes to the address that was checked, so that a name that changes between
check and connection (DNS rebinding) leads nowhere else. Redirects are not followed.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore
from django.conf import settings

from planner.errors import Invalid

MAX_URL_CHARS = 500
TIMEOUT_S = 5.0  # for all of it: looking up, connecting, sending, and what is read of the answer
KEPT_BYTES = 500  # of an answer


class NotPublic(Exception):
    """The address is not one that the console sends to."""


@dataclass(frozen=True)
class Answer:
    """What came back: the status and the begin of the body, or why nothing did (status None)."""

    status: int | None
    text: str
    took_s: float

    @property
    def good(self) -> bool:
        """Whether the receiver took it."""
        return self.status is not None and 200 <= self.status < 300


def check_url(url: str) -> str:
    """The address, when it is one that the console may send to.

    Raises
    ------
    Invalid
        For another scheme, credentials in the address, or a literal address that is not public.
    """
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise Invalid(f"give an address of at most {MAX_URL_CHARS} printable ASCII characters", field="url")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"this is no address: {error}", field="url") from error
    if parts.username is not None or parts.password is not None:
        raise Invalid("credentials do not belong in an address: the signature tells who sends", field="url")
    if not host:
        raise Invalid("the address names no host", field="url")
    allowed = False
    try:
        literal = ip_address(host)
    except ValueError:
        pass
    else:
        allowed = _is_allowed(literal)
        if not allowed and not _is_public(literal):
            raise Invalid(f"{host} is not a public address (see CACHEROUTE_WEBHOOK_NETWORKS)", field="url")
    if parts.scheme != "https" and not (parts.scheme == "http" and allowed):
        raise Invalid("use https://", field="url")
    return url


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send once. Whatever goes wrong is in the answer: a receiver's fault is not the console's."""
    started = time.perf_counter()
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
    try:
        check_url(url)
        backend = _Guarded(time.monotonic() + TIMEOUT_S)
        with httpcore.ConnectionPool(network_backend=backend, ssl_context=ssl.create_default_context()) as pool:
            given = [("Content-Type", "application/json"), ("User-Agent", "cacheroute-web"), *headers.items()]
            host = urlsplit(url).netloc
            with pool.stream(
                "POST", url, headers=[("Host", host), *given], content=body, extensions={"timeout": timeout}
            ) as response:
                text = b""
                for part in response.iter_stream():
                    text += part
                    if len(text) >= KEPT_BYTES:
                        break
                status: int | None = response.status
    except (NotPublic, Invalid) as refused:
        status, text = None, str(refused).encode()
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError, ValueError) as error:
        status, text = None, f"{type(error).__name__}: {error}".encode()
    shown = text[:KEPT_BYTES].decode(errors="replace").replace("\0", "�")
    return Answer(status, shown, round(time.perf_counter() - started, 3))


class _Guarded(httpcore.NetworkBackend):
    """Connects to public addresses only, and to the very address that was checked; all before a deadline."""

    def __init__(self, deadline: float) -> None:
        self._plain = httpcore.SyncBackend()
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Look the name up, check what it leads to, connect to that."""
        lookup = ThreadPoolExecutor(1)  # the resolver of the system takes its own time, and cannot be told
        try:
            asked = lookup.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = asked.result(_left(self._deadline))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} could not be looked up in time") from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        finally:
            lookup.shutdown(wait=False)
        addresses = [str(entry[4][0]) for entry in found]
        # All of them: a name that leads to a public and a private address is not one to trust.
        for address in addresses:
            if not (_is_allowed(ip_address(address)) or _is_public(ip_address(address))):
                raise NotPublic(f"{host} leads to {address}, which is not a public address")
        left = _left(self._deadline)
        return _Hurried(
            self._plain.connect_tcp(addresses[0], port, left, local_address, socket_options), self._deadline
        )

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """Never."""
        raise NotPublic("sockets of this machine are not public")


class _Hurried(httpcore.NetworkStream):
    """A connection whose every read and write ends at the deadline: one byte a second is no way to go on."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What came."""
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send."""
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        """End it."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """The same under TLS."""
        return _Hurried(self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline)), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """What the connection says of itself."""
        return self._stream.get_extra_info(info)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout(f"not done within {TIMEOUT_S:g} s")
    return left


# Ways to write an IPv4 address as an IPv6 one (mapped, compatible, NAT64, 6to4, Teredo), and site-local addresses of
# old: Python takes some of them for public, whatever is behind them.
NOT_PUBLIC = [
    ip_network(text)
    for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fec0::/10")
]


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if any(address in network for network in NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def _is_allowed(address: IPv4Address | IPv6Address) -> bool:
    return any(address in ip_network(network) for network in settings.WEBHOOK_NETWORKS)
