"use strict";
document.documentElement.classList.add("js");

/** Makes an element; children are elements or texts, and a text is never read as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

// ---- tables: a header sorts, once up and once down; what is empty comes last

const valueOf = (cell) => cell.dataset.v ?? cell.textContent.trim();

function compare(a, b) {
  if (a === "" || b === "") return 0;
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
}

function sort(table, header) {
  const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = Array.from(table.tBodies[0].rows, (row) => [valueOf(row.cells[header.cellIndex]), row]);
  rows.sort(([a], [b]) => (a === "") - (b === "") || sign * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = make("button", { type: "button" }, header.textContent);
    button.addEventListener("click", () => sort(table, header));
    header.replaceChildren(button);
  }
}

// ---- the filters of the big table

const scores = document.getElementById("table");
const form = document.querySelector(".filters");
const search = form.querySelector("input");
const selects = Array.from(form.querySelectorAll("select"), (select) => [
  select,
  scores.querySelector(`th[data-key="${select.dataset.key}"]`).cellIndex,
]);
const rows = Array.from(scores.tBodies[0].rows, (row) => [row, row.textContent.toLowerCase()]);

function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const [row, text] of rows) {
    const fits =
      words.every((word) => text.includes(word)) &&
      selects.every(([s, column]) => s.value === "" || s.value === valueOf(row.cells[column]));
    row.hidden = !fits;
    shown += fits;
  }
  form.querySelector(".shown").textContent = `${shown} of ${rows.length} rows shown`;
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter)); // the fields are emptied after the event
filter();

// ---- the runs behind a score

const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("runs");
const body = dialog.querySelector(".body");
const said = dialog.querySelector(".said");
const short = (value) => (Number.isInteger(value) ? value : Number(value).toPrecision(4));

function overview(runs) {
  const columns = [...new Set(runs.flatMap(([, run]) => Object.keys(run.scores)))];
  const metric = (run, split) =>
    Object.entries(run.scores[split] ?? {})
      .filter(([name]) => name !== "n")
      .map(([name, value]) => `${name} ${(100 * value).toFixed(1)}`)
      .join(", ") || "–";
  const names = ["seed", ...columns, "seconds", "run"];
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const lines = runs.map(([id, run]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, run.seed),
      ...columns.map((split) => make("td", {}, metric(run, split))),
      make("td", {}, run.seconds.train === undefined ? "–" : run.seconds.train.toFixed(1)),
      make("td", {}, make("code", {}, id)),
    ),
  );
  const caption = make("caption", {}, `${runs.length} ${runs.length === 1 ? "run" : "runs"}`);
  const table = make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...lines));
  return make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Runs" }, table);
}

function settings(run) {
  const own = { seed: run.seed, lr: run.lr, batch_size: run.batch_size };
  const all = { ...own, ...data.settings[run.settings] };
  return Object.keys(all)
    .sort()
    .map((key) => `${key}: ${key in own ? own[key] : data.texts[all[key]]}`)
    .join("\n");
}

function copy(line, node) {
  const choose = () => {
    getSelection().selectAllChildren(node);
    said.textContent = "The command is selected: press Ctrl+C.";
  };
  if (!navigator.clipboard) return choose();
  navigator.clipboard.writeText(line).then(() => (said.textContent = "Copied."), choose);
}

function runDetails(id, run, open) {
  const seconds = Object.entries(run.seconds).map(([name, value]) => `${name} ${value.toFixed(1)}`);
  const facts = {
    "learning rate": run.lr,
    "batch size": run.batch_size,
    "best epoch": run.epoch ?? "–",
    "chosen by": run.monitor,
    scores: Object.entries(run.scores)
      .map(([split, all]) => `${split}: ${Object.entries(all).map(([k, v]) => `${k} ${short(v)}`).join(", ")}`)
      .join("; "),
    seconds: seconds.join(", ") || "–",
    device: run.device ?? "–",
    folder: run.folder,
  };
  const list = Object.entries(facts).flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, v)]);
  const parts = [make("dl", {}, ...list)];
  if (run.command === null) {
    parts.push(make("p", {}, "Its record does not tell the command."));
  } else {
    const line = make("pre", { tabindex: 0 }, run.command);
    const button = make("button", { type: "button" }, "Copy the command");
    button.addEventListener("click", () => copy(run.command, line));
    parts.push(line, button);
  }
  const inner = make("details", {}, make("summary", {}, "Settings"));
  inner.addEventListener("toggle", () => {
    if (inner.children.length === 1) inner.append(make("pre", { tabindex: 0 }, settings(run)));
  });
  const summary = make("summary", {}, `Seed ${run.seed}: ${id}`);
  return make("details", { class: "run", ...(open && { open: "" }) }, summary, ...parts, inner);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".opener");
  if (button === null) return;
  const runs = button.dataset.runs.split(" ").map((id) => [id, data.runs[id]]);
  runs.sort(([, a], [, b]) => a.seed - b.seed);
  dialog.querySelector("h2").textContent = button.dataset.title;
  body.replaceChildren(overview(runs), ...runs.map(([id, run], i) => runDetails(id, run, i === 0)));
  said.textContent = "";
  dialog.showModal();
  dialog.scrollTop = 0;
});

dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});
