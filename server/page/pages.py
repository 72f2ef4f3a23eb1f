"""Declare pages: a module lists its pages; login, forms, errors and the choice of the agent follow for each.

pages = Pages()

@pages.get("/conversations")
async def conversations(visit: Visit) -> Response:
    found = await visit.send(ListSessions())
    return visit.page("conversations.html", sessions=found)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fastapi import APIRouter, Request, Response

from server.page.site import Page, Site
from server.page.visits import Visit

Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


class Pages:
    """The pages of one module."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def get(self, path: str, *, has_place: bool = True) -> Callable[[Handler], Handler]:
        """Register the decorated function as what makes a page.

        A page that has a place is about one agent: an address that names none leads to the one that is most likely
        meant.
        """
        return self._adding(path, "GET", has_place)

    def post(self, path: str, *, has_place: bool = True) -> Callable[[Handler], Handler]:
        """Register the decorated function as what carries out a form. Only forms of pages of the same login arrive."""
        return self._adding(path, "POST", has_place)

    def router(self, site: Site) -> APIRouter:
        """Return the routes of all pages."""
        router = APIRouter()
        for page in self._pages:
            methods = ["GET", "HEAD"] if page.method == "GET" else [page.method]
            router.add_api_route(page.path, _responding(site, page), methods=methods, include_in_schema=False)
        return router

    def _adding(self, path: str, method: str, has_place: bool) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self._pages.append(Page(path, method, handler, has_place))
            return handler

        return add


def _responding(site: Site, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return await site.respond(page, request)

    return respond
