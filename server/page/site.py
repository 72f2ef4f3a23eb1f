"""The site: finds out who visits, guards its forms, and turns errors into pages that say what to do.

A login is a cookie that holds the token, encrypted; a second token, derived from it, guards the forms. A visit is one
request of a logged-in browser, for one agent in one workspace.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec
from blake3 import blake3
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope as AsgiScope

from memory.tombstones import hash_key
from memory.trust.tokens import Principal
from reverie import errors
from reverie.calls import Call, scope_of
from reverie.checks import check_agent, check_label, check_workspace
from reverie.clock import from_micros
from reverie.contract import DEFAULT_AGENT, Scope
from reverie.decoding import describe
from reverie.memories.types import Tier
from reverie.sessions.calls import ListAgents, ListSessions, ListWorkspaces
from reverie.sessions.types import AgentSummary, WorkspaceSummary
from reverie.trust.calls import Erase, ListErasures
from server.authentication import Authentication
from server.caller import AGENT_HEADER, USER_HEADER, WORKSPACE_HEADER, Caller, principal_of, trace_of
from server.endpoints import BoundToRequest, Endpoint
from server.page.rendering import STATIC_PATH, Rendering, address, html, static_file, zone_of
from server.responses import NamedRoute, on_http_error
from server.services import Services

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_A = TypeVar("_A")
_C = TypeVar("_C", bound=Call[Any])
_T = TypeVar("_T")


# The items of a list that one page shows.
PAGE_SIZE: Final = 50
# More than any form here has.
_MAX_FIELDS: Final = 64
# A memory has at most 64 KiB, of which each byte may be encoded by three; and a form may send its earlier text, too.
MAX_FORM_BYTES: Final = 1024 * 1024
_TYPE: Final = re.compile(r"application/x-www-form-urlencoded\s*(?:;|$)", re.IGNORECASE)


class Form:
    """The fields of a form, with line ends as line feeds."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return a field; empty if it was not sent."""
        return self._fields.get(name, [""])[-1].replace("\r\n", "\n")

    def word(self, name: str) -> str | None:
        """Return a field without blanks around it; None if nothing was entered."""
        return self.text(name).strip() or None

    def words(self, name: str) -> list[str]:
        """Return the words of a field, which may be sent several times."""
        return " ".join(self._fields.get(name, [])).split()

    def is_checked(self, name: str) -> bool:
        """Return whether a box was checked."""
        return bool(self.text(name))

    def tags(self, name: str = "tags") -> list[str]:
        """Return tags that were entered with commas between them."""
        return [tag.strip() for tag in self.text(name).split(",") if tag.strip()]

    def number(self, name: str) -> float:
        """Return a field as a number. Raises `Rejected`."""
        try:
            return float(self.text(name))
        except ValueError:
            raise errors.Rejected(f"{name} must be a number, not {self.text(name)[:40]!r}", field=name) from None


def decode_form(body: bytes) -> Form:
    """Return the fields of a body. Raises `Rejected`."""
    try:
        text = body.decode("ascii")
        fields = parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise errors.Rejected(f"the form cannot be read ({error}): load the page again", field="body") from None
    return Form(fields)


def check_form_type(request: Request) -> None:
    """Raise `UnsupportedType` for a body that no form of the page sends."""
    if not _TYPE.match(request.headers.get("content-type", "").strip()):
        raise errors.UnsupportedType("the body is not that of a form of this page", field="content-type")


# A browser that is not used for so long has to log in again.
LOGIN_SECONDS: Final = 30 * 86_400
_COOKIE_CONTEXT: Final = "reverie memory page: cookie of a login, v1"
_FORM_CONTEXT: Final = "reverie memory page: token of forms, v1"
# An encrypted token has some 200 characters; a longer text is not one of ours.
_MAX_COOKIE_CHARACTERS: Final = 1_024
# A visitor of a server that was started with --open has no cookie.
_NO_COOKIE: Final = "open"


