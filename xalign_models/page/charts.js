// Views that are charts, what is published, and the notes.
function DifferencesView({ rows, column, state }) {
  const scored = rows.map((row) => ({ row, cell: cellOf(row, column) }));
  const tested = scored.filter(({ cell }) => cell && cell.difference !== null);
  if (!tested.length) return html`<p>No aligned model in this choice was scored on this task.</p>`;
  const name = ({ row }) => rowName(row);
  const verdict = ({ cell }) =>
    cell.mark ? cell.verdict : cell.difference > 0 ? "better" : "worse";
  const between = ({ interval }) => (interval ? ` [${interval.map(points).join(", ")}]` : "");
  const title = ({ row, cell }) => `${rowName(row)}: ${points(cell.difference)}${between(cell)}`;
  const order = sorted(tested, { down: true }, ({ cell }) => cell.difference);
  return html`<p class="lead">The change by each alignment on ${DATA.columns[column].name}, in points against its unaligned backbone, with 95% intervals. <b>Better</b> and <b>worse</b> hold for other sentences and other languages; <b>untested over languages</b>: these languages are too few to say so, and the interval is over sentences alone. Grey: may be chance after Holm's correction over the board, even where a single interval excludes zero.${others(state)}</p>
    <${Chart} label=${`Differences on ${DATA.columns[column].name}`} deps=${[rows, column]} make=${(width) => {
      const margin = Math.min(width * 0.5, 420),
        narrow = width < 640; // labels in two lines: the alignment, and its backbone
      const short = (text) => (text.length * 6.5 > margin ? text.slice(0, margin / 6.5 - 1) + "…" : text);
      return {
        width,
        height: 74 + (narrow ? 34 : 20) * order.length,
        marginLeft: margin,
        marginBottom: 44, // the label is below the ticks
        x: { label: "points against plain →", grid: true, axis: "both" },
        y: { domain: order.map(name), label: null, tickFormat: (text) => (narrow ? text.split(" · ") : [text]).map(short).join("\n") },
        color: {
          domain: ["better", "worse", ...DATA.tests.slice(1)],
          range: ["#2a9d5c", "#d1495b", "#d98e04", "#8a8f98", "#b8bcc4"],
          legend: true,
        },
        marks: [
          ruleX([0]),
          link(
            order.filter(({ cell }) => cell.interval),
            { x1: (d) => d.cell.interval[0], x2: (d) => d.cell.interval[1], y1: name, y2: name, stroke: verdict, strokeWidth: 2 },
          ),
          dot(order, { x: (d) => d.cell.difference, y: name, fill: verdict, r: 4, title, tip: true }),
        ],
      };
    }} />`;
}

