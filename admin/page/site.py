"""The routes of the page: one for each row of the tables, sign-in, sign-out, and errors as pages.

Without tokens every user of this machine may, as over the other HTTP interfaces; no page of
elsewhere. With tokens a person signs in with one, and a cookie names the session.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from mailmend.admin.frame.http.access import Access, Refusal, TokenRole
from mailmend.admin.frame.http.application import (
    ANSWERS,
    Api,
    ErrorAnswer,
    log_change,
)
from mailmend.admin.page.desk import PageDesk
from mailmend.admin.page.pages import CHANGES, PAGES
from mailmend.admin.page.sessions import LIFE_SECONDS, new_form_cookie
from mailmend.admin.page.table import PageChange, PageRequest, Visitor, WebPage
from mailmend.admin.page.templates import ICON, STYLE, rendered, static_file
from mailmend.model.errors import CannotReach, MailmendError, NotThere, WrongUse

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
LOG: Final = "mailmend.page"
WHY_CHARACTERS_MAX: Final = 500
_FIELDS_MAX: Final = 50
_FORM: Final = "application/x-www-form-urlencoded"
_HERE: Final = re.compile(r"/(?![/\\])[A-Za-z0-9/._~?=&%+-]{0,1000}")

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # under no-referrer, a form of ours has Origin: null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer: no script runs, nothing comes from elsewhere, no other site shows a page."""

_STATIC: Final[Mapping[str, tuple[str, str]]] = {
    STYLE: ("page.css", "text/css; charset=utf-8"),
    ICON: ("icon.svg", "image/svg+xml"),
}


def _desk(request: Request) -> PageDesk:
    desk: PageDesk = request.app.state.desk.page
    return desk


# Who asks


def _cookie_name(request: Request, name: str) -> str:
    """Over TLS a name that a browser takes from this host alone, and sends over TLS alone."""
    if request.url.scheme == "https":
        return f"__Host-{name}"
    return name


def _cookie(request: Request, name: str) -> str:
    return request.cookies.get(_cookie_name(request, name), "")


