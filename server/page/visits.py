"""A visit: one request of a logged-in browser, for one agent in one workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from fastapi import Request, Response
from starlette.responses import RedirectResponse
from starlette.types import Scope

from memory.trust.principals import Principal
from reverie.calls import Call, scope_of
from reverie.clock import from_micros
from reverie.memories.types import Tier
from reverie.trust.erasure_calls import Erase, ListErasures
from server.bound_calls import BoundToRequest
from server.caller import AGENT_HEADER, USER_HEADER, WORKSPACE_HEADER, principal_of
from server.page.forms import Form
from server.page.navigation import sections_for
from server.page.rendering import address, html

if TYPE_CHECKING:
    from server.page.site import Site
    from server.services import Services

_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class Place:
    """Whose memory is looked at: an agent's in a workspace, as one of its users sees it, or as nobody in particular.

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
    """What a page needs: the calls of its visitor, the fields that were sent, and the way back to the browser."""

    def __init__(self, site: Site, request: Request, *, place: Place | None, form: Form, cookie: str | None) -> None:
        self.request = request
        self.form = form
        self._site = site
        self._place = place
        self._cookie = cookie

    @property
    def principal(self) -> Principal:
        """Whose token the visitor has."""
        return principal_of(self.request)

    @property
    def place(self) -> Place | None:
        """Whose memory is looked at; None on pages that are about no agent and were not reached from one."""
        return self._place

    @property
    def decay_rates(self) -> Mapping[Tier, float]:
        """The share of a memory's relevance that is left after an hour, by tier."""
        return self._site.services.runtime.settings.decay_rates

    @property
    def services(self) -> Services:
        """What this process knows of itself, for the pages of operators."""
        return self._site.services

    async def check_login(self) -> None:
        """Raise `Unauthorised` if the visitor's token is worth nothing any more: a page that stays open asks again."""
        await self._site.authenticate(self.request)

    def elsewhere(self, place: Place) -> Visit:
        """Return the same visit at another place."""
        return Visit(self._site, self.request, place=place, form=self.form, cookie=self._cookie)

    @property
    def now(self) -> datetime:
        """The time: of the visit, or of what is sent later to a page that stays open."""
        return from_micros(self._site.services.runtime.now())

    @property
    def is_partial(self) -> bool:
        """Whether a script of the page asks for a part of it."""
        return self.request.headers.get("hx-request") == "true"

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call, as the user of the place. Raises what the same call over HTTP does."""
        user = None if self._place is None else self._place.user
        if user is not None and _asks_as_user(call):
            call = msgspec.structs.replace(call, user=user)
        return await self._calls.send(call)

    def allows(self, *calls: type[Call[Any]]) -> bool:
        """Return whether the visitor's token has the scopes of these calls."""
        return all(self.principal.allows(scope_of(call)) for call in calls)

    def query(self, name: str) -> str:
        """Return a parameter of the address without blanks around it; empty if there is none."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str) -> int:
        """Return a parameter of the address as a number; 0 if there is none, or it is none."""
        text = self.query(name)
        return int(text) if text.isdecimal() and len(text) < 16 else 0

    def link(self, path: str, **parameters: Any) -> str:
        """Return the address of a page about the same agent, unless the parameters name another."""
        place = {} if self._place is None else self._place.parameters()
        return address(path, {**place, **parameters})

    def page(self, template: str, *, status: int = 200, **view: Any) -> Response:
        """Return a page, or a part of one, made of a template and what it shows."""
        return html(self._site.rendering.render(template, self._view(view)), status=status)

    def text(self, template: str, **view: Any) -> str:
        """Return what a template makes of what it shows."""
        return self._site.rendering.render(template, self._view(view))

    def see_other(self, path: str, **parameters: Any) -> Response:
        """Return a response that has the browser load another page about the same agent."""
        return RedirectResponse(self.link(path, **parameters), status_code=303)

    @cached_property
    def _calls(self) -> BoundToRequest:
        request = self.request
        if self._place is not None:
            request = Request(_about(request.scope, self._place))
        # A person who looks around must not make memories last: only what the agent recalls counts.
        return BoundToRequest(self._site.services, self._site.endpoints, request, notes_recalls=False)

    def _view(self, view: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "visit": self,
            "place": self._place,
            "now": self.now,
            "link": self.link,
            "path": self.request.url.path,
            "sections": sections_for(self.principal),
            "form_token": self._site.logins.form_token(self._cookie),
            "is_logged_in": self._cookie is not None,
            **view,
        }


def _asks_as_user(call: Call[Any]) -> bool:
    """Return whether a call can be made as a user, and names none itself."""
    named = getattr(call, "user", "")
    # The user of an erasure is not who asks.
    return (named is None or named is msgspec.UNSET) and not isinstance(call, (Erase, ListErasures))


def _about(scope: Scope, place: Place) -> Scope:
    """Return the scope of a request with the headers that name an agent and a workspace."""
    named: Iterable[tuple[str, str]] = ((AGENT_HEADER, place.agent), (WORKSPACE_HEADER, place.workspace))
    ours = {name.lower().encode() for name in (AGENT_HEADER, WORKSPACE_HEADER, USER_HEADER)}
    kept = [header for header in scope["headers"] if header[0] not in ours]
    return {**scope, "headers": [*kept, *((name.lower().encode(), quote(value).encode()) for name, value in named)]}
