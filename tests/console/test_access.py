"""Who may ask the console: token, cookie, Host, Origin; what leads out of the root; what pages may do in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.console_world import SECRET, Served, showing
from query.query_jobs import sales, sales_job
from sample import run_job
from streamwork.console.routes import ROUTES
from streamwork.serving.session import SECONDS, Sessions

POLICY = {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("console")
    run_job(sales_job(sales(range(0, 2_000, 97)), path), path / "root")
    (path / "outside").mkdir()
    (path / "outside" / "job.json").write_text("{}")
    (path / "root" / "linked").symlink_to(path / "outside")
    with showing(path / "root") as found:
        yield found


PATHS = [
    "/api",
    "/api/overview",
    "/api/events",
    *(
        f"/api/{route.pattern.format(job='sales', epoch=1)}"
        for route in ROUTES
        if route.method == "GET" and set(route.fits(route.pattern.split("/")) or {}) <= {"job", "epoch"}
    ),
]


@pytest.mark.parametrize("path", PATHS)
def test_every_route_needs_the_token(served: Served, path: str) -> None:
    for token in (None, "wrong", "", SECRET + "x"):
        answer = served.ask(path, token=token)
        assert (answer.status, answer.code) == (401, "SW-SERVE-TOKEN")


def test_a_browser_swaps_the_token_for_a_cookie(served: Served) -> None:
    answer = served.ask("/session", "POST", {"token": SECRET}, None, Origin=served.url)
    cookie = answer.headers["set-cookie"]
    assert answer.status == 204 and answer.body == b""
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={SECONDS}"} <= set(cookie.split("; "))
    assert SECRET not in cookie and cookie.startswith(f"streamwork-{served.port}=")
    session = cookie.partition(";")[0]
    assert served.ask("/api", token=None, Cookie=session).status == 200
    assert served.ask("/api", token=None, Cookie=f"a=b; {session}; c=d").status == 200
    assert served.ask("/session", token=None, Cookie=session).json == {"session": True}
    assert served.ask("/session", token=None).json == {"session": False}
    ended = served.ask("/session", "DELETE", None, None, Cookie=session, Origin=served.url)
    assert "Max-Age=0" in ended.headers["set-cookie"]


@pytest.mark.parametrize("body", [{"token": "wrong"}, {"token": ""}, {}])
def test_a_wrong_token_gets_no_cookie(served: Served, body: dict[str, str]) -> None:
    answer = served.ask("/session", "POST", body, None, Origin=served.url)
    assert (answer.status, answer.code) == (401, "SW-SERVE-TOKEN") and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"token": 1}', b'"' + SECRET.encode() + b'"', b"\xff", b'{"token": "\\ud800"}']
)
def test_a_malformed_body_gets_no_cookie(served: Served, body: bytes) -> None:
    answer = served.ask("/session", "POST", body, None)
    assert answer.code in ("SW-SERVE-REQUEST", "SW-SERVE-TOKEN") and "set-cookie" not in answer.headers


def test_a_changed_cookie_is_none(served: Served) -> None:
    name, _, value = served.cookie().partition("=")
    end, _, mark = value.partition(".")
    for changed in (f"{int(end) + 1}.{mark}", f"{end}.{mark[:-1]}", f"{end}.", end, "", f"-1.{mark}", f"9{end}.{mark}"):
        assert served.ask("/api", token=None, Cookie=f"{name}={changed}").status == 401
    assert served.ask("/api", token=None, Cookie=f"streamwork-1={value}").status == 401


def test_a_session_ends() -> None:
    now = [1000.0]
    sessions = Sessions("secret", 80, lambda: now[0])
    cookie = sessions.begin().decode().partition(";")[0]
    assert sessions.holds(cookie)
    now[0] += SECONDS - 1
    assert sessions.holds(cookie)
    now[0] += 1
    assert not sessions.holds(cookie)
    assert not Sessions("another", 80, lambda: 1000.0).holds(cookie)
    assert not Sessions("secret", 81, lambda: 1000.0).holds(cookie.replace("-80=", "-81="))


def test_another_host_or_page_is_refused(served: Served) -> None:
    cookie = served.cookie()
    for path in ("/api", "/", "/static/index.html", "/session"):
        answer = served.ask(path, token=None, Cookie=cookie, Host=f"evil.example:{served.port}")
        assert (answer.status, answer.code) == (403, "SW-SERVE-HOST")
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{served.port}",
        f"http://127.0.0.1:{served.port + 1}",
    ):
        answer = served.ask("/api", token=None, Cookie=cookie, Origin=origin)
        assert (answer.status, answer.code) == (403, "SW-SERVE-HOST")


def test_a_change_with_a_cookie_needs_an_origin(served: Served) -> None:
    answer = served.ask("/api/jobs/sales/stop", "POST", {}, None, Cookie=served.cookie())
    assert (answer.status, answer.code) == (403, "SW-SERVE-HOST")


@pytest.mark.parametrize("path", ["/", "/static/index.html", "/api/overview", "/api", "/nothing", "/api/nothing"])
def test_every_answer_has_the_headers_of_a_page(served: Served, path: str) -> None:
    headers = served.ask(path).headers
    assert set(headers["content-security-policy"].split("; ")) >= POLICY
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer" and headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_pages_need_no_token_and_are_kept_by_their_mark(served: Served) -> None:
    page = served.ask("/", token=None)
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    again = served.ask("/", token=None, If_None_Match=page.headers["etag"])
    assert again.status == 304 and again.body == b"" and page.headers["cache-control"] == "no-cache"
    assert served.ask("/api").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../application.py",
        "/static/%2e%2e/application.py",
        "/static/..%2fapplication.py",
        "/static/%2fetc%2fpasswd.txt",
        "/static//etc/passwd.txt",
        "/static/index.html%00.txt",
        "/static/.hidden.txt",
        "/static/",
        "/static",
        "/static/nothing.js",
        "/static/application.py",
        "/index.html",
        "//",
    ],
)
def test_no_page_leads_out_of_its_folder(served: Served, path: str) -> None:
    assert served.ask(path).status == 404


@pytest.mark.parametrize(
    "name",
    ["..", "%2e%2e", "..%2froot", "nothing", "linked", "%00", "a" * 65, "sales%2f..%2fsales", "%3Cscript%3E", "", "."],
)
def test_no_name_leads_out_of_the_root(served: Served, name: str) -> None:
    for behind in ("", "/epochs", "/events"):
        answer = served.ask(f"/api/jobs/{name}{behind}")
        assert answer.status in (403, 404, 503) and answer.code in ("SW-QUERY-JOB", "SW-SERVE-ROUTE", "SW-PATH-OUTSIDE")


def test_hostile_names_come_back_as_json_text(served: Served) -> None:
    hostile = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%0a%1b%E2%80%AE"
    answer = served.ask(f"/api/jobs/{hostile}")
    assert answer.headers["content-type"] == "application/json"
    assert "script" in json.loads(answer.body)["error"]["cause"]


@pytest.mark.parametrize(
    "path",
    [
        "jobs/sales/epochs?limit=0",
        "jobs/sales/epochs?limit=x",
        "jobs/sales/epochs?limit=nan",
        "jobs/sales/epochs?limit=1&limit=2",
        "jobs/sales/epochs?outcome=none",
        "jobs/sales/epochs?other=1",
        "jobs/sales/epochs/x",
        "jobs/sales/epochs/-1",
        "jobs/sales/history?points=1",
    ],
)
def test_a_malformed_question_is_refused(served: Served, path: str) -> None:
    answer = served.ask(f"/api/{path}")
    assert (answer.status, answer.code) == (400, "SW-SERVE-REQUEST")


def test_an_unknown_route_or_method_is_refused(served: Served) -> None:
    assert served.ask("/api/nothing").code == "SW-SERVE-ROUTE"
    assert served.ask("/api/jobs").code == "SW-SERVE-ROUTE"
    assert served.ask("/api/overview", "POST").code == "SW-SERVE-METHOD"
    assert served.ask("/api/jobs/sales/epochs", "POST").code == "SW-SERVE-METHOD"
    assert served.ask("/api/overview", "DELETE").code == "SW-SERVE-METHOD"


def test_a_root_without_jobs_is_empty(tmp_path: Path) -> None:
    with showing(tmp_path) as served:
        assert served.get("/api/overview")["jobs"] == []