def _set_cookie(request: Request, answer: Response, name: str, value: str) -> None:
    answer.set_cookie(
        _cookie_name(request, name),
        value,
        max_age=int(LIFE_SECONDS),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


_SESSION: Final = "mailmend-session"
_FORMS: Final = "mailmend-forms"


def visitor_of(request: Request, role: TokenRole) -> Visitor:
    """Who asks, and that the role is enough.

    Raises:
        Refusal: 401 the visitor has not signed in; 403 the visitor may not do that.
    """
    access: Access = request.app.state.access
    if not access.tokens:
        access.caller(None, role, host=request.headers.get("host", ""), origin=None)
        request.state.caller = ""
        return Visitor("", TokenRole.OPERATE, _cookie(request, _FORMS))
    cookie = _cookie(request, _SESSION)
    session = _desk(request).sessions.find(cookie)
    if session is None:
        raise Refusal(401, "Sign in first")
    request.state.caller = session.name
    if session.role < role:
        role_name = session.role.name.lower()
        what = f"The token {session.name!r} may not do that: its role is {role_name}"
        raise Refusal(403, what, session.name)
    return Visitor(session.name, session.role, cookie)


def refuse_foreign(request: Request) -> None:
    """Refuse a form that another site sends.

    Raises:
        Refusal: its Origin, or its Sec-Fetch-Site, is not this server's.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}".lower()
    if (origin is not None and origin.lower() != own) or site not in {None, "none", "same-origin"}:
        raise Refusal(403, "This form comes from another site")


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form; of a name that occurs twice, the last.

    Raises:
        WrongUse: the body is not a form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise WrongUse("the body is not a form")
    body = await request.body()
    try:
        found = parse_qs(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError:
        raise WrongUse("the body is not a form") from None
    return {name: values[-1] for name, values in found.items()}


def _checked(request: Request, form: Mapping[str, str], cookie: str) -> None:
    """Refuse a form that is not one of this visitor's own pages.

    Raises:
        Refusal: its hidden token is missing, or wrong.
    """
    if not _desk(request).forms.is_right(cookie, form.get("form", "")):
        raise Refusal(
            403,
            "This form is out of date: open its page again, and send it from there",
        )


# Answers


def _page(
    request: Request,
    template: str,
    values: Mapping[str, Any],
    visitor: Visitor | None,
    status: int = 200,
) -> Response:
    """A rendered page; a visitor without a cookie for forms gets one."""
    access: Access = request.app.state.access
    desk = _desk(request)
    cookie = _cookie(request, _FORMS)
    if visitor and visitor.cookie:
        cookie = visitor.cookie
    is_new = not cookie
    if is_new:
        cookie = new_form_cookie()
    shared = {
        "menu": [page for page in PAGES if page.menu],
        "here": "",
        "visitor": visitor,
        "signs_in": bool(access.tokens),
        "form_token": desk.forms.token(cookie),
        "keyspace": desk.data.keyspace,
        "looked_at": desk.data.now(),
    }
    html = rendered(template, shared | dict(values))
    answer = HTMLResponse(html, status, {"Cache-Control": "no-store"})
    if is_new:
        _set_cookie(request, answer, _FORMS, cookie)
    return answer


def _asked(request: Request, visitor: Visitor) -> PageRequest:
    return PageRequest(visitor, dict(request.path_params), dict(request.query_params))


@dataclass(frozen=True, slots=True)
class PageRoute:
    """Answers with a page of the table."""

    page: WebPage

    async def answer(self, request: Request) -> Response:
        visitor = visitor_of(request, self.page.role)
        asked = _asked(request, visitor)
        values = await asyncio.to_thread(self.page.look, _desk(request).data, asked)
        shown = {
            "title": self.page.title,
            "here": self.page.below or self.page.path,
            "asked": asked,
        }
        return _page(request, self.page.template, shown | dict(values), visitor)


@dataclass(frozen=True, slots=True)
class ChangeRoute:
    """Takes a form of the table, and leads to the page that shows the result."""

    change: PageChange

    async def answer(self, request: Request) -> Response:
        refuse_foreign(request)
        visitor = visitor_of(request, self.change.role)
        form = await form_of(request)
        _checked(request, form, visitor.cookie)
        why = form.get("why", "").strip()
        if not why or len(why) > WHY_CHARACTERS_MAX:
            raise WrongUse(
                f"a reason of 1 to {WHY_CHARACTERS_MAX} characters is needed",
                mend="Go back, and say why: the reason is on record.",
            )
        asked = PageRequest(visitor, dict(request.path_params), form)
        leads_to = await asyncio.to_thread(self.change.act, _desk(request).data, asked, why)
        log_change(request, self.change.event, **dict(request.path_params), why=why)
        return RedirectResponse(leads_to, HTTPStatus.SEE_OTHER)


def _way_on(text: str) -> str:
    """A path of this server, or the first page: a link must not lead to another site."""
    if _HERE.fullmatch(text) and not text.startswith((SIGN_IN, SIGN_OUT)):
        return text
    return "/"


async def sign_in_page(request: Request) -> Response:
    return _sign_in(request, _way_on(request.query_params.get("to", "/")))


def _sign_in(request: Request, to: str, refused: str = "", status: int = 200) -> Response:
    access: Access = request.app.state.access
    if not access.tokens:
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)
    values = {"title": "Sign in", "to": to, "refused": refused}
    return _page(request, "sign_in.html", values, None, status)


async def sign_in(request: Request) -> Response:
    """Begin a session by a token of the server."""
    refuse_foreign(request)
    form = await form_of(request)
    _checked(request, form, _cookie(request, _FORMS))
    access: Access = request.app.state.access
    token = access.known(form.get("token", "").strip())
    to = _way_on(form.get("to", "/"))
    if token is None:
        request.state.caller = ""
        refused = "The server does not know this token."
        return _sign_in(request, to, refused, HTTPStatus.UNAUTHORIZED)
    desk = _desk(request)
    desk.sessions.end(_cookie(request, _SESSION))
    request.state.caller = token.name
    answer = RedirectResponse(to, HTTPStatus.SEE_OTHER)
    _set_cookie(request, answer, _SESSION, desk.sessions.begin(token))
    return answer


async def sign_out(request: Request) -> Response:
    refuse_foreign(request)
    visitor = visitor_of(request, TokenRole.READ)
    _checked(request, await form_of(request), visitor.cookie)
    _desk(request).sessions.end(_cookie(request, _SESSION))
    answer = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
    is_secure = request.url.scheme == "https"
    answer.delete_cookie(_cookie_name(request, _SESSION), path="/", secure=is_secure)
    return answer


async def static(request: Request) -> Response:
    name, kind = _STATIC[request.url.path]
    return Response(static_file(name), media_type=kind, headers={"Cache-Control": "max-age=3600"})


# Errors


def is_for_a_person(request: Request) -> bool:
    """Whether a browser asks, and not a program."""
    return "text/html" in request.headers.get("accept", "")


async def _refused_page(request: Request, refusal: Refusal) -> Response:
    request.state.caller = refusal.who
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        to = quote(_way_on(request.url.path), safe="")
        return RedirectResponse(f"{SIGN_IN}?to={to}", HTTPStatus.SEE_OTHER)
    return _error_page(request, refusal.status, refusal.what)


async def _http_page(request: Request, refused: HTTPException) -> Response:
    answer = _error_page(request, refused.status_code, refused.detail)
    answer.headers.update(refused.headers or {})
    return answer


async def _failed_page(request: Request, failed: MailmendError) -> Response:
    what = failed.what
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    match failed:
        case NotThere():
            status = HTTPStatus.NOT_FOUND
        case WrongUse():
            status = HTTPStatus.BAD_REQUEST
        case CannotReach():
            status = HTTPStatus.SERVICE_UNAVAILABLE
            what = "The cluster does not answer"
        case _:
            pass
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logging.getLogger(LOG).warning("a page cannot be shown", extra={"error": failed.what})
    return _error_page(request, status, what, failed.mend)


async def _unforeseen_page(request: Request, failed: Exception) -> Response:
    await ANSWERS[Exception](request, failed)
    answer = _error_page(request, 500, "This should not happen: the server's log says more")
    answer.headers.update(HEADERS)  # such an answer passes no middleware
    return answer


def _error_page(request: Request, status: int, what: str, mend: str = "") -> Response:
    visitor = None
    with suppress(Refusal):
        visitor = visitor_of(request, TokenRole.READ)
    phrase = HTTPStatus(status).phrase
    values = {"title": phrase, "what": what, "mend": mend}
    return _page(request, "error.html", values, visitor, status)


async def _by_reader(
    page: ErrorAnswer,
    program: ErrorAnswer,
    request: Request,
    failed: Any,
) -> Response:
    """A page for a person, and JSON for a program."""
    answer = program
    if is_for_a_person(request):
        answer = page
    return await answer(request, failed)


_ERROR_PAGES: Final[Mapping[type[Exception], Callable[[Request, Any], Awaitable[Response]]]] = {
    Refusal: _refused_page,
    HTTPException: _http_page,
    MailmendError: _failed_page,
    Exception: _unforeseen_page,
}


def _site() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for page in PAGES:
        router.add_route(page.path, PageRoute(page).answer, ["GET"], include_in_schema=False)
    for change in CHANGES:
        router.add_route(change.path, ChangeRoute(change).answer, ["POST"], include_in_schema=False)
    router.add_route(SIGN_IN, sign_in_page, ["GET"], include_in_schema=False)
    router.add_route(SIGN_IN, sign_in, ["POST"], include_in_schema=False)
    router.add_route(SIGN_OUT, sign_out, ["POST"], include_in_schema=False)
    for path in _STATIC:
        router.add_route(path, static, ["GET"], include_in_schema=False)
    return router


SITE: Final = _site()


def with_pages(api: Api) -> Api:
    """What a server answers with pages too. Its desk has a `page: PageDesk`."""
    answers = dict(api.answers)
    for kind, page in _ERROR_PAGES.items():
        answers[kind] = partial(_by_reader, page, api.answers[kind])
    return replace(
        api,
        routers=(*api.routers, SITE),
        answers=answers,
        headers={**api.headers, **HEADERS},
    )
