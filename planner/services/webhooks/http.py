"""HTTP client for addresses that users enter: it connects only to public addresses that it has checked.

A name is resolved once and the connection goes to the checked address, so DNS rebinding cannot redirect it. HTTP
redirects are not followed.
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
TIMEOUT_S = 5.0  # for the whole request: resolving, connecting, sending and reading the answer
KEPT_BYTES = 500  # bytes of an answer that are stored


class NotPublic(Exception):
    """The console does not send to this address."""


@dataclass(frozen=True)
class Answer:
    """An answer: status and start of the body, or the reason why there is none (status None)."""

    status: int | None
    text: str
    took_s: float

    @property
    def good(self) -> bool:
        """Whether the receiver accepted the message (status 2xx)."""
        return self.status is not None and 200 <= self.status < 300


def check_url(url: str) -> str:
    """Return the address if the console may send to it.

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
        raise Invalid(f"not a valid address: {error}", field="url") from error
    if parts.username is not None or parts.password is not None:
        raise Invalid("remove the credentials from the address; receivers verify the signature instead", field="url")
    if not host:
        raise Invalid("the address has no host", field="url")
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
    """Send once. Failures of the receiver are part of the answer and raise nothing.

    Parameters
    ----------
    url : str
        Address; it is checked again.
    body : bytes
        Content, JSON.
    headers : dict of str to str
        Headers beside content type and user agent.

    Returns
    -------
    Answer
        Status and start of the body, or the reason why there is none.
    """
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
    """Network backend that connects only to checked public addresses, before a deadline."""

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
        """Resolve the name, check its addresses, and connect to the first.

        Parameters
        ----------
        host, port
            Name or address of the receiver, and its port.
        timeout
            Not used: the deadline of the backend limits the time.
        local_address, socket_options
            As in `httpcore.NetworkBackend`.

        Returns
        -------
        httpcore.NetworkStream
            The connection, with the same deadline.

        Raises
        ------
        NotPublic
            When one of the addresses is neither public nor in ``WEBHOOK_NETWORKS``.
        httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ReadTimeout
            When the name cannot be resolved, the connection fails, or the deadline has passed.
        """
        lookup = ThreadPoolExecutor(1)  # the resolver of the system has no timeout
        try:
            asked = lookup.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = asked.result(_left(self._deadline))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} could not be resolved in time") from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        finally:
            lookup.shutdown(wait=False)
        addresses = [str(entry[4][0]) for entry in found]
        # All of them: a name with a public and a private address is not trusted.
        for address in addresses:
            if not (_is_allowed(ip_address(address)) or _is_public(ip_address(address))):
                raise NotPublic(f"{host} resolves to {address}, which is not a public address")
        left = _left(self._deadline)
        return _Hurried(
            self._plain.connect_tcp(addresses[0], port, left, local_address, socket_options), self._deadline
        )

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """Refuse."""
        raise NotPublic("local sockets are not public")


class _Hurried(httpcore.NetworkStream):
    """Connection whose reads and writes all end at one deadline, however slowly the receiver sends."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read."""
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write."""
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        """Close."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Start TLS with the same deadline.

        Parameters
        ----------
        ssl_context, server_hostname
            As in `httpcore.NetworkStream`.
        timeout
            Not used: the deadline of the connection limits the time.

        Returns
        -------
        httpcore.NetworkStream
            The encrypted connection.

        Raises
        ------
        httpcore.ReadTimeout
            When the deadline has passed.
        """
        return _Hurried(self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline)), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection."""
        return self._stream.get_extra_info(info)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout(f"not done within {TIMEOUT_S:g} s")
    return left


# IPv6 networks that contain IPv4 addresses (mapped, compatible, NAT64, 6to4, Teredo), and deprecated site-local ones.
# Python calls some of them public.
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