// How many rows are left out, because their means are over other languages.
const others = (state) => {
  const left = DATA.rows.filter(({ board, apart }) => apart && board === (state.rows ? 1 : 0)).length;
  return left ? ` Left out: ${counted(left, "row")} scored on other languages, which the board shows in blocks of their own.` : "";
};
const COSTS = {
  parameters: "parameters",
  dimensions: "dimensions of the vector",
  tokens_per_second: "tokens per second, measured",
  fit_seconds_per_language: "seconds to fit a language, measured",
};
function TradeView({ rows, column, state, change }) {
  // What a model costs on this task; what was not measured for it is its unaligned backbone's.
  const costOf = (row, cost) =>
    [row, baselineOf(row)]
      .map((one) => (one < 0 ? null : cellOf(one, column)))
      .map((cell) => cell && (cell.model[cost] || cell.machine[cost]))
      .find((value) => value > 0);
  const known = (cost) => rows.filter((row) => cellOf(row, column) && costOf(row, cost));
  const cost = known(state.cost).length ? state.cost : Object.keys(COSTS).find((one) => known(one).length);
  const choices = Object.entries(COSTS)
    .filter(([key]) => known(key).length)
    .map(([key, shown]) => [key, `${shown} (${counted(known(key).length, "model")})`]);
  if (!cost) return html`<p>No model in this choice says how large or how fast it is.</p>`;
  const less = cost !== "tokens_per_second";
  const spots = known(cost).map((row) => ({ row, x: costOf(row, cost), y: cellOf(row, column).score }));
  const frontier = [];
  for (const spot of [...spots].sort((a, b) => (less ? a.x - b.x : b.x - a.x) || b.y - a.y))
    if (!frontier.length || spot.y > frontier.at(-1).y) frontier.push(spot);
  const group = ({ row }) => DATA.rows[row].group;
  const title = ({ row, x, y }) => `${rowName(row)}\n${percent(y)} %, ${x.toLocaleString("en")} ${COSTS[cost]}`;
  return html`<p class="lead">Quality on ${DATA.columns[column].name} against ${COSTS[cost]}, all over the same languages. The line joins the models that no other model beats on both.${others(state)}</p>
    <${Choice} label="Against" wide value=${cost} options=${choices} onChange=${(value) => change({ cost: value })} />
    <${Chart} label="Trade-off" deps=${[rows, column, cost]} make=${(width) => ({
      width,
      height: Math.min(520, Math.max(320, width * 0.6)),
      inset: 24,
      marginTop: 30,
      marginBottom: 44,
      grid: true,
      x: { type: "log", label: COSTS[cost] + " →", tickFormat: cost === "fit_seconds_per_language" ? "~g" : "~s", ticks: 5 },
      y: { label: "↑ percent" },
      symbol: { legend: true }, // there are fewer colours than backbones
      marks: [
        line(frontier, { x: "x", y: "y", stroke: "currentColor", strokeOpacity: 0.4, curve: less ? "step-after" : "step-before" }),
        dot(spots, { x: "x", y: "y", fill: group, symbol: group, r: 5, title, tip: true }),
        text(frontier, { x: "x", y: "y", text: ({ row }) => labelOf(row), dy: -12, fill: "currentColor" }),
      ],
    })} />`;
}

// The means of a column's task that the papers print.
function printedFor(column) {
  const { task, name } = DATA.columns[column],
    direction = name.slice(DATA.tasks[task].name.length + 1);
  return DATA.published.filter(
    (one) => one.task === task && one.mean !== null && (!direction || one.column.endsWith(direction)),
  );
}

function PublishedView({ rows, column }) {
  const { name } = DATA.columns[column];
  const printed = printedFor(column);
  if (!printed.length)
    return html`<p>No paper prints a mean over the same languages for ${name}. Single languages, where there are any, stand below the models in the view by language.</p>`;
  const ours = rows
    .filter((row) => cellOf(row, column))
    .map((row) => ({ name: rowName(row), score: cellOf(row, column).score, kind: "measured" }));
  const all = sorted(
    [...ours, ...printed.map((one) => ({ name: one.column, score: one.mean, kind: "published" }))],
    { down: true },
    ({ score }) => score,
  );
  return html`<p class="lead">${name}: what was measured here beside what the papers print (in brackets, which paper). Models and settings differ, so compare within a kind first.</p>
    <${Grid} caption="Measured and published" corner="system" heads=${["percent", "kind"]} rows=${all.map(
      (one, index) => ({
        key: index,
        id: -1,
        head: html`<bdi>${one.name}</bdi>`,
        cells: [
          html`<td tabindex="-1" class="bar"><i style=${`inline-size:${Math.max(0, one.score) * 0.75}%`} class=${one.kind}></i>${percent(one.score)}</td>`,
          html`<td tabindex="-1">${one.kind}</td>`,
        ],
      }),
    )} />`;
}

function NotesView() {
  return html`${DATA.legend.map(([title, lines]) => html`<h2>${title}: what is shown</h2><ul>${lines.map((line) => html`<li><bdi>${line}</bdi></li>`)}</ul>`)}
    <h2>Tasks</h2><dl>${DATA.tasks.map((task) => html`<dt><bdi>${task.name}</bdi></dt><dd><bdi>${task.description || "No description."}</bdi>${task.type ? html` <small>${[task.type, ...(task.domains || [])].join(", ")}</small>` : ""}</dd>`)}</dl>
    <h2>Keys</h2><p><kbd>Tab</kbd> goes from control to control; in a table the arrow keys, <kbd>Home</kbd> and <kbd>End</kbd> move, <kbd>Enter</kbd> opens a cell or sorts by a head, <kbd>Esc</kbd> closes.</p>
    <details><summary>Libraries in this page, and their licences</summary><pre>${document.getElementById("licences").textContent}</pre></details>`;
}