class Logins:
    """The logins of one installation; `secret` returns its key, which is read when it is first needed.

    The server keeps nothing of a login, so a restart ends none. The cookie is valid as long as the token in it: every
    request checks the token again. It is encrypted because browsers keep cookies on disk and send them to every port of
    a host, and the token must not be read there.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def token_in(self, cookie: str) -> str | None:
        """Return the token of a cookie; None if the cookie is older than `LOGIN_SECONDS` or not one of ours."""
        return self.unsealed(cookie) if len(cookie) <= _MAX_COOKIE_CHARACTERS else None

    def sealed(self, text: str) -> str:
        """Return a text encrypted, for a cookie or a form: nobody can read or forge it. Raises `StoreUnavailable`."""
        return self._box.encrypt(text.encode()).decode()

    def unsealed(self, sealed: str) -> str | None:
        """Return a text that was sealed; None if it is older than `LOGIN_SECONDS` or not one of ours."""
        from cryptography.fernet import InvalidToken

        try:
            return self._box.decrypt(sealed.encode(), ttl=LOGIN_SECONDS).decode()
        except (InvalidToken, UnicodeError):
            return None

    def form_token(self, cookie: str | None) -> str:
        """Return the secret that every form of a login with this token must send. Other sites cannot know it.

        It is the same after another login, so that what was typed before can still be sent.
        """
        token = self.token_in(cookie) if cookie else None
        return blake3((token or _NO_COOKIE).encode(), key=self._form_key).hexdigest(length=16)

    def is_form_token(self, text: str, cookie: str | None) -> bool:
        """Return whether a form comes from a page of a login with this token."""
        return hmac.compare_digest(text.encode(), self.form_token(cookie).encode())

    @cached_property
    def _box(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(blake3(self._secret(), derive_key_context=_COOKIE_CONTEXT).digest()))

    @cached_property
    def _form_key(self) -> bytes:
        return blake3(self._secret(), derive_key_context=_FORM_CONTEXT).digest()


def cookie_name(port: int) -> str:
    """Return the name of the cookie; it differs between servers on different ports of one host."""
    return f"reverie-{port}"


class Section(NamedTuple):
    """A section: its name, the key that opens it after `g`, its address, the scope it needs, and its group."""

    name: str
    key: str
    path: str
    scope: Scope
    group: Literal["Memory", "Operation"]


SECTIONS: Final = (
    Section("Memories", "m", "/", "read", "Memory"),
    Section("Conversations", "c", "/conversations", "read", "Memory"),
    Section("Timeline", "t", "/timeline", "read", "Memory"),
    Section("Review", "r", "/review", "operate", "Memory"),
    Section("What was told", "w", "/contexts", "read", "Memory"),
    Section("Schedules", "s", "/schedules", "read", "Memory"),
    Section("Agents and users", "u", "/agents", "read", "Memory"),
    Section("Pipeline", "p", "/pipeline", "operate", "Operation"),
    Section("Log", "l", "/log", "operate", "Operation"),
    Section("Dreams", "d", "/dreams", "operate", "Operation"),
    Section("Dead letters", "f", "/dead-letters", "operate", "Operation"),
    Section("Erasures", "e", "/erasures", "read", "Operation"),
)


def sections_for(principal: Principal) -> list[Section]:
    """Return the sections that a token opens."""
    return [section for section in SECTIONS if principal.allows(section.scope)]


@dataclass(frozen=True, slots=True)
class Place:
    """Whose memory is shown: that of an agent in a workspace, as one of its users sees it, or as no user does.

    It is in every address, so each tab has its own.
    """

    agent: str
    workspace: str
    user: str | None = None

    def parameters(self) -> dict[str, str]:
        """Return the parameters of an address that name the place."""
        named = {"agent": self.agent, "workspace": self.workspace}
        return named if self.user is None else {**named, "user": self.user}


class Visit:
    """The context of a page: its visitor's calls, the submitted fields, and the response to the browser."""

    def __init__(self, site: Site, request: Request, *, place: Place | None, form: Form, cookie: str | None) -> None:
        self.request = request
        self.form = form
        self._site = site
        # Whose memory is looked at; None on pages that are about no agent and were not reached from one.
        self.place = place
        self._cookie = cookie

    @property
    def principal(self) -> Principal:
        """The principal of the visitor's token."""
        return principal_of(self.request)

    @property
    def sees_all_users(self) -> bool:
        """Whether content of all users is shown, as to an operator who has selected no user."""
        principal, place = self.principal, self.place
        return principal.user is None and principal.allows("operate") and (place is None or place.user is None)

    @property
    def decay_rates(self) -> Mapping[Tier, float]:
        """The share of a memory's relevance that is left after an hour, by tier."""
        return self._site.services.runtime.settings.decay_rates

    @property
    def services(self) -> Services:
        """The services of this process, whose state the pages of operators show."""
        return self._site.services

    async def check_login(self) -> None:
        """Raise `Unauthorised` if the visitor's token is worth nothing any more: a page that stays open asks again."""
        await self._site.authenticate(self.request)

    def elsewhere(self, place: Place) -> Visit:
        """Return the same visit at another place."""
        return Visit(self._site, self.request, place=place, form=self.form, cookie=self._cookie)

    @property
    def now(self) -> datetime:
        """The present time, also of what is sent later to a page that stays open."""
        return from_micros(self._site.services.runtime.now())

    @cached_property
    def zone(self) -> tzinfo:
        """The time zone of the visitor, which a script of the page has noted; UTC before its first page."""
        return zone_of(unquote(self.request.cookies.get("reverie-zone", "")))

    @property
    def is_partial(self) -> bool:
        """Whether a script of the page asks for a part of it."""
        return self.request.headers.get("hx-request") == "true"

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call, as the user of the place. Raises what the same call over HTTP does."""
        return await self._calls.send(self._as_user(call))

    async def carry_out(self, call: _C, handler: Callable[[Services, Caller, _C], _T]) -> _T:
        """Carry out a call by another handler than its own, with the rights that the call needs; return its result."""
        return await self._calls.carry_out(self._as_user(call), handler)

    def _as_user(self, call: _C) -> _C:
        user = None if self.place is None else self.place.user
        return msgspec.structs.replace(call, user=user) if user is not None and _asks_as_user(call) else call

    def sealed(self, data: object) -> str:
        """Return data encrypted for a form field of this login, so that nobody can read or forge it."""
        return self._site.logins.sealed(msgspec.json.encode([self._form_token, data]).decode())

    def unsealed(self, sealed: str, kind: type[_T]) -> _T:
        """Return data that was sealed for this login. Raises `Rejected`."""
        text = self._site.logins.unsealed(sealed)
        login, data = ("", None) if text is None else msgspec.json.decode(text, type=tuple[str, msgspec.Raw])
        if data is None or login != self._form_token:
            raise errors.Rejected("the form is not one of this login, or 30 days old: nothing was done", field="form")
        describe(kind)
        return msgspec.json.decode(data, type=kind)

    async def titles(self, sessions: Iterable[str | None]) -> dict[str, str]:
        """Return the names of these conversations by id, as far as the visitor may read them."""
        ids = sorted({one for one in sessions if one is not None})
        if not ids:
            return {}
        found = await self.send(ListSessions(ids=ids, limit=len(ids), all_users=self.sees_all_users))
        return {session.id: session.title or session.id for session in found}

    def allows(self, *calls: type[Call[Any]]) -> bool:
        """Return whether the visitor's token has the scopes of these calls."""
        return all(self.principal.allows(scope_of(call)) for call in calls)

    def query(self, name: str) -> str:
        """Return a parameter of the address without blanks around it; empty if there is none."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str) -> int:
        """Return a parameter of the address as a number; 0 if it is missing or not a number."""
        text = self.query(name)
        return int(text) if text.isdecimal() and len(text) < 16 else 0

    def link(self, path: str, **parameters: Any) -> str:
        """Return the address of a page about the same agent, unless the parameters name another."""
        place = {} if self.place is None else self.place.parameters()
        return address(path, {**place, **parameters})

    def beside(self, path: str, *, is_last: bool, **parameters: Any) -> dict[str, Any]:
        """Return the addresses of the pages of a list that are newer and older than this one, empty for none."""
        offset = self.number("offset")
        return {
            "newer": self.link(path, **parameters, offset=max(0, offset - PAGE_SIZE)) if offset else "",
            "older": "" if is_last else self.link(path, **parameters, offset=offset + PAGE_SIZE),
        }

    def page(self, template: str, *, status: int = 200, **view: Any) -> Response:
        """Return a page, or a part of one, made of a template and what it shows."""
        return html(self.text(template, **view), status=status)

    def text(self, template: str, **view: Any) -> str:
        """Render a template with the values that it shows."""
        return self._site.rendering.render(template, self._view(view))

    def see_other(self, path: str, **parameters: Any) -> Response:
        """Return a response that has the browser load another page about the same agent."""
        return RedirectResponse(self.link(path, **parameters), status_code=303)

    @cached_property
    def _calls(self) -> BoundToRequest:
        request = self.request
        if self.place is not None:
            request = Request(_scope_for_place(request.scope, self.place))
        # A person who looks around must not make memories last: only what the agent recalls counts.
        return BoundToRequest(self._site.services, self._site.endpoints, request, notes_recalls=False)

    @property
    def _form_token(self) -> str:
        return self._site.logins.form_token(self._cookie)

    def _view(self, view: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "visit": self,
            "place": self.place,
            "now": self.now,
            "zone": self.zone,
            "link": self.link,
            "path": self.request.url.path,
            "sections": sections_for(self.principal),
            "form_token": self._form_token,
            "is_logged_in": self._cookie is not None,
            **view,
        }


def _asks_as_user(call: Call[Any]) -> bool:
    """Return whether a call can be made as a user, and does not name one itself."""
    named = getattr(call, "user", "")
    # In calls about erasures, `user` is the user to erase, not the one who asks.
    return (named is None or named is msgspec.UNSET) and not isinstance(call, (Erase, ListErasures))


def _scope_for_place(scope: AsgiScope, place: Place) -> AsgiScope:
    """Return the scope of a request with the headers that name an agent and a workspace."""
    named: Iterable[tuple[str, str]] = ((AGENT_HEADER, place.agent), (WORKSPACE_HEADER, place.workspace))
    ours = {name.lower().encode() for name in (AGENT_HEADER, WORKSPACE_HEADER, USER_HEADER)}
    kept = [header for header in scope["headers"] if header[0] not in ours]
    return {**scope, "headers": [*kept, *((name.lower().encode(), quote(value).encode()) for name, value in named)]}


# The longest list of agents that is shown; others are reached by their address.
MAX_AGENTS: Final = 1_000


async def default_place(visit: Visit, workspace: str) -> Place:
    """Return the agent with the most memories that a visitor may see, in the workspace of its token or the default."""
    principal = visit.principal
    named = visit.query("workspace") or principal.workspace
    workspace = named or workspace
    if principal.agents is not None and len(principal.agents) == 1:
        (agent,) = principal.agents
        return Place(agent, workspace)
    agents = await agents_in(visit, workspace)
    if not agents and not named:  # as after the demonstration, which has a workspace of its own
        with suppress(errors.Forbidden):
            others = (await visit.elsewhere(Place("", workspace)).send(ListWorkspaces(limit=MAX_AGENTS))).workspaces
            others.append(WorkspaceSummary(name=workspace))
            workspace = max(others, key=lambda one: (one.memories, one.sessions)).name
            agents = await agents_in(visit, workspace)
    fullest = max(agents, key=lambda agent: (agent.memories, agent.sessions), default=None)
    if fullest is not None:
        return Place(fullest.name, workspace)
    return Place(min(principal.agents) if principal.agents else DEFAULT_AGENT, workspace)


async def agents_in(visit: Visit, workspace: str) -> list[AgentSummary]:
    """Return the agents of a workspace; none for a token that may not list them."""
    try:
        return (await visit.elsewhere(Place("", workspace)).send(ListAgents(limit=MAX_AGENTS))).agents
    except errors.Forbidden:
        return []


LOGIN_PATH: Final = "/login"
FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
# The paths of programs, whose errors are JSON.
_FOR_PROGRAMS: Final = ("/v1/", "/mcp", "/metrics", "/docs", "/openapi.json", "/health")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, the function that builds it, and whether it is about one agent."""

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
        except errors.Unauthorised:
            return self._to_login(request)
        except errors.ReverieError as error:
            return self.error_page(request, errors.problem_of(error, trace=trace_of(request)), visit)

    async def log_in(self, request: Request, token: str, page: str) -> Response:
        """Return the response that leaves a login with the browser. Raises `Unauthorised` and `TooManyFailures`."""
        origin = str(request.scope.get("reverie.origin", ""))
        await self._authentication.principal(b"Bearer " + token.encode("ascii", "replace"), origin=origin)
        response = RedirectResponse(own_path(page), status_code=303)
        response.set_cookie(
            _cookie_name(request),
            self.logins.sealed(token),
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

    def login_page(self, *, page: str, error: str = "", status: int = 200, is_unsent: bool = False) -> Response:
        """Return the page that asks for a token, and leads to another page afterwards; after a form it says so."""
        view = {"page": own_path(page), "error": error, "login_path": LOGIN_PATH, "is_unsent": is_unsent}
        return html(self.rendering.render("login.html", view), status=status)

    def error_page(self, request: Request, problem: errors.Problem, visit: Visit | None = None) -> Response:
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
        problem = errors.Problem(
            type="about:blank", title=str(error.detail).capitalize(), status=error.status_code, detail=detail
        )
        return self.error_page(request, problem)

    async def authenticate(self, request: Request) -> str | None:
        """Note in the request who makes it; return its cookie, None on an open server. Raises `Unauthorised`."""
        name = _cookie_name(request)
        cookie = request.cookies.get(name)
        if [part.partition("=")[0].strip() for part in request.headers.get("cookie", "").split(";")].count(name) > 1:
            raise errors.Rejected(
                f"the browser sent the cookie {name} twice: delete the cookies of this site", field="cookie"
            )
        token = self.logins.token_in(cookie) if cookie else None
        authorization = None if token is None else b"Bearer " + token.encode()
        if authorization is None and not self._authentication.is_open:
            raise errors.Unauthorised("log in with a token", field="token")
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
            raise errors.Forbidden(
                "this form belongs to another login: load the page again, and repeat what you did", field=FORM_TOKEN
            )
        return form

    async def _with_place(self, visit: Visit) -> Response:
        """Return the response that leads to the same page about the agent that a visitor most likely means."""
        if visit.request.method != "GET":
            raise errors.Rejected("the address names no agent: open the page from its list", field="agent")
        place = await default_place(visit, self.services.runtime.settings.workspace)
        query = {**visit.request.query_params, "agent": place.agent, "workspace": place.workspace}
        return RedirectResponse(address(visit.request.url.path, query), status_code=303)

    def _to_login(self, request: Request) -> Response:
        """Return the response that leads to the login and from there back; a worthless cookie is removed."""
        url = request.url
        is_part, is_form = request.headers.get("hx-request") == "true", request.method != "GET"
        page = own_referer(request) if is_part or is_form else url.path + (f"?{url.query}" if url.query else "")
        target = address(LOGIN_PATH, {"page": page if page != "/" else "", "unsent": "1" if is_form else ""})
        response = Response(headers={"HX-Redirect": target}) if is_part else RedirectResponse(target, status_code=303)
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


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


class Pages:
    """The pages of one module, each declared at the function that makes it.

        pages = Pages()

        @pages.get("/conversations")
        async def conversations(visit: Visit) -> Response:
            found = await visit.send(ListSessions())
            return visit.page("conversations.html", sessions=found)

    Login, forms, errors and the choice of the agent follow for each.
    """

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def get(self, path: str, *, has_place: bool = True) -> Callable[[Handler], Handler]:
        """Register the decorated function as the handler of a page.

        A page that has a place is about one agent: an address that names no agent leads to the one most likely
        meant.
        """
        return self._adding(path, "GET", has_place)

    def post(self, path: str, *, has_place: bool = True) -> Callable[[Handler], Handler]:
        """Register the decorated function as the handler of a form. It gets only forms from pages of the same login."""
        return self._adding(path, "POST", has_place)

    def routes(self, site: Site) -> Iterator[NamedRoute]:
        """Yield the routes of all pages."""
        for page in self._pages:
            methods = ("GET", "HEAD") if page.method == "GET" else (page.method,)
            yield NamedRoute(page.path, partial(site.respond, page), *methods)

    def _adding(self, path: str, method: str, has_place: bool) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self._pages.append(Page(path, method, handler, has_place))
            return handler

        return add


_LOGIN_BYTES: Final = 16 * 1024


def site_routes(site: Site, parts: Iterable[Pages]) -> Iterator[NamedRoute]:
    """Yield all routes: the login and static files, which everybody may load, and the pages of each module."""

    async def show_login(request: Request) -> Response:
        asked = request.query_params
        return site.login_page(page=asked.get("page", ""), is_unsent="unsent" in asked)

    async def log_out(request: Request) -> Response:
        return site.log_out(request)

    yield NamedRoute(LOGIN_PATH, show_login, "GET")
    yield NamedRoute(LOGIN_PATH, partial(_log_in, site), "POST")
    yield NamedRoute("/logout", log_out, "POST")
    yield NamedRoute(f"{STATIC_PATH}/{{name}}", _get_static_file, "GET")
    yield NamedRoute("/favicon.ico", _get_icon, "GET")
    for part in parts:
        yield from part.routes(site)


async def _log_in(site: Site, request: Request) -> Response:
    # It needs no token of forms: the gate lets no page of another site post anything.
    form = await site.services.bodies.decoded(
        request, decode_form, limit_bytes=_LOGIN_BYTES, check_type=check_form_type
    )
    token, page = form.word("token") or "", form.text("page")
    try:
        return await site.log_in(request, token, page)
    except errors.Unauthorised:
        error = "This token is not valid: it is unknown, revoked or expired."
        return site.login_page(page=page, error=error, status=401)
    except errors.TooManyFailures as failures:
        error = f"Too many wrong tokens. Try again in {failures.retry_after_seconds} seconds."
        return site.login_page(page=page, error=error, status=429)


async def _get_static_file(request: Request) -> Response:
    found = static_file(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "Not Found")
    return found


async def _get_icon(_: Request) -> Response:
    found = static_file("icon.svg")
    assert found is not None
    return found
