"""What people do at the console, in Chromium, against a bridge with npm's server-everything behind it.

With PICTURES=1 the pages that it shows on its way become the pictures of docs/console.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from bridge.assembly.plan_from_file import store_of
from tests.console_browser.browser import (
    PICTURES,
    Tab,
    awaited,
    axe_source,
    browsing,
    end,
    faults_by_axe,
    fill,
    send,
    serving,
    tab_in,
)
from tests.peers.oidc_provider import running_issuers
from tests.support.ports import free_port

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202egnp.exe {{ 7 * 7 }}"

BRIDGE = """
[bridge]
port = {port}
console = true
store = "memory:"

[tool_servers.everything]
command = ["mcp-server-everything", "stdio"]

[tools_as_agent.devtools]
from = ["everything"]

[tools_as_agent.devtools.skills.get-env]
hidden = true

[tools_as_agent.devtools.skills.echo]
name = '<img src=x onerror=alert(3)>'
description = '</h1><script>alert(4)</script> an echo'

[agents_as_tools.team]
from = ["devtools"]
"""

PEOPLE = """
[principals.ada]
bearer = { env = "ADA" }
skills = ["devtools/e*", "devtools/get-sum", "devtools/trigger-*"]

[principals.bob]
bearer = { env = "BOB" }
skills = ["devtools/get-sum"]

[principals.ops]
api_key = { env = "OPS" }
operator = "answer"
"""

READER = """
[principals.eyes]
bearer = { env = "EYES" }
operator = "read"
"""

TOKENS = {
    "ADA": "token-of-ada-which-is-long-enough",
    "BOB": "token-of-bob-which-is-long-enough",
    "OPS": "key-of-ops-which-is-long-enough",
    "EYES": "token-of-eyes-which-is-long-enough",
}

SIGN_IN = """
[issuers.corp]
issuer = "{corp}"
login = {{ client_id = "{client}" }}
scopes."tools:read" = ["*"]
operator.read = ["admin"]
"""

PAGES = (
    "",
    "/tasks",
    "/answer",
    "/try",
    "/try/devtools/echo",
    "/try/mcp/team/get-sum",
    "/mapping",
    "/configuration",
    "/people",
)


expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("open"), BRIDGE) as found:
        for arguments in ({"location": "Chicago"}, {"location": "New York"}):
            send(found, "devtools", "get-structured-content", arguments)
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = BRIDGE.replace("console = true", "console = true\noperators_see_contents = true") + PEOPLE
    with serving(tmp_path_factory.mktemp("guarded"), text, **TOKENS) as found:
        yield found


@pytest.fixture(scope="module")
def withholding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bridge that shows operators nothing of what was said."""
    text = BRIDGE + PEOPLE + READER
    with serving(tmp_path_factory.mktemp("withholding"), text, free_port(), **TOKENS) as found:
        yield found


def signed_in(context: BrowserContext, root: str, name: str) -> Tab:
    """A tab in which somebody has signed in."""
    tab = tab_in(context, root)
    page = tab.opens()
    page.get_by_label("Token").fill(TOKENS[name])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("header b")).to_have_text(name.lower())
    tab.faults[:] = [fault for fault in tab.faults if "401" not in fault]
    return tab


def tabbed_to(page: Page, place: Locator) -> Locator:
    """Press the tabulator until an element has the focus."""
    for _ in range(100):
        if place.evaluate("one => one === document.activeElement"):
            return place
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not lead there")


@pytest.fixture
def tab(browser: Browser, root: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1000, "height": 640})
    found = tab_in(context, root)
    yield found
    assert found.faults == []
    context.close()


