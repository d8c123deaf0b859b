// The page: filters, views, and what they choose.
const VIEWS = {
  board: "Board",
  differences: "Differences",
  languages: "Languages",
  pairs: "Pairs",
  trade: "Trade-off",
  published: "Published",
  ...(DATA.atlas && { atlas: "Atlas", choose: "Choose" }),
  notes: "Notes",
};
const START = {
  view: "board",
  text: "",
  system: "",
  backbone: "",
  task: "",
  language: "",
  domain: "",
  mode: "score",
  heading: "",
  model: "",
  cost: "parameters",
  column: String(Math.max(0, DATA.atlas?.columns.findIndex(({ task }) => task === "NTREXBitextMining") ?? 0)),
  wanted: "",
  kind: "",
  size: "",
  licence: "",
  dimension: "",
};

function App() {
  const [state, change] = useAddress(START);
  const [at, setAt] = useState(null);
  const domains = (column) => DATA.tasks[DATA.columns[column].task].domains || [];
  const wanted = state.text.trim().toLowerCase();
  const rows = useMemo(
    () =>
      DATA.rows
        .map((_, index) => index)
        .filter((index) => {
          const row = DATA.rows[index];
          return (
            (!state.system || system(row) === state.system) &&
            (!state.backbone || row.group === state.backbone) &&
            (!wanted || row.name.toLowerCase().includes(wanted))
          );
        }),
    [state.system, state.backbone, wanted],
  );
  const columns = useMemo(
    () =>
      DATA.columns
        .map((_, index) => index)
        .filter(
          (index) =>
            (!state.domain || domains(index).includes(state.domain)) &&
            (!state.task || DATA.columns[index].name === state.task) &&
            rows.some((row) => DATA.cells[row][index]),
        ),
    [rows, state.domain, state.task],
  );
  const first = (columns) =>
    (state.view === "published" && columns.find((column) => printedFor(column).length)) || columns[0];
  const column = Math.max(
    0,
    state.task ? DATA.columns.findIndex(({ name }) => name === state.task) : (first(columns) ?? 0),
  );
  const tasks =
    state.view === "board" && state.language !== ""
      ? DATA.tasks.map((_, task) => task)
      : ["languages", "pairs"].includes(state.view)
        ? [DATA.columns[column].task]
        : [];
  const numbers = useUnpacked(tasks.map((task) => `values-${task}`));
  const values = numbers && Object.fromEntries(tasks.map((task, index) => [task, numbers[index]]));
  const all = (label) => [["", label]];
  const choices = {
    system: [...all("all systems"), ...unique(DATA.rows.map(system)).map((one) => [one, one])],
    backbone: [...all("all backbones"), ...unique(DATA.rows.map((row) => row.group)).map((one) => [one, one])],
    task: [...(state.view === "board" ? all("all tasks") : []), ...DATA.columns.map(({ name }) => [name, name])],
    domain: [
      ...all("all domains"),
      ...unique(DATA.columns.flatMap((_, index) => domains(index))).map((one) => [one, one]),
    ],
    language: [
      ...all("mean of all"),
      ...DATA.labels
        .slice(0, DATA.own_labels)
        .map((_, label) => label)
        .filter((label) => named(label)[1])
        .sort((a, b) => languageName(a).localeCompare(languageName(b)))
        .map((label) => [String(label), `${languageName(label)} · ${named(label)[2]} · ${named(label)[0]}`]),
    ],
    mode: [
      ["score", "score"],
      ["difference", "change against plain"],
    ],
  };
  const labels = {
    system: "System",
    backbone: "Backbone",
    task: "Task",
    domain: "Domain",
    language: "Language",
    mode: "Show",
  };
  const useful = {
    board: Object.keys(choices),
    languages: ["system", "backbone", "task", "mode"],
    notes: [],
    atlas: [],
    choose: [],
  }[state.view] || ["system", "backbone", "task"];
  const shown = useful.filter(
    (field) => choices[field].length > 2 || state[field] !== START[field] || field === "mode",
  );
  const tabs = useRef(null);
  useEffect(() => document.getElementById(`tab-${state.view}`)?.scrollIntoView({ block: "nearest" }), [state.view]);
  const onTabKey = (event) => {
    const names = Object.keys(VIEWS),
      step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    change({ view: names[(names.indexOf(state.view) + step + names.length) % names.length] });
    requestAnimationFrame(() => tabs.current.querySelector('[aria-selected="true"]').focus());
  };
  const theme = () => {
    const dark =
      getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.style.colorScheme = dark ? "light" : "dark";
  };
  const given = {
    rows,
    columns,
    column,
    task: DATA.columns[column].task,
    state,
    change,
    values,
    open: (row, cell) => setAt([row, cell]),
  };
  const views = {
    board: BoardView,
    differences: DifferencesView,
    languages: LanguagesView,
    pairs: PairsView,
    trade: TradeView,
    published: PublishedView,
    atlas: AtlasView,
    choose: ChooseView,
    notes: NotesView,
  };
  return html`<header><div><h1>xalign board</h1>
      <p>How well text embeddings agree across languages, before and after alignment: ${counted(DATA.rows.length, "model")}, ${counted(DATA.tasks.length, "task")}, ${counted(DATA.labels.slice(0, DATA.own_labels).filter((label) => label[1]).length, "language")}. Made ${DATA.made.slice(0, 10)} by xalign ${DATA.version}.</p></div>
      <button class="theme" onClick=${theme} title="Change between dark and light">◐ <span>dark / light</span></button></header>
    <div role="tablist" aria-label="Views" ref=${tabs} onKeyDown=${onTabKey}>${Object.entries(VIEWS).map(([key, shownName]) => html`<button role="tab" id=${`tab-${key}`} aria-controls="view" aria-selected=${key === state.view} tabindex=${key === state.view ? 0 : -1} onClick=${() => change({ view: key })}>${shownName}</button>`)}</div>
    ${
      shown.length
        ? html`<div class="choices">
      <label class="choice"><span>Find a model</span><input type="search" value=${state.text} onInput=${(event) => change({ text: event.target.value })} placeholder="part of its name" /></label>
      ${shown.map((field) => html`<${Choice} key=${field} label=${labels[field]} value=${field === "task" && state.view !== "board" ? DATA.columns[column].name : state[field]} options=${choices[field]} onChange=${(value) => change({ [field]: value })} />`)}
      ${Object.keys(START).some((key) => key !== "view" && state[key] !== START[key]) ? html`<button onClick=${() => change({ ...START, view: state.view })}>Show all</button>` : ""}
    </div>`
        : ""
    }
    <main id="view" role="tabpanel" aria-labelledby=${`tab-${state.view}`}>${rows.length || !useful.length ? html`<${views[state.view] || BoardView} ...${given} />` : html`<p>No model fits this choice.</p>`}</main>
    <${Detail} at=${at} label=${state.language === "" ? null : Number(state.language)} values=${values} close=${() => setAt(null)} key=${at && at.join()} />`;
}
// The title is painted before the tables are made.
requestAnimationFrame(() =>
  setTimeout(() => {
    const place = document.getElementById("page");
    place.replaceChildren();
    render(html`<${App} />`, place);
  }),
);
