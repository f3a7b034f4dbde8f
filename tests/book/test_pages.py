"""Every built page in a real browser with the network cut: light, dark, and on a phone."""

import contextlib
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from playwright.sync_api import Browser, Page, Route, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
AXE = ROOT / "_build" / "axe.min.js"
CHROMIUM = "/usr/bin/chromium" if Path("/usr/bin/chromium").exists() else shutil.which("chromium")
QUIET = "no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update disable-sync"
VIEWS = {"light": ("light", 1280), "dark": ("dark", 1280), "phone": ("light", 390)}


def expected_pages() -> list[str]:
    """The pages that the table of contents promises."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


PAGES = expected_pages()
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: the pages are not tested (Debian: apt install chromium)"),
    pytest.mark.skipif(not HTML.exists(), reason="the book is not built: make book"),
]


@cache
def read(path: str) -> str:
    return (HTML / path).read_text(encoding="utf-8")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in QUIET.split()])
        yield chromium
        chromium.close()


@contextlib.contextmanager
def opened(browser: Browser, address: str, view: str) -> Iterator[tuple[Page, list[str]]]:
    """A page whose requests beyond this machine are refused, and the list of everything that went wrong on it."""
    scheme, width = VIEWS[view]
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(60_000)
    page, wrong = context.new_page(), []

    def refuse(route: Route) -> None:
        wrong.append(f"asks for {route.request.url}")
        route.abort()

    context.route(lambda url: not url.startswith(("http://127.0.0.1", "data:", "blob:")), refuse)
    page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    page.on("console", lambda message: wrong.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.goto(address, wait_until="load")
    page.evaluate("async () => { if (window.MathJax?.startup) await MathJax.startup.promise }")
    yield page, wrong
    context.close()


# What is wrong with the contents of a page, as a list of sentences.
INSPECT = """async () => {
  const wrong = [];
  const article = document.querySelector("article.bd-article");
  if (!article || article.innerText.trim().length < 100) wrong.push("hardly any text");
  if (document.querySelector(".output.traceback, .output.stderr")) wrong.push("an error or a warning in an output");
  for (const math of document.querySelectorAll(".math"))
    if (!math.querySelector("mjx-container")) wrong.push("formula not set: " + math.textContent.slice(0, 60));
  for (const bad of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
    wrong.push("bad formula: " + bad.textContent);
  for (const image of article.querySelectorAll("img"))
    if (!image.complete || !image.naturalWidth) wrong.push("no picture: " + image.src);
    else if (!image.alt) wrong.push("picture without alt text: " + image.src);
  for (const plot of document.querySelectorAll("figure.bk-plot")) {
    plot.scrollIntoView();
    for (let i = 0; i < 200 && plot.dataset.state !== "drawn"; i++) await new Promise((go) => setTimeout(go, 100));
    const drawn = plot.querySelector(".main-svg .plot, .main-svg .pie, .main-svg .trace");
    if (!drawn) wrong.push("empty plot: " + plot.innerText.slice(0, 60));
  }
  for (const figure of document.querySelectorAll("article figure")) {
    const parts = [...figure.children].filter((part) => part.localName !== "figcaption");
    const seen = parts.some((part) => part.clientWidth > 20 && part.clientHeight > 4);
    if (!seen || !parts.some((part) => part.matches("img, pre") || part.childElementCount))
      wrong.push("empty figure: " + figure.outerHTML.slice(0, 80));
  }
  for (const cell of document.querySelectorAll(".cell_output"))
    if (!cell.innerText.trim() && !cell.querySelector("svg, img, canvas, input")) wrong.push("empty output");
  for (const widget of document.querySelectorAll("script[type='application/vnd.jupyter.widget-view+json']"))
    if (!widget.parentElement.querySelector(".jupyter-widgets")) wrong.push("a widget did not appear");
  if (document.documentElement.scrollWidth > window.innerWidth)
    wrong.push(`wider than the window: ${document.documentElement.scrollWidth} > ${window.innerWidth}`);
  return wrong;
}"""

# Serious findings of axe in the article, which is our own markup. Made by others: the frame around it, widgets, lists
# of citations, and the switches of hidden cells.
ACCESSIBLE = """async () => {
  const exclude = [".jupyter-widgets", ".citation-list", "details.hide > summary"];
  const found = await axe.run({ include: ["article.bd-article"], exclude });
  return found.violations.filter((v) => ["serious", "critical"].includes(v.impact))
    .map((v) => `${v.id}: ${v.help} (${v.nodes.length}x, first ${v.nodes[0].html.slice(0, 160)})`);
}"""


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", PAGES)
def test_page(browser: Browser, site: str, name: str, view: str) -> None:
    """No request leaves the site, nothing fails, nothing is empty, nothing overflows, axe finds nothing serious."""
    with opened(browser, f"{site}/{name}.html", view) as (page, wrong):
        wrong += page.evaluate(INSPECT)
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        wrong += page.evaluate(ACCESSIBLE)
        page.wait_for_timeout(100)
    assert not wrong, "\n".join(wrong)


def test_every_expected_page_and_no_other_was_built() -> None:
    built = {path.stem for path in HTML.glob("*.html")} - {"genindex", "search", "py-modindex"}
    assert built == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """Relative links and sources of a page exist, anchors included."""
    dead = []
    for link in set(re.findall(r'(?:href|src)="([^"]+)"', read(name + ".html"))):
        target, _, anchor = link.partition("#")
        target = unquote(target.partition("?")[0]) or f"{name}.html"
        if re.match(r"[a-z]+:|//", link):
            continue
        if not (HTML / target).exists() or (anchor and f'id="{unquote(anchor)}"' not in read(target)):
            dead.append(link)
    assert not dead, f"dead links on {name}: {sorted(dead)}"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_light(name: str) -> None:
    assert (HTML / f"{name}.html").stat().st_size < 500_000, "a page this heavy is slow on a phone"


def test_the_test_sees_a_request_that_leaves_the_site(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/{PAGES[0]}.html", "light") as (page, wrong):
        page.evaluate("() => fetch('https://example.org/').catch(() => 0)")
    assert any("example.org" in sentence for sentence in wrong)


def test_theme_switch_reaches_the_figures(browser: Browser, site: str) -> None:
    """Switching between light and dark changes the page's own colours without an error."""
    with opened(browser, f"{site}/library.html", "light") as (page, wrong):
        colour = "getComputedStyle(document.querySelector('.lib-package')).fill"
        before = page.evaluate(colour)
        page.evaluate("() => { document.documentElement.dataset.theme = 'dark' }")
        assert page.evaluate(colour) != before
    assert not wrong