def typed(line: str) -> str:
    """What a shell prints for a line; JSON with escapes for all but ASCII."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh"], input=line.encode(), env=environment, capture_output=True, check=True, timeout=60
    )
    found = done.stdout.decode()
    return json.dumps(json.loads(found) if found.startswith("{") else found)


def picture(page: Page, name: str) -> None:
    """Keep what the page shows for the documentation, if that was asked for."""
    page.evaluate("scrollTo(0, 0)")
    if os.environ.get("PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"console-{name}.png")


def test_every_page_is_clean_for_axe_in_light_and_dark_and_fits_360_pixels(
    browser: Browser, root: str
) -> None:
    source, found = axe_source(), []
    task = send(root, "devtools", "get-tiny-image", {})
    waiting = send(root, "devtools", "trigger-elicitation-request", {})
    for scheme, width in (("light", 1120), ("dark", 1120), ("light", 360)):
        context = browser.new_context(viewport={"width": width, "height": 760}, color_scheme=scheme)
        tab = tab_in(context, root)
        for path in (*PAGES, f"/tasks/devtools/{task}", f"/tasks/devtools/{waiting}", "/nothing"):
            page = tab.opens(path)
            found += faults_by_axe(page, source)
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                found.append(f"{path} is {wide} pixels wide")
        assert [fault for fault in tab.faults if "404" not in fault] == []
        context.close()
    end(root, waiting)
    assert found == []


def test_a_page_is_used_by_keyboard_alone(tab: Tab) -> None:
    page = tab.opens("/try/devtools/get-sum")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("a number, required")).to_be_focused()
    page.keyboard.type("19")
    page.keyboard.press("Tab")
    page.keyboard.type("23")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The sum of 19 and 23 is 42.").first).to_be_visible()


def test_a_call_shows_its_events_as_they_come_and_its_result_as_what_it_is(tab: Tab) -> None:
    page = tab.opens("/try/devtools/trigger-long-running-operation")
    page.get_by_label("duration").fill("3")
    page.get_by_label("steps").fill("3")
    expect(page.locator("#line-call")).to_contain_text('{"duration":3,"steps":3}')
    picture(page, "try")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**/tasks/devtools/*")
    expect(page.locator("#moments li").nth(3)).to_be_visible()
    expect(page.locator("#moments")).to_have_attribute("aria-live", "polite")
    expect(page.locator(".lead")).to_contain_text("completed")
    page.goto(f"{tab.root}/console/try/devtools/get-tiny-image")
    page.get_by_role("button", name="Run").click()
    image = page.get_by_role("img", name="An image of the result")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    picture(page, "task")


def test_a_sentence_is_explained_and_nothing_runs(tab: Tab) -> None:
    page = tab.opens("/try")
    page.get_by_label("What would a sentence do?").fill("What is the sum of 19 and four, please?")
    page.keyboard.press("Enter")
    expect(page.get_by_label("What the sentence would do")).to_contain_text("skill: get-sum\na = 19\nb = 4")
    expect(page).to_have_url(f"{tab.root}/console/try")


def test_a_tool_of_agents_is_tried_as_a_host_calls_it(tab: Tab) -> None:
    page = tab.opens("/try/mcp/team/get-tiny-image")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(page.get_by_role("img", name="An image of the result")).to_be_visible()
    page = tab.opens("/try/mcp/team/echo")
    page.get_by_label("message").fill(HOSTILE)
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result .words")).to_contain_text("<img src=x onerror=alert(1)>")


def test_a_tool_whose_agent_asks_shows_the_form_and_goes_on_with_the_answer(tab: Tab) -> None:
    page = tab.opens("/try/mcp/team/trigger-elicitation-request")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="The agent asks")).to_be_visible()
    asked = page.locator("#result form")
    asked.get_by_label("Integer").fill("many")
    asked.get_by_role("button", name="Answer").click()
    expect(asked.get_by_text("This takes a whole number, such as 5")).to_be_visible()
    asked.get_by_label("Integer").fill("42")
    asked.get_by_label("String", exact=False).first.fill("Ada")
    asked.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(page.locator("#result")).to_contain_text("42")


@pytest.mark.parametrize("button", ["Decline", "Cancel the question"])
def test_the_question_of_a_tool_is_refused_in_the_browser(button: str, tab: Tab) -> None:
    page = tab.opens("/try/mcp/team/trigger-elicitation-request")
    page.get_by_role("button", name="Run").click()
    asked = page.locator("#result form")
    asked.get_by_role("button", name=button).click()
    expect(asked).to_have_count(0)
    expect(page.locator("#result h2")).not_to_have_text("Running")


@pytest.mark.parametrize("words", ["five", "0x10", "2,5", "1e999", "--1"])
def test_a_number_field_refuses_words_in_words(words: str, tab: Tab) -> None:
    page = tab.opens("/try/mcp/team/get-sum")
    page.get_by_label("a number, required").fill(words)
    page.get_by_label("b number, required").fill(" 2.5 ")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("This takes a number, such as 2.5")).to_be_visible()
    expect(page.get_by_label("a number, required")).to_be_focused()


def test_a_list_says_how_long_tasks_took_and_names_lead_to_their_pages(tab: Tab) -> None:
    page = tab.opens("/tasks")
    row = page.get_by_role("row").nth(1)
    expect(row.locator("td[data-label=Took]")).to_contain_text(" s")
    page = tab.opens()
    page.get_by_role("rowheader", name="devtools").get_by_role("link").click()
    expect(page.get_by_role("heading", name="devtools")).to_be_visible()
    page = tab.opens()
    page.get_by_role("heading", name="everything").get_by_role("link").click()
    expect(page.get_by_text("mcp-server-everything").first).to_be_visible()


def test_the_lines_to_copy_do_in_a_shell_what_was_typed(tab: Tab) -> None:
    said = f'it\'s "here" $HOME `id` $(id) !! \\\\ \u00e4 {HOSTILE}'
    for path, agent in (("devtools", "agents/devtools"), ("mcp/team", "mcp/team")):
        page = tab.opens(f"/try/{path}/echo")
        page.get_by_label("message").press_sequentially("x")
        page.get_by_label("message").fill(said)
        expect(page.locator("#line-curl")).to_contain_text("gnp.exe")
        expect(page.locator("#lines-are")).to_have_text("With what the form holds.")
        for name in ("call", "curl"):
            line = page.locator(f"#line-{name}").text_content() or ""
            assert agent in line
            assert json.dumps(f"Echo: {said}")[1:-1] in typed(line)
    page = tab.opens("/try/devtools/get-structured-content")
    expect(page.locator("#lines-are")).to_have_text("With the values of an example, until you type.")


def test_wrong_arguments_are_told_beside_their_fields(tab: Tab) -> None:
    page = tab.opens("/try/devtools/get-sum")
    page.get_by_label("a number, required").fill("nineteen")
    page.get_by_role("button", name="Run").click()
    field = page.get_by_label("a number, required")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    tab.faults[:] = [fault for fault in tab.faults if "422" not in fault]


def test_a_tool_is_run_again_by_keyboard(tab: Tab) -> None:
    page = tab.opens("/try/mcp/team/get-sum")
    page.get_by_label("a number, required").fill("19")
    page.get_by_label("b number, required").fill("23")
    run = tabbed_to(page, page.get_by_role("button", name="Run"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(run).to_be_focused()


def test_a_button_says_so_when_the_bridge_does_not_answer(tab: Tab) -> None:
    task = send(tab.root, "devtools", "trigger-elicitation-request", {})
    page = tab.opens(f"/tasks/devtools/{task}")
    button = page.get_by_role("button", name="Cancel the task")
    page.route("**/cancel", lambda route: route.abort())
    tabbed_to(page, button)
    page.keyboard.press("Enter")
    expect(page.get_by_text("The bridge does not answer")).to_be_visible()
    expect(button).to_be_focused()
    page.unroute("**/cancel")
    page.keyboard.press("Enter")
    expect(page.locator(".lead")).to_contain_text("canceled")
    tab.faults[:] = [fault for fault in tab.faults if "ERR_FAILED" not in fault]


def test_a_problem_with_a_choice_of_several_leads_the_keyboard_there(tab: Tab) -> None:
    task = send(tab.root, "devtools", "trigger-elicitation-request", {})
    page = tab.opens(f"/tasks/devtools/{task}")
    choice = page.locator("fieldset").first
    question = page.locator("[data-question]").get_attribute("data-question")
    problem = {"question": question, "name": choice.get_attribute("data-name"), "message": "too few"}
    page.route("**/answer", lambda route: route.fulfill(status=422, json={"problems": [problem]}))
    page.get_by_role("button", name="Answer").click()
    expect(choice.get_by_text("too few")).to_be_visible()
    expect(choice.locator("input").first).to_be_focused()
    page.unroute("**/answer")
    end(tab.root, task)
    tab.faults[:] = [fault for fault in tab.faults if "422" not in fault]


def test_a_number_that_a_browser_would_change_is_not_sent(tab: Tab) -> None:
    page = tab.opens("/try/devtools/get-sum")
    field = page.get_by_label("a number, required")
    field.fill("12345678901234567891")
    page.get_by_label("b number, required").fill("0")
    page.get_by_role("button", name="Run").click()
    expect(field).to_be_focused()
    expect(page.get_by_text("A browser changes whole numbers beyond")).to_be_visible()
    field.fill("9007199254740991")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("The sum of 9007199254740991 and 0").first).to_be_visible()


def test_an_elicitation_of_server_everything_is_answered_in_the_browser(tab: Tab) -> None:
    page = tab.opens("/try/devtools/trigger-elicitation-request")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="It asks")).to_be_visible()
    page.goto(f"{tab.root}/console/answer")
    badge = page.locator("nav .badge")
    expect(badge).to_be_visible()
    form = page.locator("form[data-kind=answer]").first
    form.get_by_label("String string, required").fill("Ada Lovelace")
    picture(page, "answer")
    form.get_by_label("String string, required").fill(HOSTILE)
    form.get_by_label("Integer integer").fill("7")
    form.get_by_label("Piano").check()
    form.get_by_label("Titled Single Select Enum one of these").first.select_option(label="Rachel")
    form.get_by_role("button", name="Answer").click()
    page.wait_for_url("**/tasks/devtools/*")
    expect(page.locator(".lead")).to_contain_text("completed")
    expect(page.get_by_text("User provided the requested information").first).to_be_visible()
    expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()


def test_a_question_is_answered_by_keyboard_alone(tab: Tab) -> None:
    task = send(tab.root, "devtools", "trigger-elicitation-request", {})
    page = tab.opens(f"/tasks/devtools/{task}")
    tabbed_to(page, page.get_by_label("String string, required"))
    page.keyboard.type("Grace Hopper")
    tabbed_to(page, page.get_by_label("Piano"))
    page.keyboard.press("Space")
    tabbed_to(page, page.get_by_role("button", name="Answer"))
    page.keyboard.press("Enter")
    expect(page.locator(".lead")).to_contain_text("completed")
    expect(page.get_by_text("Grace Hopper").first).to_be_visible()


@pytest.mark.parametrize(("button", "said"), [("Decline", "declined"), ("Cancel the question", "cancelled")])
def test_a_question_is_refused_in_the_browser(button: str, said: str, tab: Tab) -> None:
    task = send(tab.root, "devtools", "trigger-elicitation-request", {})
    page = tab.opens(f"/tasks/devtools/{task}")
    expect(page.get_by_role("heading", name="It asks")).to_be_visible()
    page.get_by_role("button", name=button).click()
    expect(page.locator(".lead")).to_contain_text("completed")
    expect(page.get_by_text(said).first).to_be_visible()


def test_words_of_peers_run_nothing(tab: Tab) -> None:
    task = send(tab.root, "devtools", "echo", {"message": HOSTILE})
    for path in (*PAGES, f"/tasks/devtools/{task}"):
        page = tab.opens(path)
        page.wait_for_load_state("load")
        assert page.locator("img[src='x']").count() == 0
    expect(page.get_by_text("\\u202egnp.exe").first).to_be_visible()


def test_the_overview_the_mapping_and_the_configuration_are_pictures(tab: Tab) -> None:
    waiting = send(tab.root, "devtools", "trigger-elicitation-request", {})
    paths = {"overview": "", "mapping": "/mapping", "configuration": "/configuration", "tasks": "/tasks"}
    for name, path in paths.items():
        page = tab.opens(path)
        expect(page.locator("nav .badge")).to_have_text("1")
        picture(page, name)
    end(tab.root, waiting)


def test_two_people_and_an_operator_see_what_is_theirs(browser: Browser, guarded: str) -> None:
    of_ada = send(guarded, "devtools", "get-sum", {"a": 1, "b": 2}, TOKENS["ADA"])
    tabs = {}
    for name in ("ADA", "BOB", "OPS"):
        token = TOKENS[name]
        context = browser.new_context(viewport={"width": 1000, "height": 640})
        tab = tabs[name] = tab_in(context, guarded)
        page = tab.opens()
        if name == "ADA":
            picture(page, "sign-in")
        page.get_by_label("Token").fill("a wrong one")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This token is not known")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("header b")).to_have_text(name.lower())
    ada, bob, ops = tabs["ADA"], tabs["BOB"], tabs["OPS"]
    expect(bob.opens("/tasks").get_by_text("No task yet")).to_be_visible()
    assert of_ada not in bob.page.content()
    expect(bob.opens("/try").get_by_role("link")).not_to_have_count(0)
    assert "trigger-elicitation-request" not in bob.page.content()
    bob.opens(f"/tasks/devtools/{of_ada}")
    expect(bob.page.get_by_role("heading", name="Nothing is here")).to_be_visible()
    of_bob = send(guarded, "devtools", "get-sum", {"a": 3, "b": 4}, TOKENS["BOB"])
    expect(bob.opens("/tasks").get_by_title(of_bob)).to_be_visible()
    ada.opens("/tasks")
    assert of_bob not in ada.page.content()
    listed = ops.opens("/tasks")
    for task in (of_ada, of_bob):
        expect(listed.get_by_title(task)).to_be_visible()
    expect(ada.opens("/tasks").get_by_title(of_ada)).to_be_visible()
    assert ada.opens("/people").get_by_text("Not for you").count() == 1
    expect(ada.page.get_by_role("navigation").get_by_role("link", name="People")).to_have_count(0)
    people = ops.opens("/people")
    expect(people.get_by_role("rowheader", name="ada")).to_be_visible()
    picture(people, "people")
    assert not any(token in people.content() for token in TOKENS.values())
    waiting = send(guarded, "devtools", "trigger-elicitation-request", {}, TOKENS["ADA"])
    page = ada.opens(f"/tasks/devtools/{waiting}")
    answering = ops.opens("/answer")
    expect(answering.get_by_text("of ada")).to_be_visible()
    answering.get_by_label("String string, required").fill("Somebody else")
    answering.get_by_role("button", name="Answer").click()
    expect(answering.locator(".lead")).to_contain_text("completed")
    expect(page.locator(".lead")).to_contain_text("completed")  # by the news that its page got
    expect(page.locator("#moments").get_by_text("by ops")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert [fault for tab in tabs.values() for fault in tab.faults if " 40" not in fault] == []


HOSTILE_SERVER = """
import json, sys
named = sys.argv[1]
tools = [{"name": named, "title": named, "description": named,
          "inputSchema": {"type": "object", "properties": {named: {"type": "string", "description": named}}}}]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": named,
                       "serverInfo": {"name": named, "version": named, "title": named}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": named}], "structuredContent": {named: named}},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
