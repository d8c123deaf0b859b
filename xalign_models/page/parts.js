// What the views share: names of languages, choices, a table that the arrow keys walk, colours, charts.
function LanguageName({ label }) {
  const [code, name, own, direction, tag] = named(label);
  return name
    ? html`<span title=${code}>${name}${own === name ? "" : html`<small><bdi dir=${direction} lang=${tag}>${own}</bdi></small>`}</span>`
    : html`<bdi>${code}</bdi>`;
}

const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;

function Choice({ label, value, options, onChange, wide }) {
  return html`<label class=${wide ? "choice wide" : "choice"}><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, shown]) => html`<option value=${key} key=${key} selected=${key === value}>${shown}</option>`)}
    </select></label>`;
}

// How a table is sorted, by a head's key or, as "model", by the first column, and what a chosen head does to that.
function ordering({ state, change }, keys, initial = "") {
  const read = (text) => {
    const [way, key] = text.split(/:(.*)/s),
      column = keys.indexOf(key);
    return column < 0 && key !== "model" ? null : { column, down: way === "down" };
  };
  const sort = read(state.sort) || read(initial);
  const turn = (next) => {
    const first = next >= 0,
      again = sort && sort.column === next;
    if (again && sort.down !== first && !initial) return change({ sort: "" });
    change({ sort: `${(again ? !sort.down : first) ? "down" : "up"}:${keys[next] ?? "model"}` });
  };
  return [sort, turn];
}

// A table with a fixed head and first column. Arrow keys, Home and End move; Enter opens a cell or sorts by a head.
function Grid({ caption, corner, heads, rows, sort, onSort, onOpen }) {
  const table = useRef(null);
  const [limit, setLimit] = useState(40); // the first rows are painted before the others are made
  useEffect(() => {
    const timer = setTimeout(() => setLimit(Infinity), 50);
    return () => clearTimeout(timer);
  }, []);
  const go = (cell) => {
    if (!cell) return;
    table.current.querySelectorAll('[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
    cell.tabIndex = 0;
    cell.focus();
  };
  const act = (cell) => {
    if (cell.dataset.head !== undefined) onSort && onSort(Number(cell.dataset.head));
    else if (cell.dataset.row !== undefined) onOpen && onOpen(Number(cell.dataset.row), Number(cell.dataset.column));
  };
  const onKeyDown = (event) => {
    const cell = event.target.closest("td,th");
    if (!cell) return;
    const { rows: lines } = table.current;
    const y = cell.parentNode.rowIndex,
      x = cell.cellIndex;
    const at = (line, column) => line && (line.cells[column] || line.cells[0]);
    const moves = {
      ArrowRight: () => cell.nextElementSibling,
      ArrowLeft: () => cell.previousElementSibling,
      ArrowDown: () => at(lines[y + 1], x),
      ArrowUp: () => at(lines[y - 1], x),
      Home: () => cell.parentNode.cells[0],
      End: () => cell.parentNode.cells[cell.parentNode.cells.length - 1],
    };
    if (event.key === "Enter" || event.key === " ") act(cell);
    else if (moves[event.key]) go(moves[event.key]());
    else return;
    event.preventDefault();
  };
  const onClick = (event) => {
    const cell = event.target.closest("td,th");
    if (cell) {
      go(cell);
      act(cell);
    }
  };
  const order = (index) => (sort && sort.column === index ? (sort.down ? "descending" : "ascending") : "none");
  return html`<div class="scroller"><table role="grid" ref=${table} onKeyDown=${onKeyDown} onClick=${onClick}>
    <caption>${caption}</caption>
    <thead><tr>
      <th scope="col" class="corner" tabindex="0" data-head="-1" aria-sort=${order(-1)}>${corner}</th>
      ${heads.map((head, index) => html`<th scope="col" tabindex="-1" data-head=${index} aria-sort=${order(index)} key=${index}>${head}</th>`)}
    </tr></thead>
    <tbody>${rows
      .slice(0, limit)
      .map((row) =>
        row.title !== undefined
          ? html`<tr class="group" key=${row.key}><th scope="rowgroup" tabindex="-1" colspan=${heads.length + 1}><bdi>${row.title}</bdi>${row.note ? html`<small><bdi>${row.note}</bdi></small>` : ""}</th></tr>`
          : html`<tr key=${row.key}><th scope="row" tabindex="-1" data-row=${row.id} data-column="-1">${row.head}</th>${row.cells}</tr>`,
      )}
    </tbody></table></div>`;
}

// A dialog of names and values; what has no value is left out.
function Facts({ title, facts, close }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${close} onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <form method="dialog"><h2>${title}</h2><button autofocus>Close</button></form>
    <dl>${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd><bdi>${value}</bdi></dd>`)}</dl></dialog>`;
}

const ramp = (domain, diverging) => {
  const options = diverging
    ? { type: "diverging", scheme: "RdBu", domain }
    : { type: "linear", scheme: "YlGnBu", domain };
  return scale({ color: { ...options, clamp: true } });
};
// A cell's colours: black or white letters, whichever have more contrast by WCAG's relative luminance.
function painted(colour, value) {
  if (value === null) return "";
  const [red, green, blue] = colour
    .apply(value)
    .match(/\d+(\.\d+)?/g)
    .map(Number);
  const light = (part) => (part / 255 <= 0.04 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * light(red) + 0.7152 * light(green) + 0.0722 * light(blue);
  return `background:rgb(${red},${green},${blue});color:${luminance > 0.179 ? "#000" : "#fff"}`;
}

// A chart of Observable Plot's, made anew when what it shows or the width changes.
function Chart({ label, make, deps }) {
  const place = useRef(null);
  useEffect(() => {
    const draw = () => {
      if (!place.current) return; // gone since
      const chart = plot({
        style: { background: "transparent", fontSize: "13px", overflow: "visible" },
        ...make(place.current.clientWidth),
      });
      chart.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label")); // of no role
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", label);
      place.current.replaceChildren(chart);
    };
    draw();
    const watch = new ResizeObserver(draw);
    watch.observe(place.current.parentNode);
    return () => watch.disconnect();
  }, deps);
  return html`<div class="chart" ref=${place}></div>`;
}
