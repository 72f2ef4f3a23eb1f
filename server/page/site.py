"""The site: finds out who visits, guards its forms, and turns errors into pages that say what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from memory.trust.tombstones import hash_key
from reverie.calls import Call
from reverie.checks import check_agent, check_label, check_workspace
from reverie.errors import Rejected, ReverieError
from reverie.problems import Forbidden, Problem, Unauthorised, problem_of
from server.authentication import Authentication
from server.caller import trace_of
from server.endpoints import Endpoint
from server.page.forms import MAX_FORM_BYTES, Form, check_form_type, decode_form
from server.page.logins import LOGIN_SECONDS, Logins, cookie_name
from server.page.places import default_place
from server.page.rendering import Rendering, address, html
from server.page.visits import Place, Visit
from server.responses import on_http_error
from server.services import Services

LOGIN_PATH: Final = "/login"
FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
# The paths of programs, whose errors are JSON.
_FOR_PROGRAMS: Final = ("/v1/", "/mcp", "/metrics", "/docs", "/openapi.json", "/health")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, what makes it, and whether it is about one agent."""

    path: str
    method: str
    handler: Callable[[Visit], Awaitable[Response]]
    has_place: bool


class Site:
    """The site of one server."""

    def __init__(self, services: Services, endpoints: Iterable[Endpoint], authentication: Authentication) -> None:
        self.services = services
        self.endpoints: Mapping[type[Call[Any]], Endpoint] = {endpoint.kind: endpoint for endpoint in endpoints}
        self.rendering = Rendering()
        self.logins = Logins(lambda: hash_key(services.runtime.settings.data).secret)
        self._authentication = authentication

    async def respond(self, page: Page, request: Request) -> Response:
        """Return the response to a request for a page."""
        visit: Visit | None = None
        try:
            cookie = await self.authenticate(request)
            form = await self._form(request, cookie) if page.method == "POST" else Form({})
            place = _place_of(request)
            visit = Visit(self, request, place=place, form=form, cookie=cookie)
            if page.has_place and place is None:
                return await self._with_place(visit)
            return await page.handler(visit)
        except Unauthorised:
            return self._to_login(request)
        except ReverieError as error:
            return self.error_page(request, problem_of(error, trace=trace_of(request)), visit)

    async def log_in(self, request: Request, token: str, page: str) -> Response:
        """Return the response that leaves a login with the browser. Raises `Unauthorised` and `TooManyFailures`."""
        origin = str(request.scope.get("reverie.origin", ""))
        await self._authentication.principal(b"Bearer " + token.encode("ascii", "replace"), origin=origin)
        response = RedirectResponse(own_path(page), status_code=303)
        response.set_cookie(
            _cookie_name(request),
            self.logins.cookie_for(token),
            max_age=LOGIN_SECONDS,
            httponly=True,
            samesite="strict",
            # Behind a proxy that ends TLS, only the header says how the browser reached it.
            secure=urlsplit(request.headers.get("origin", "")).scheme == "https",
        )
        return response

    def log_out(self, request: Request) -> Response:
        """Return the response that has the browser forget its login."""
        response = RedirectResponse(LOGIN_PATH, status_code=303)
        response.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return response

    def login_page(self, *, page: str, error: str = "", status: int = 200) -> Response:
        """Return the page that asks for a token, and leads to another page afterwards."""
        view = {"page": own_path(page), "error": error, "login_path": LOGIN_PATH}
        return html(self.rendering.render("login.html", view), status=status)

    def error_page(self, request: Request, problem: Problem, visit: Visit | None = None) -> Response:
        """Return the page about an error; for a part of a page only the text."""
        view = {"problem": problem, "back": request.headers.get("referer", "") and own_referer(request)}
        if request.headers.get("hx-request") == "true":
            return html(self.rendering.render("parts/error.html", view), status=problem.status)
        if visit is None:
            return html(self.rendering.render("stray_error.html", view), status=problem.status)
        return visit.page("error.html", status=problem.status, **view)

    async def on_http_error(self, request: Request, error: Exception) -> Response:
        """Return an error of the framework (no such path, no such method): a page for browsers, else JSON."""
        assert isinstance(error, HTTPException)
        wants_page = "text/html" in request.headers.get("accept", "")
        if not wants_page or request.url.path.startswith(_FOR_PROGRAMS):
            return await on_http_error(request, error)
        texts = {404: "There is no page at this address.", 405: "This page cannot be opened in this way."}
        detail = texts.get(error.status_code, str(error.detail))
        problem = Problem(type="about:blank", title=str(error.detail), status=error.status_code, detail=detail)
        return self.error_page(request, problem)

    async def authenticate(self, request: Request) -> str | None:
        """Note in the request who makes it; return its cookie, None on an open server. Raises `Unauthorised`."""
        cookie = request.cookies.get(_cookie_name(request))
        token = self.logins.token_in(cookie) if cookie else None
        authorization = None if token is None else b"Bearer " + token.encode()
        if authorization is None and not self._authentication.is_open:
            raise Unauthorised("log in with a token", field="token")
        origin = str(request.scope.get("reverie.origin", ""))
        principal = await self._authentication.principal(authorization, origin=origin)
        request.scope["reverie.principal"] = principal
        return cookie if token else None

    async def _form(self, request: Request, cookie: str | None) -> Form:
        """Return the form that was sent. Raises `Forbidden` if it is not from a page of this login."""
        form = await self.services.bodies.decoded(
            request, decode_form, limit_bytes=MAX_FORM_BYTES, check_type=check_form_type
        )
        if not self.logins.is_form_token(form.text(FORM_TOKEN), cookie):
            raise Forbidden(
                "this form belongs to another login: load the page again, and repeat what you did", field=FORM_TOKEN
            )
        return form

    async def _with_place(self, visit: Visit) -> Response:
        """Return the response that leads to the same page about the agent that a visitor most likely means."""
        if visit.request.method != "GET":
            raise Rejected("the address names no agent: open the page from its list", field="agent")
        place = await default_place(visit, self.services.runtime.settings.workspace)
        query = {**visit.request.query_params, "agent": place.agent, "workspace": place.workspace}
        return RedirectResponse(address(visit.request.url.path, query), status_code=303)

    def _to_login(self, request: Request) -> Response:
        """Return the response that leads to the login and from there back; a worthless cookie is removed."""
        url = request.url
        page = url.path + (f"?{url.query}" if url.query else "") if request.method == "GET" else "/"
        target = address(LOGIN_PATH, {"page": page if page != "/" else ""})
        response: Response
        if request.headers.get("hx-request") == "true":
            response = Response(status_code=200, headers={"HX-Redirect": LOGIN_PATH})
        else:
            response = RedirectResponse(target, status_code=303)
        if request.cookies.get(_cookie_name(request)):
            response.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return response


def own_path(text: str) -> str:
    """Return an address of this site as it is; "/" for one of another site."""
    parts = urlsplit(text)
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own and not parts.netloc and not parts.scheme else "/"


def own_referer(request: Request) -> str:
    """Return the path of the page that a browser comes from; "/" if it does not say."""
    parts = urlsplit(request.headers.get("referer", ""))
    return own_path(parts.path + (f"?{parts.query}" if parts.query else ""))


def _place_of(request: Request) -> Place | None:
    """Return the place that an address names. Raises `Rejected` for invalid names."""
    agent, workspace = request.query_params.get("agent"), request.query_params.get("workspace")
    if not agent or not workspace:
        return None
    user = check_label("user", request.query_params.get("user", "").strip() or None)
    return Place(check_agent(agent), check_workspace(workspace), user)


def _cookie_name(request: Request) -> str:
    return cookie_name(int((request.scope.get("server") or ("", 0))[1] or 0))
