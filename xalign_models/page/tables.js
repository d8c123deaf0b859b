// Views that are tables: the board with its details, languages, pairs.
function ScoreCell({ cell, row, column, mode }) {
  const place = { "data-row": row, "data-column": column, tabindex: -1 };
  if (!cell) return html`<td ...${place} class="none">–</td>`;
  const direction = !isSure(cell) ? "chance" : cell.difference > 0 ? "up" : "down";
  const change = cell.difference === null ? "" : direction;
  const part = cell.other_text ? " ≠" : cell.covered ? ` ${cell.covered}/${cell.of}` : "";
  const small = (cell.difference === null ? "" : points(cell.difference) + (cell.mark ?? "")) + part;
  const same = cell.same == null ? "" : `same ${points(cell.same)}`;
  const lead = mode === "difference" ? small || "–" : percent(cell.score) + (cell.fitted ? "†" : "");
  return html`<td ...${place} class=${`${cell.best ? "best" : ""} ${cell.tied ? "tied" : ""} ${mode === "difference" ? change : ""}`}>
    <b>${lead}</b>${mode === "difference" ? "" : small && html`<small class=${change}>${small}</small>`}${same && html`<small>${same}</small>`}
</td>`;
}

// Rows in an order of `ordering`: by the values of a column, or by their names.
function sorted(rows, sort, value, name) {
  if (!sort) return rows;
  const key = (row) => (sort.column < 0 ? name(row) : value(row, sort.column));
  return [...rows].sort((a, b) => {
    const x = key(a),
      y = key(b);
    if (x == null || y == null) return (x == null) - (y == null);
    return (typeof x === "string" ? x.localeCompare(y) : x - y) * (sort.down ? -1 : 1);
  });
}

// Rows under the titles of their backbones; in one list, with the backbone beside the name, once sorted.
function lines(rows, sort, cells) {
  const head = (row) =>
    html`<bdi>${labelOf(row)}</bdi>${DATA.rows[row].prompt && html`<small>prompt: <bdi>${DATA.rows[row].prompt}</bdi></small>`}${sort ? html`<small><bdi>${DATA.rows[row].group}</bdi></small>` : ""}`;
  const made = [];
  let group = null;
  for (const row of rows) {
    const { group: own, note } = DATA.rows[row];
    if (!sort && own !== group) made.push({ title: (group = own), note, key: `group ${group}` });
    made.push({ key: row, id: row, head: head(row), cells: cells(row) });
  }
  return made;
}

