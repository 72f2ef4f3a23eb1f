"""The page /docs, and the headers by which browsers keep every response to this server.

The page loads nothing from other hosts, and the policy sent with it lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from fastapi import APIRouter, Response
from fastapi.openapi.docs import get_swagger_ui_html

ASSETS: Final = "/docs/assets"
# For every response without a policy of its own: nothing in it is to be run, shown in a frame, or kept.
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_INLINE_SCRIPT: Final = re.compile(rb"<script>([^<]*(?:<(?!/?script>)[^<]*)*)</script>")


def docs_page(title: str, openapi_url: str) -> APIRouter:
    """Return the route of /docs."""
    page = bytes(
        get_swagger_ui_html(
            openapi_url=openapi_url,
            title=title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon.png",
            # Otherwise the page would ask swagger.io whether the description is valid.
            swagger_ui_parameters={"validatorUrl": None},
        ).body
    )
    policy = _policy(page)
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def get_docs() -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    return router


def _policy(page: bytes) -> str:
    """Return the policy of the page: its inline script is allowed by its hash. Swagger UI sets styles by itself."""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(page)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