"""


def test_hostile_names_of_tools_servers_and_agents_run_nothing(browser: Browser, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(HOSTILE_SERVER)
    command = json.dumps([sys.executable, str(script), HOSTILE.replace("</", "<")])
    text = (
        '[bridge]\nport = {port}\nconsole = true\nstore = "memory:"\n'
        f"[tool_servers.everything]\ncommand = {command}\nera = 'legacy'\n"
        f"[tools_as_agent.devtools]\nfrom = ['everything']\nname = {json.dumps(HOSTILE)}\n"
        '[agents_as_tools.team]\nfrom = ["devtools"]\n'
    )
    with serving(tmp_path, text) as root:
        tab = tab_in(browser.new_context(), root)
        offered = json.loads(urlopen(f"{root}/console/try.json").read())
        paths = [entry["path"] for group in offered["groups"] for entry in group["entries"]]
        assert len(paths) == 2
        for path in ("", "/tasks", "/answer", "/try", *paths, "/mapping", "/configuration", "/people"):
            page = tab.opens(path)
            page.wait_for_load_state("load")
            assert page.locator("img[src='x']").count() == 0
            assert "\u202e" not in page.content()
        for path in paths:
            page = tab.opens(path)
            page.get_by_role("button", name="Run").click()
            expect(page.locator(".part .words").first).to_contain_text("<img src=x onerror=alert(1)>")
            assert page.locator("img[src='x']").count() == 0
        assert tab.faults == []


FOREIGN = """<!doctype html><title>elsewhere</title><iframe src="{root}/console" id="frame"></iframe><script>
const tried = [];
const json = (path, headers, mode) => fetch("{root}/console" + path, {{method: "POST", mode,
  credentials: "include", headers, body: JSON.stringify({{arguments: {{message: "from elsewhere"}}}})}})
  .then((one) => one.type, () => "failed");
