from __future__ import annotations

import base64
import copy
import hashlib
import json
import shutil
import statistics
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy import stats as scipy_stats

from ilkd_bench import report
from ilkd_bench.reporting.tables.grid import DASH
from ilkd_bench.settings import groups, identity
from ilkd_bench.settings.schema import SCHEMA

HOSTILE = "<script>alert(1)</script>|&%_'\"$x"


def record(
    method: str = "pkd",
    task: str = "mrpc",
    seed: int = 0,
    dev: float = 0.8,
    *,
    teacher: str = "big",
    lr: float = 1e-5,
    status: str = "done",
    **other: Any,
) -> dict[str, Any]:
    """A made-up record whose id fits its settings; `other` replaces fields of the record."""
    config = {
        "teacher": {"name": teacher},
        "student": {"name": "small"},
        "method": groups.defaults("method", method) or {"name": method},
        "task": {"name": task, "metric": "accuracy", "ood": {"paws": {"metric": "accuracy"}}},
        "data": {"train": "t", "dev": "d"},
        "seed": seed,
        "lr": lr,
        "batch_size": 32,
        "epochs": 3,
        "max_length": 128,
        "precision": "32-true",
        "limit_train": None,
        "limit_eval": None,
    }
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "id": identity.run_id(config),
        "status": status,
        "reason": None if status == "done" else "because",
        "argv": [f"method={method}", f"task={task}", f"seed={seed}"],
        "config": config,
    }
    if status == "done":
        found |= {
            "scores": {"dev": {"accuracy": dev, "f1": dev / 2, "n": 400}},
            "monitor": "dev/accuracy",
            "teacher": {"key": "k", "dev": {"accuracy": 0.9, "n": 400}},
            "seconds": {"train": 10.0 + seed, "teacher": 1.0, "evaluate": 2.0},
            "examples_per_second": 100.0,
            "device": "cpu: x, 1 threads",
            "versions": {"python": "3.11.7"},
        }
    return found | other


def put(results: Path, records: list[dict[str, Any]]) -> Path:
    for number, one in enumerate(records):
        folder = results / "runs" / "t" / "p" / "m" / f"s0-{one['id']}-{number}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(one), encoding="utf-8")
    return results


