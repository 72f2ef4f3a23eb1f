"""All routes of the site: the login and static files, which everybody may load, and the pages of each module."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from reverie.problems import TooManyFailures, Unauthorised
from server.page import (
    agents,
    changes,
    conversations,
    dead_letters,
    dreams,
    erasures,
    log,
    memories,
    memory,
    pipeline,
    schedules,
)
from server.page.forms import check_form_type, decode_form
from server.page.rendering import STATIC_PATH, static_file
from server.page.site import LOGIN_PATH, Site

_PARTS: Final = (
    memories,
    memory,
    changes,
    conversations,
    log,
    schedules,
    dreams,
    dead_letters,
    erasures,
    pipeline,
    agents,
)
_LOGIN_BYTES: Final = 16 * 1024


def site_router(site: Site) -> APIRouter:
    """Return the routes of a site."""
    router = APIRouter(include_in_schema=False)
    _add_login(router, site)
    _add_static_files(router)
    for part in _PARTS:
        router.include_router(part.pages.router(site))
    return router


def _add_login(router: APIRouter, site: Site) -> None:
    @router.get(LOGIN_PATH)
    async def show_login(request: Request) -> Response:
        return site.login_page(page=request.query_params.get("page", ""))

    @router.post(LOGIN_PATH)
    async def log_in(request: Request) -> Response:
        # It needs no token of forms: the gate lets no page of another site post anything.
        form = await site.services.bodies.decoded(
            request, decode_form, limit_bytes=_LOGIN_BYTES, check_type=check_form_type
        )
        token, page = form.word("token") or "", form.text("page")
        try:
            return await site.log_in(request, token, page)
        except Unauthorised:
            error = "This token is not valid: it is unknown, revoked or expired."
            return site.login_page(page=page, error=error, status=401)
        except TooManyFailures as failures:
            error = f"Too many wrong tokens. Try again in {failures.retry_after_seconds} seconds."
            return site.login_page(page=page, error=error, status=429)

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        return site.log_out(request)


def _add_static_files(router: APIRouter) -> None:
    @router.get(f"{STATIC_PATH}/{{name}}")
    async def get_static_file(name: str) -> Response:
        found = static_file(name)
        if found is None:
            raise HTTPException(404, "Not Found")
        return found

    @router.get("/favicon.ico")
    async def get_icon() -> Response:
        found = static_file("icon.svg")
        assert found is not None
        return found