function BoardView({ rows, columns, state, change, open }) {
  const label = state.language === "" ? null : Number(state.language);
  const cell = (row, column) => {
    if (label === null) return cellOf(row, column);
    const { task, name } = DATA.columns[column],
      heading = name.slice(DATA.tasks[task].name.length + 1);
    const score = inLanguage(row, task, label, heading);
    const [base, kind] = plainOf(row, task) ?? [];
    const plain = base === undefined ? null : inLanguage(base, task, label, heading, kind);
    return score === null ? null : { score, difference: plain === null ? null : score - plain };
  };
  const kept = label === null ? columns : columns.filter((column) => rows.some((row) => cell(row, column)));
  const [sort, turn] = ordering({ state, change }, kept.map((column) => DATA.columns[column].name));
  const having = rows.filter((row) => kept.some((column) => cell(row, column)));
  const value = (row, at) => cell(row, kept[at])?.[state.mode === "difference" ? "difference" : "score"];
  const order = sorted(having, sort, value, labelOf);
  const shownCell = (row, column) =>
    html`<${ScoreCell} cell=${cell(row, column)} row=${row} column=${column} mode=${state.mode} key=${column} />`;
  const shown = lines(order, sort, (row) => kept.map((column) => shownCell(row, column)));
  const where = label === null ? "the mean over the languages that a column's rows share" : languageName(label);
  const head = (column) => {
    const { name, shared, all } = DATA.columns[column],
      count = shared[rows.length ? DATA.rows[rows[0]].board : 0];
    return html`<bdi>${humps(name)}</bdi>${label === null && count < all ? html`<small>over ${count} of ${all}</small>` : ""}`;
  };
  return html`<p class="lead">Percent, higher is better: ${where}.</p><p class="more">Below each score: the change against <b>plain</b>, the same backbone without alignment: <span class="up">gain</span>, <span class="down">loss</span>, ${label === null ? html`<span class="chance">~ may be chance, ° tested for these languages only (too few for a test over languages), ? not tested</span>` : "not tested in single languages"}. ${label === null ? html`<b>same</b>: the change within a language, the price of a gain across languages. ` : ""}Choose a cell to see where it comes from, a task to sort by it. ${label === null ? html`<b class="best">Bold</b>: best of the column. <u>Underlined</u>: statistically tied with the best. †: fitted on this task's text. Rows with other languages stand in blocks of their own below.` : ""}</p>
    <${Grid} caption="Models and tasks" corner="model" heads=${kept.map(head)} rows=${shown} sort=${sort} onSort=${turn} onOpen=${open} />`;
}

// A cell's facts, or a row's where the column is -1.
function Detail({ at, close, label }) {
  if (!at) return null;
  const [row, column] = at,
    whole = column < 0;
  const cells = (whole ? [...DATA.columns.keys()] : [column]).filter((index) => cellOf(row, index));
  const task = DATA.tasks[DATA.columns[cells[0] ?? 0].task];
  const title = html`<bdi>${DATA.rows[row].name}</bdi>${whole ? "" : html` · <bdi>${DATA.columns[column].name}</bdi>`}`;
  if (!cells.length) return html`<${Facts} title=${title} facts=${[]} close=${close} />`;
  const cell = cellOf(row, cells[0]),
    { model, machine, interval, score_interval, ranks } = cell;
  const inChosen = () => percent(inLanguage(row, DATA.columns[column].task, label));
  const between = (ends, shown) => (ends ? ` (95% interval ${ends.map(shown).join(" to ")})` : "");
  const ofTask = [
    ["Score, mean over languages", `${percent(cell.score)} %${between(score_interval, percent)}`],
    ["Score in the language chosen", label !== null && !whole && `${languageName(label)}: ${inChosen()} %`],
    ["Against plain", cell.difference !== null && `${points(cell.difference)} points${between(interval, points)}, ${cell.verdict}`],
    ["Against plain within a language", cell.same != null && `${points(cell.same)} points`],
    [
      "Rank",
      ranks && (ranks[0] === ranks[1] ? `${ranks[0]}` : `between ${ranks.join(" and ")}, as far as chance leaves it open`),
    ],
    ["Languages or pairs", cell.covered ? `${cell.covered} of the ${cell.of} that the other rows share` : "those that the column's rows share"],
    ["Prompt", DATA.rows[row].prompt],
    [
      "Contamination",
      cell.fitted ? "† the model was fitted or trained on this task's text" : "not known to have seen this task's text",
    ],
    ["Data revision", cell.data],
    ["Task", task.description || task.name],
  ];
  const versions = Object.entries(machine.versions || {}).filter(([, version]) => version);
  const facts = [
    ...(whole ? [] : ofTask),
    ["Model revision", model.revision],
    ["Date", cell.date],
    ["Hardware", machine.hardware],
    ["Versions", versions.map((version) => version.join(" ")).join(", ")],
    ["Parameters", model.parameters && model.parameters.toLocaleString("en")],
    ["Dimensions", model.dimensions],
    ["Licence", model.licence],
    ["Tokens per second", machine.tokens_per_second],
    ["Seconds to fit a language", machine.fit_seconds_per_language],
    ["Command", html`<code>xalign run --models=${shellWord(DATA.rows[row].name)}${whole ? "" : ` --tasks=${shellWord(task.name)}`}</code>`],
  ];
  return html`<${Facts} title=${title} facts=${facts} close=${close} />`;
}

function LanguagesView({ rows, task, state, change }) {
  const blocks = blocksOf(task, "languages");
  const block = blocks.find((one) => one.heading === state.heading) || blocks[0];
  if (!block) return html`<p>This task has no scores by language.</p>`;
  const [sort, turn] = ordering({ state, change }, block.labels.map((label) => named(label)[0]));
  const relative = state.mode === "difference";
  const value = (row, j) => {
    const i = block.rows.indexOf(row),
      found = i < 0 ? null : valueOf(block, i, j);
    if (!relative || found === null) return found;
    const [base, kind] = plainOf(row, task) ?? [];
    const other = blocksOf(task, kind).find((one) => one.heading === block.heading && one.rows.includes(base));
    const plain = other ? valueOf(other, other.rows.indexOf(base), j) : null;
    return plain === null ? null : Math.round(10 * (found - plain)) / 10;
  };
  const having = rows.filter((row) => block.rows.includes(row));
  const printed = DATA.published.filter((one) => one.task === task && one.scores.length && !relative);
  const colour = ramp(relative ? [-30, 30] : [0, 100], relative);
  const cell = (found, j, row) =>
    html`<td tabindex="-1" key=${j} data-row=${row} style=${painted(colour, found)}>${found === null ? "" : relative ? points(found) : percent(found)}</td>`;
  const order = sorted(having, sort, value, labelOf);
  const shown = lines(order, sort, (row) => block.labels.map((_, j) => cell(value(row, j), j, row)));
  if (printed.length) shown.push({ title: "published", key: "published" });
  for (const one of printed) {
    const known = new Map(one.scores);
    shown.push({
      key: one.column,
      id: -1,
      head: html`<bdi>${one.column}</bdi>`,
      cells: block.labels.map((label, j) => cell(known.get(label) ?? null, j, -1)),
    });
  }
  const about = { "Into X": "candidates are in the language", "From X": "queries are in the language" }[block.heading];
  return html`<p class="lead">${DATA.tasks[task].name} by language${relative ? ", points against plain" : ", percent"}${block.heading ? html`: <b>${block.heading}</b>${about ? ` (${about})` : ""}` : ""}. Choose a language to sort by it.</p>
    ${blocks.length > 1 ? html`<div class="choices">${blocks.map((one) => html`<button aria-pressed=${one === block} onClick=${() => change({ heading: one.heading })}>${one.heading}</button>`)}</div>` : ""}
    <${Grid} caption="Models and languages" corner="model" heads=${block.labels.map((label) => html`<${LanguageName} label=${label} />`)} rows=${shown}
      sort=${sort} onSort=${turn} />`;
}

function PairsView({ rows, task, state, change }) {
  const after = blocksOf(task, "pairs").find((block) => block.heading === "after");
  if (!after)
    return html`<p>This task is not scored by pairs of languages, or it has too many languages for a matrix.</p>`;
  const studied = blocksOf(task, "pairs").find((block) => block.heading === "before");
  const having = rows.filter((row) => after.rows.includes(row));
  const row = chosenRow(state, having);
  if (row === undefined) return html`<p>No model in this choice was scored on this task.</p>`;
  const base = baselineOf(row);
  const left = studied ? [studied, row, "before a rotation"] : [after, base, "unaligned backbone"];
  const colour = ramp([0, 100], false),
    size = after.labels.length;
  const score = (block, one, a, b) => valueOf(block, block.rows.indexOf(one), a * size + b);
  const drawn = [left, [after, row, studied ? "after a rotation" : "aligned"]].filter(
    ([block, one], index) => block.rows.includes(one) && (index || studied || base !== row),
  );
  const places = [...after.labels.keys()],
    scored = (a, b) => drawn.every(([block, one]) => score(block, one, a, b) !== null), // the same pairs in both
    used = places.filter((a) => places.some((b) => scored(a, b) || scored(b, a)));
  return html`<p class="lead">${DATA.tasks[task].name}, percent for each pair of languages: a row is the language of the queries, a column that of the candidates.</p>
    <${Choice} label="Model" wide value=${String(row)} onChange=${(model) => change({ model })} options=${having.map((one) => [String(one), rowName(one)])} />
    <div class="matrices">${drawn.map(
      ([block, one, title]) => html`<section key=${title}><h2>${title}: <bdi>${labelOf(one)}</bdi></h2>
      <${Grid} caption=${title} corner="from ↓ into →" heads=${used.map((b) => html`<abbr title=${languageName(block.labels[b])}>${named(block.labels[b])[0].split("-")[0]}</abbr>`)}
        rows=${used.map((a) => ({
          key: a,
          id: one,
          head: html`<${LanguageName} label=${block.labels[a]} />`,
          cells: used.map((b) => {
            const value = score(block, one, a, b);
            return html`<td tabindex="-1" key=${b} style=${painted(colour, value)}>${value === null ? "" : Math.round(value)}</td>`;
          }),
        }))} /></section>`,
    )}</div>`;
}