class Page(HTMLParser):
    """What a browser would read: visible text, scripts, and attributes by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside is None:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def written(results: Path) -> str:
    assert report.main(["--results-dir", str(results)]) == 0
    return (results / "report" / "index.html").read_text(encoding="utf-8")


def read(results: Path) -> Page:
    return Page(written(results))


# ------------------------------------------------------------------------------- in words


def test_the_summary_names_the_best_method_how_sure_and_its_cost(tmp_path: Path) -> None:
    pkd, vanilla = [0.80, 0.81, 0.83], [0.70, 0.72, 0.72]
    records = [record("pkd", seed=s, dev=v) for s, v in enumerate(pkd)]
    records += [record("vanilla", seed=s, dev=v) for s, v in enumerate(vanilla)]
    records += [
        record("finetune", seed=s, dev=v, examples_per_second=125.0)
        for s, v in enumerate([0.79, 0.83, 0.81])
    ]
    text = read(put(tmp_path, records)).text
    mean, spread = 100 * statistics.mean(pkd), 100 * statistics.stdev(pkd)
    assert (
        f"pkd has the best mean: {mean:.1f} ± {spread:.1f} over 3 seeds; the teacher scores 90.0."
    ) in text
    assert "Better than vanilla. Not distinguishable from finetune." in " ".join(text.split())
    assert "no clear winner" in text
    test = scipy_stats.ttest_rel(pkd, vanilla)
    low, high = (100 * end for end in test.confidence_interval(0.95))
    other = scipy_stats.ttest_rel([0.79, 0.83, 0.81], vanilla)
    assert test.pvalue < other.pvalue  # so that Holm's correction doubles it
    assert f"p {2 * test.pvalue:.3f} over seeds, corrected): the difference counts." in text
    assert f"Against vanilla: +{mean - 100 * statistics.mean(vanilla):.1f} points" in text
    assert f"[+{low:.1f}, +{high:.1f}]" in text
    assert "It trains at 0.80 times the speed of finetune." in text
    assert "With 3 seeds only large differences can be found." in text


def test_a_clear_winner_is_told_and_one_seed_is_not(tmp_path: Path) -> None:
    sure = [record("pkd", seed=s, dev=0.8 + s / 1000) for s in range(5)]
    sure += [record("alp", seed=s, dev=0.6 + s * s / 1000) for s in range(5)]
    sure += [record("pkd", "rte", dev=0.8), record("alp", "rte", dev=0.6)]
    text = read(put(tmp_path, sure)).text
    assert "mrpc dev accuracy clear winner" in text
    assert "Better than every other method, after correction for their number." in text
    assert "rte dev accuracy not tested" in text
    assert "With 1 seed nothing can be said about chance: run more seeds." in text


def test_equal_scores_have_no_best(tmp_path: Path) -> None:
    records = [record(m, seed=s, dev=0.75) for m in ("pkd", "alp", "vanilla") for s in range(3)]
    text = read(put(tmp_path, records)).text
    assert "All 3 methods score 75.0" in text
    assert "clear winner" not in text.replace("no clear winner", "")


def test_methods_without_shared_seeds_are_said_to_be_untested(tmp_path: Path) -> None:
    records = [record("pkd", seed=s, dev=0.8 + s / 100) for s in range(2)]
    records += [record("alp", seed=s, dev=0.7 + s / 90) for s in range(2, 4)]
    assert "Not tested against alp:" in read(put(tmp_path, records)).text


def test_the_cost_is_not_told_across_devices(tmp_path: Path) -> None:
    records = [record("pkd"), record("finetune", dev=0.7, device="cuda: y")]
    text = read(put(tmp_path, records)).text
    assert "its cost is not told" in text.lower()
    assert "times the speed" not in text


# ------------------------------------------------------------------------------- escaping


def test_text_from_records_is_text_in_the_page(tmp_path: Path) -> None:
    names = {"method": HOSTILE, "task": HOSTILE, "teacher": HOSTILE}
    records = [record(seed=s, dev=0.7 + s / 50, **names, device=HOSTILE) for s in range(2)]
    records.append(record(seed=2, status="failed", reason=HOSTILE, **names))
    records[0]["argv"] = [HOSTILE]
    records[1]["versions"] = {HOSTILE: HOSTILE}
    records[1]["config"]["extra"] = HOSTILE
    records[1]["id"] = identity.run_id(records[1]["config"])
    results = put(tmp_path, records)
    (failed,) = results.glob("runs/*/*/*/*-2")
    (failed / "error.txt").write_text(f"Traceback\n{HOSTILE}\n")
    page = read(results)
    assert len(page.scripts) == 2, "a script got in, or one ended early"
    assert page.text.count(HOSTILE) >= 8
    assert f"This version has no task named {HOSTILE}; its runs are shown." in page.text
    assert f"This version has no method named {HOSTILE}; its runs are shown." in page.text
    data = json.loads(page.scripts[0])
    assert any(HOSTILE in text for text in map(json.loads, data["texts"]) if isinstance(text, str))
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_the_only_script_that_may_run_is_the_one_of_the_page(tmp_path: Path) -> None:
    page = read(put(tmp_path, [record()]))
    (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:", "#")), (tag, address)


def test_half_a_letter_does_not_break_the_page(tmp_path: Path) -> None:
    assert "\\ud800" in written(put(tmp_path, [record(status="failed", reason="odd \ud800")]))


# ------------------------------------------------------------------------------ bad input


def test_every_bad_record_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    good = record(seed=0, dev=0.81)
    old = record(seed=1) | {"schema": 0}
    edited = record(seed=2)
    edited["config"]["lr"] = 7
    nan = record(seed=3)
    nan["scores"]["dev"]["accuracy"] = float("nan")
    twice = copy.deepcopy(good)
    lacking = record(seed=4)
    del lacking["scores"]["dev"]["accuracy"]
    results = put(tmp_path, [good, old, edited, nan, twice, lacking])
    cut = results / "runs" / "t" / "p" / "m" / "s9-cut"
    cut.mkdir()
    (cut / "record.json").write_text('{"schema": 1, "status": "do')
    text = read(results).text
    for number, why in (
        (1, "its schema is 0"),
        (2, "its settings do not give its id"),
        (3, "its score dev/accuracy is no number"),
        (4, f"it has the id of runs/t/p/m/s0-{good['id']}-0"),
        (5, "it lacks the score that chose its epoch"),
    ):
        (name,) = [path.name for path in cut.parent.glob(f"*-{number}")]
        assert f"runs/t/p/m/{name}: not used, {why}" in text
    assert "runs/t/p/m/s9-cut: not used, it is no JSON" in text
    assert "6 not readable" in text
    assert "81.0 (1)" in text


def test_with_bad_records_alone_the_page_names_them(tmp_path: Path) -> None:
    text = read(put(tmp_path, [record() | {"schema": 0}])).text
    assert "No run is done, so there are no scores." in text
    assert "its schema is 0" in text


def test_without_records_the_message_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main(["--results-dir", str(tmp_path)]) == 2
    assert "python -m ilkd_bench.run" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


@pytest.mark.runs
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", [1, 2]),
        ("seconds", {"train": float("nan")}),
        ("examples_per_second", float("inf")),
        ("examples_per_second", "fast"),
        ("versions", ["torch"]),
        ("git", "abc"),
        ("device", {"a": 1}),
        ("argv", None),
        ("argv", [1, None]),
        ("best_epoch", "third"),
        ("precision", None),
    ],
)
def test_an_odd_field_costs_only_itself(tmp_path: Path, field: str, value: Any) -> None:
    page = read(put(tmp_path, [record() | {field: value}, record("alp", dev=0.7)]))
    assert "80.0 (1)" in page.text
    assert len(json.loads(page.scripts[0])["runs"]) == 2


def test_unfinished_runs_are_listed_with_reason_command_and_traceback(tmp_path: Path) -> None:
    states = ("failed", "skipped", "running")
    lost = [record(seed=s, status=state) for s, state in enumerate(states, 1)]
    results = put(tmp_path, [record(), *lost])
    (failed,) = results.glob("runs/*/*/*/*-1")
    (failed / "error.txt").write_text("\n".join(f"line {n}" for n in range(100)))
    text = read(results).text
    assert "1 run done 1 stopped 1 failed 1 skipped" in text
    assert text.count("because") >= 3
    assert "python -m ilkd_bench.run method=pkd task=mrpc seed=1" in text
    assert "line 99" in text
    assert "line 69" not in text  # the last thirty lines


def test_a_missing_score_is_a_gap_with_the_command_that_fills_it(tmp_path: Path) -> None:
    records = [record(m, t, s) for m in ("pkd", "alp") for t in ("mrpc", "rte") for s in range(3)]
    del records[-3:]  # alp on rte
    del records[2]  # pkd on mrpc, seed 2
    text = read(put(tmp_path, records)).text
    assert "python -m ilkd_bench.run -m method=pkd task=mrpc seed=2" in text
    assert "alp rte big -> small 0, 1, 2 no run at all" in text


def test_settings_that_were_not_chosen_are_told(tmp_path: Path) -> None:
    records = [record(dev=0.7, lr=1e-5), record(dev=0.8, lr=2e-5)]
    text = read(put(tmp_path, records)).text
    assert "that were tried (2)" in text
    assert "pkd mrpc big -> small 2e-05 32 80.0 1 chosen" in text
    assert "pkd mrpc big -> small 1e-05 32 70.0 1" in text


def test_settings_of_one_pair_are_told_apart(tmp_path: Path) -> None:
    other = record(dev=0.6)
    other["config"]["epochs"] = 9
    other["id"] = identity.run_id(other["config"])
    text = read(put(tmp_path, [record(), other])).text
    assert text.count("big -> small, setting ") >= 4
    assert "epochs=9" in text


# ---------------------------------------------------------------------------- whole pages


def test_the_page_is_the_same_bytes_whatever_the_order_of_writing(tmp_path: Path) -> None:
    records = [
        record(m, "rte", s, 0.7 + s / 50, lr=lr)
        for m in ("pkd", "alp")
        for s in range(2)
        for lr in (1e-5, 2e-5)
    ]
    pages = []
    for name, order in (("a", records), ("b", records[::-1])):
        results = tmp_path / name / "results"
        for one in order:
            folder = results / "runs" / "t" / "p" / "m" / f"s0-{one['id']}"
            folder.mkdir(parents=True)
            (folder / "record.json").write_text(json.dumps(one))
        pages.append(written(results))
    assert pages[0] == pages[1] == written(results)


def test_figures_are_inside_the_page(tmp_path: Path) -> None:
    results = put(tmp_path, [record()])
    assert "make figures" in read(results).text
    (results / "figures").mkdir()
    (results / "figures" / "time--a.svg").write_bytes(b"<svg><script>x</script></svg>")
    titled = "<title>A &lt;b&gt;\n &amp; c</title>"
    (results / "figures" / "ood.svg").write_text(f"<svg>{titled}</svg>")
    page = read(results)
    first, second = [a for tag, a in page.elements if tag == "img"]
    assert str(first["alt"]).startswith("A <b> & c. ")
    assert str(second["alt"]).startswith("time, a. ")
    content = base64.b64decode(str(second["src"]).partition("base64,")[2])
    assert content == b"<svg><script>x</script></svg>"


def test_every_run_behind_a_score_is_in_the_page(tmp_path: Path) -> None:
    records = [record(m, seed=s, dev=0.7) for m in ("pkd", "alp") for s in range(3)]
    page = read(put(tmp_path, records))
    behind = {
        one
        for _, attributes in page.elements
        for one in str(attributes.get("data-runs") or "").split()
    }
    assert behind == {one["id"] for one in records}
    data = json.loads(page.scripts[0])
    told = data["runs"][records[0]["id"]]
    assert told["command"] == "python -m ilkd_bench.run method=pkd task=mrpc seed=0"
    assert told["scores"] == records[0]["scores"]
    chosen = {
        key: json.loads(data["texts"][n]) for key, n in data["settings"][told["settings"]].items()
    }
    own = {key: told[key] for key in ("seed", "lr", "batch_size")}
    assert chosen | own == records[0]["config"]


# ------------------------------------------------------------------------------ a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with two tasks, a hostile name, a failure, a figure and a grid of settings."""
    results = tmp_path_factory.mktemp("shown")
    pair = "x" * 60
    scores = {"pkd": 0.80, "alp": 0.70, "vanilla": 0.65, HOSTILE: 0.60}
    records = [
        record(m, t, s, v + s / 100, teacher=pair)
        for m, v in scores.items()
        for t in ("mrpc", "rte")
        for s in range(3)
    ]
    records += [
        record("pkd", "mrpc", 0, 0.5, lr=2e-5, teacher=pair),
        record("pkd", seed=9, status="failed"),
    ]
    put(results, records)
    (results / "figures").mkdir()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300"><rect width="9"/></svg>'
    (results / "figures" / "time.svg").write_text(svg)
    written(results)
    return f"file://{results}/report/index.html"


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """The page in a browser; at the end nothing was said on the console and nothing was asked."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    page.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]


def column(page: Any, number: int) -> list[str]:
    rows = page.locator("#table tbody tr:not([hidden])")
    return [row.locator("th, td").nth(number).inner_text() for row in rows.all()]


@pytest.mark.browser
def test_headers_sort_both_ways(opened: Any) -> None:
    header = opened.locator("#table thead th").nth(3)
    scores = column(opened, 3)
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(opened, 3) == sorted(scores)
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert column(opened, 3) == sorted(scores, reverse=True)
    difference = opened.locator("#table thead th").nth(5)
    for order in ("ascending", "descending"):
        difference.get_by_role("button").click()
        assert column(opened, 5)[-2:] == [DASH, DASH], order  # the best of both tasks
    assert header.get_attribute("aria-sort") is None


@pytest.mark.browser
def test_filters_narrow_the_table_and_say_so(opened: Any) -> None:
    status = opened.locator(".shown")
    assert status.inner_text() == "8 of 8 rows shown"
    opened.get_by_role("combobox", name="Task").select_option("rte")
    assert column(opened, 1) == ["rte"] * 4
    (hostile,) = [name for name in column(opened, 0) if HOSTILE in name]
    opened.get_by_role("combobox", name="Method").select_option(hostile)
    assert column(opened, 0) == [hostile]
    assert status.inner_text() == "1 of 8 rows shown"
    opened.get_by_role("button", name="Reset").click()
    opened.get_by_label("Search").fill("PKD mrpc")
    assert (column(opened, 0), column(opened, 1)) == (["pkd"], ["mrpc"])


@pytest.mark.browser
def test_a_score_opens_its_runs_and_the_keyboard_suffices(opened: Any) -> None:
    button = opened.locator("#table .opener").first
    button.focus()
    opened.keyboard.press("Enter")
    dialog = opened.get_by_role("dialog")
    assert dialog.is_visible()
    assert dialog.get_by_role("heading").inner_text().startswith("pkd, mrpc dev")
    text = dialog.inner_text()
    assert "3 runs" in text
    assert "python -m ilkd_bench.run method=pkd task=mrpc seed=0" in text
    dialog.get_by_text("Settings").first.click()
    dialog.get_by_text('"name": "pkd"').first.wait_for()  # filled in once it is open
    opened.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert button.evaluate("element => element === document.activeElement")


@pytest.mark.browser
def test_a_hostile_name_is_text_in_the_dialog(opened: Any) -> None:
    opened.locator("#table .opener").last.click()
    dialog = opened.get_by_role("dialog")
    assert HOSTILE in dialog.get_by_role("heading").inner_text()
    assert dialog.locator("script").count() == 0
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


@pytest.mark.browser
def test_the_command_is_copied_or_selected(opened: Any) -> None:
    opened.locator("#table .opener").first.click()
    opened.get_by_role("button", name="Copy the command").first.click()
    opened.wait_for_function("document.querySelector('.said').textContent !== ''")
    assert opened.locator(".said").inner_text() in (
        "Copied.",
        "The command is selected: press Ctrl+C.",
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_makes_the_page_itself_scroll_sideways(opened: Any, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    for summary in opened.locator("main details > summary").all():
        summary.click()
    opened.locator("#table .opener").first.click()
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate("document.getElementById('runs').scrollWidth") <= width


CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(opened: Any, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: contrast of text of at least 4.5."""
    opened.emulate_media(color_scheme=scheme)
    for summary in opened.locator("main details > summary").all():
        summary.click()
    assert opened.evaluate(CONTRAST) == []
    opened.locator("#table .opener").first.click()
    assert opened.evaluate(CONTRAST) == []
    back = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.browser
def test_a_screen_reader_finds_its_way(opened: Any) -> None:
    assert opened.locator("html").get_attribute("lang") == "en"
    assert opened.locator("h1").count() == 1
    levels = opened.evaluate(
        "Array.from(document.querySelectorAll('main h2, main h3, main h4'), e => +e.tagName[1])"
    )
    assert all(after <= before + 1 for before, after in zip([1, *levels], levels, strict=False))
    assert opened.locator("table:not(:has(caption))").count() == 0
    assert opened.locator("th:not([scope])").count() == 0
    assert opened.locator("img:not([alt])").count() == 0
    ids = opened.evaluate("Array.from(document.querySelectorAll('[id]'), e => e.id)")
    assert len(ids) == len(set(ids))
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the summary"


@pytest.mark.browser
def test_without_javascript_the_tables_are_there(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#table tbody tr").count() == 8
    assert page.get_by_text("Without JavaScript").is_visible()
    assert not page.locator(".filters").is_visible()
    context.close()