Promise.all([
  json("/try/devtools/echo", {{"Content-Type": "application/json"}}, "cors"),
  json("/try/devtools/echo", {{"Content-Type": "text/plain"}}, "no-cors"),
  json("/news", {{"Content-Type": "text/plain"}}, "no-cors"),
  fetch("{root}/console/tasks.json", {{credentials: "include"}}).then((one) => one.type, () => "failed"),
]).then((all) => {{ document.title = all.join(" "); }});
</script>"""


@contextmanager
def page_elsewhere(text: str) -> Iterator[int]:
    """A page at a port of its own; the port."""
    page = text.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_of_another_origin_on_this_machine_changes_and_reads_nothing(
    browser: Browser, root: str, host: str
) -> None:
    with page_elsewhere(FOREIGN.format(root=root)) as port:
        context = browser.new_context()
        tab = tab_in(context, root)
        tab.opens()  # so that this browser has a session
        with urlopen(f"{root}/console/tasks.json") as answer:
            before = answer.read()
        page = context.new_page()
        page.goto(f"http://{host}:{port}/")
        expect(page).to_have_title("failed failed failed failed")
        frame = page.frame_locator("#frame")
        assert frame.get_by_role("heading", name="Overview").count() == 0
        with urlopen(f"{root}/console/tasks.json") as answer:
            assert answer.read() == before
        context.close()


def test_a_page_at_another_port_which_is_sent_the_cookie_changes_nothing_for_whom_has_signed_in(
    browser: Browser, guarded: str
) -> None:
    with page_elsewhere(FOREIGN.format(root=guarded)) as port:
        context = browser.new_context()
        tab = signed_in(context, guarded, "ADA")
        before = tab.opens("/tasks.json").content()
        sent: list[tuple[str, int]] = []
        page = context.new_page()
        page.on("response", lambda one: sent.append((one.request.method, one.status)))
        page.on("requestfailed", lambda one: sent.append((one.method, 0)))
        page.goto(f"http://127.0.0.1:{port}/")  # the same site, so that Strict cookies come with its requests
        expect(page).to_have_title("failed failed failed failed")
        assert {status for method, status in sent if method == "POST"} <= {0, 403}
        assert tab.opens("/tasks.json").content() == before
        expect(tab.opens().locator("header b")).to_have_text("ada")
        context.close()


def test_a_link_of_another_site_leads_in_and_signs_nobody_out(browser: Browser, guarded: str) -> None:
    link = '<!doctype html><title>elsewhere</title><a href="{}/console/tasks?state=completed">tasks</a>'
    with page_elsewhere(link.format(guarded)) as port:
        context = browser.new_context()
        older = signed_in(context, guarded, "ADA")
        form = older.opens("/try/devtools/echo")
        tab = tab_in(context, guarded)
        tab.page.goto(f"http://localhost:{port}/")
        tab.page.get_by_role("link", name="tasks").click()
        expect(tab.page.locator("header b")).to_have_text("ada")
        assert tab.page.url == f"{guarded}/console/tasks?state=completed"
        form.get_by_label("message").fill("from an older tab")
        form.get_by_role("button", name="Run").click()
        expect(form.locator(".lead")).to_contain_text("completed")
        assert tab.faults + older.faults == []
        context.close()


def test_a_link_of_another_site_leaves_the_forms_of_an_open_console(tab: Tab) -> None:
    form = tab.opens("/try/devtools/echo")
    with page_elsewhere(f'<!doctype html><a href="{tab.root}/console">console</a>') as port:
        page = tab.page.context.new_page()
        page.goto(f"http://localhost:{port}/")
        page.get_by_role("link", name="console").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    form.get_by_label("message").fill("from an older tab")
    form.get_by_role("button", name="Run").click()
    expect(form.locator(".lead")).to_contain_text("completed")


def test_all_tabs_come_to_the_sign_in_when_one_of_them_signs_out(browser: Browser, guarded: str) -> None:
    context = browser.new_context()
    tab = signed_in(context, guarded, "ADA")
    other = tab_in(context, guarded)
    other.opens("/tasks")
    tab.page.get_by_role("button", name="Sign out").click()
    for one in (tab, other):
        expect(one.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "mcp-a2a-console" not in {one["name"] for one in context.cookies() if one["value"] == ""}
    context.close()


def test_an_operator_who_reads_sees_that_a_task_is_there_and_nothing_of_what_was_said(
    browser: Browser, withholding: str
) -> None:
    source, said = axe_source(), "a secret of ada"
    ended = send(withholding, "devtools", "echo", {"message": said}, TOKENS["ADA"])
    waiting = send(withholding, "devtools", "trigger-elicitation-request", {}, TOKENS["ADA"])
    context = browser.new_context()
    tab = signed_in(context, withholding, "EYES")
    for task in (ended, waiting):
        page = tab.opens(f"/tasks/devtools/{task}")
        expect(page.get_by_text("What was said stays with ada")).to_be_visible()
        expect(page.get_by_text("of ada").first).to_be_visible()
        assert said not in page.content()
        assert page.get_by_role("button", name="Cancel the task").count() == 0
        assert page.locator("form[data-kind=answer]").count() == 0
        assert faults_by_axe(page, source) == []
    expect(page.get_by_text("This is for ada to answer.")).to_be_visible()
    assert tab.opens("/answer").locator("form").count() == 0
    assert tab.faults == []
    context.close()


def test_a_page_says_so_when_a_reload_has_taken_away_what_it_shows(browser: Browser, tmp_path: Path) -> None:
    text = BRIDGE + PEOPLE + READER
    with serving(tmp_path, text, free_port(), **TOKENS) as root:
        waiting = send(root, "devtools", "trigger-elicitation-request", {}, TOKENS["ADA"])
        context = browser.new_context()
        tab = signed_in(context, root, "EYES")
        page = tab.opens(f"/tasks/devtools/{waiting}")
        expect(page.get_by_text("This is for ada to answer.")).to_be_visible()
        file = tmp_path / "bridge.toml"
        file.write_text(file.read_text().replace('operator = "read"\n', ""))
        expect(page.locator("footer [data-live=link]")).to_have_text(
            "no more news for this page; load it again"
        )
        expect(tab.opens(f"/tasks/devtools/{waiting}").get_by_text("Nothing is here")).to_be_visible()
        context.close()


@pytest.mark.parametrize("name", ["OPS", "EYES"])
def test_the_pages_of_operators_are_clean_for_axe(name: str, browser: Browser, withholding: str) -> None:
    source = axe_source()
    context = browser.new_context()
    tab = signed_in(context, withholding, name)
    for path in ("/people", "/configuration"):
        page = tab.opens(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(path[1:].title())
        assert faults_by_axe(page, source) == []
    assert tab.faults == []
    context.close()


def test_ten_thousand_tasks_come_in_pages(browser: Browser, tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    own = store_of(str(store), "devtools")
    assert own is not None
    fill(Path(own), 10_000)
    text = BRIDGE.replace('"memory:"', f'"{store}"')
    with serving(tmp_path, text) as root:
        context = browser.new_context()
        tab = tab_in(context, root)
        page = tab.opens("/tasks")
        expect(page.get_by_role("heading", level=2)).to_contain_text("10000 tasks")
        assert page.get_by_role("row").count() == 51
        first = page.locator("tbody a").first
        title = first.get_attribute("title")
        page.get_by_role("link", name="Older").click()
        expect(page.locator("tbody a").first).not_to_have_attribute("title", title or "")
        page.get_by_label("Skill").fill("nothing")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("heading", level=2)).to_contain_text("1000 searched")
        assert tab.faults == []
        context.close()


def test_a_person_signs_in_at_the_page_of_its_issuer_which_is_another_site(
    browser: Browser, tmp_path: Path
) -> None:
    source, port = axe_source(), free_port()
    root = f"http://localhost:{port}"
    with running_issuers() as issuers:
        corp = issuers["corp"]
        client = awaited(
            partial(
                corp.register,
                redirect_uris=[f"{root}/console/signed-in"],
                token_endpoint_auth_method="none",
            )
        )
        place = f'[bridge]\npublic_url = "{root}"'
        text = BRIDGE.replace("[bridge]", place) + SIGN_IN.format(corp=corp.url, client=client.id)
        with serving(tmp_path, text, port):
            context = browser.new_context(viewport={"width": 1000, "height": 640})
            tab = tab_in(context, root)
            # The issuer is at 127.0.0.1, so it is another site than localhost.
            alice = {"name": "person", "value": "alice", "url": corp.url}
            context.add_cookies([alice, {"name": "answer", "value": "no", "url": corp.url}])
            page = tab.opens()
            assert faults_by_axe(page, source) == []
            page.get_by_role("button", name="Sign in at corp").click()
            expect(page.get_by_role("main")).to_contain_text("The sign-in at corp has failed")
            assert faults_by_axe(page, source) == []
            tab.faults.clear()  # the 502 of that page

            context.clear_cookies(name="answer")
            page.get_by_role("link", name="To the start").click()
            page.get_by_role("button", name="Sign in at corp").click()
            expect(page.get_by_role("banner")).to_contain_text("signed in as corp:alice")
            assert page.url == f"{root}/console"
            tab.opens("/people")
            expect(page.get_by_role("main")).to_contain_text("They sign in at this console there.")
            cookies = {one["name"]: one["sameSite"] for one in context.cookies(root)}
            assert cookies == {"mcp-a2a-console": "Strict"}

            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            seen = awaited(partial(corp.seen, client.id))
            assert [one["event"] for one in seen if one["event"].startswith("grant")] == ["grant.success"]
            assert [fault for fault in tab.faults if "401" not in fault] == []
            context.close()
