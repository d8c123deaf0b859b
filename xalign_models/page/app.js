// The page: filters, views, and what they choose.
const FILTERS = ["system", "backbone", "task"];
const BOARD_FILTERS = [...FILTERS, "domain", "language", "mode"];
const VIEWS = {
  board: { title: "Board", show: BoardView, filters: BOARD_FILTERS },
  ...(DATA.legend.length > 1 && { studies: { title: "Studies", show: BoardView, filters: BOARD_FILTERS } }),
  differences: { title: "Differences", show: DifferencesView, filters: ["rows", ...FILTERS] },
  languages: { title: "Languages", show: LanguagesView, filters: ["rows", ...FILTERS, "mode"] },
  pairs: { title: "Pairs", show: PairsView, filters: ["rows", ...FILTERS] },
  items: { title: "Items", show: ItemsView, filters: ["task"] },
  trade: { title: "Trade-off", show: TradeView, filters: ["rows", ...FILTERS] },
  published: { title: "Published", show: PublishedView, filters: FILTERS },
  ...(DATA.atlas && {
    atlas: { title: "Atlas", show: AtlasView, filters: [] },
    choose: { title: "Choose", show: ChooseView, filters: [] },
  }),
  notes: { title: "Notes", show: NotesView, filters: [] },
};
const EMPTY = "rows text system backbone task language domain heading sort model against item wanted kind size licence dimension adjusted";
const START = {
  ...Object.fromEntries(EMPTY.split(" ").map((field) => [field, ""])),
  view: "board",
  mode: "score",
  cost: "parameters",
  column: String(Math.max(0, DATA.atlas?.columns.findIndex(({ task }) => task === "NTREXBitextMining") ?? 0)),
};
// The languages of the results shown, without those that only the atlas has.
const OWN_LANGUAGES = [...Array(DATA.own_labels).keys()].filter((label) => named(label)[1]);

// The rows of the models, or of the studies, that stand in the board's first blocks or apart.
const rowsOf = (board) => DATA.rows.filter((row) => row.board === board);
const unlike = (board) => new Set(rowsOf(board).map(({ name }) => name)).size;

function App() {
  const [state, change] = useAddress(START);
  const [at, setAt] = useState(null);
  const view = VIEWS[state.view] || VIEWS.board;
  const domains = (column) => DATA.tasks[DATA.columns[column].task].domains || [];
  const wanted = state.text.trim().toLowerCase();
  const isBoard = view.show === BoardView,
    board = state.view === "studies" || (view.filters.includes("rows") && state.rows) ? 1 : 0;
  // A model may have a second row, over other languages: means are compared within a block, languages by model.
  const fits = isBoard && state.language === "" ? () => true : isBoard || ["languages", "pairs", "items"].includes(state.view) ? ({ first }, index) => first === index : ({ apart }) => !apart;
  const rows = useMemo(
    () =>
      [...DATA.rows.keys()].filter((index) => {
        const row = DATA.rows[index];
        return (
          row.board === board &&
          fits(row, index) &&
          (!state.system || system(row) === state.system) &&
          (!state.backbone || row.group === state.backbone) &&
          (!wanted || row.name.toLowerCase().includes(wanted))
        );
      }),
    [state.system, state.backbone, wanted, board, state.view, state.language],
  );
  const columns = useMemo(
    () =>
      [...DATA.columns.keys()].filter(
        (index) =>
          (!state.domain || domains(index).includes(state.domain)) &&
          (!state.task || DATA.columns[index].name === state.task) &&
          rows.some((row) => DATA.cells[row][index]),
      ),
    [rows, state.domain, state.task],
  );
  const fitting = { published: printedFor, items: (column) => DATA.items.filter(({ task }) => task === DATA.columns[column].task) }[state.view];
  const first = columns.find((column) => fitting?.(column).length) ?? columns[0];
  const column = Math.max(0, state.task ? DATA.columns.findIndex(({ name }) => name === state.task) : (first ?? 0));
  const task = DATA.columns[column].task;
  const list = (all, names) => [["", all], ...unique(names).map((name) => [name, name])];
  const languages = byName(OWN_LANGUAGES).map((label) => [
    String(label),
    `${languageName(label)} · ${named(label)[2]} · ${named(label)[0]}`,
  ]);
  const taskNames = DATA.columns.map(({ name }) => [name, name]);
  const choices = {
    system: ["System", list("all systems", rowsOf(board).map(system))],
    backbone: ["Backbone", list("all backbones", rowsOf(board).map(({ group }) => group))],
    rows: ["Rows", [["", "models"], ["studies", "studies"]]],
    task: ["Task", isBoard ? [["", "all tasks"], ...taskNames] : taskNames],
    domain: ["Domain", list("all domains", [...DATA.columns.keys()].flatMap(domains))],
    language: ["Language", [["", "mean of all"], ...languages]],
    mode: ["Show", [["score", "score"], ["difference", "change against plain"]]],
  };
  const shown = view.filters.filter(
    (field) => choices[field][1].length > 2 || state[field] !== START[field] || field === "mode" || (field === "rows" && DATA.legend.length > 1),
  );
  const tabs = useRef(null);
  useEffect(() => document.getElementById(`tab-${state.view}`)?.scrollIntoView({ block: "nearest" }), [state.view]);
  const onTabKey = (event) => {
    const names = Object.keys(VIEWS),
      step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    change({ sort: "", view: names[(names.indexOf(state.view) + step + names.length) % names.length] });
    requestAnimationFrame(() => tabs.current.querySelector('[aria-selected="true"]').focus());
  };
  const theme = () => {
    const { style } = document.documentElement,
      dark = style.colorScheme ? style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    style.colorScheme = dark ? "light" : "dark";
  };
  const choice = (field) => {
    const value = field === "task" && !isBoard ? DATA.columns[column].name : state[field];
    const [label, options] = choices[field];
    return html`<${Choice} key=${field} label=${label} value=${value} options=${options} onChange=${(value) => change({ [field]: value })} />`;
  };
  const given = { rows, columns, column, task, state, change, open: (row, cell) => setAt([row, cell]) };
  return html`<header><div><h1>xalign board</h1>
      <p>How well text embeddings agree across languages, before and after alignment.</p></div>
      <button class="theme" onClick=${theme} title="Change between dark and light">◐ <span>dark / light</span></button></header>
    <nav aria-label="Views"><div role="tablist" aria-label="Views" ref=${tabs} onKeyDown=${onTabKey}>${Object.entries(VIEWS).map(([key, { title }]) => html`<button role="tab" id=${`tab-${key}`} aria-controls="view" aria-selected=${key === state.view} tabindex=${key === state.view ? 0 : -1} onClick=${() => change({ sort: "", view: key })}>${title}</button>`)}</div></nav>
    <main>${
      shown.length
        ? html`<div class="choices">
      <label class="choice"><span>Find a model</span><input type="search" value=${state.text} onInput=${(event) => change({ text: event.target.value }, true)} placeholder="part of its name" /></label>
      ${shown.map(choice)}
      ${Object.keys(START).some((key) => key !== "view" && state[key] !== START[key]) ? html`<button onClick=${() => change({ ...START, view: state.view })}>Show all</button>` : ""}
    </div>`
        : ""
    }
    <div id="view" role="tabpanel" aria-labelledby=${`tab-${state.view}`}>${rows.length || !view.filters.length ? html`<${view.show} ...${given} />` : html`<p>No model fits this choice.</p>`}</div></main>
    <footer><p>${unlike(0)} models${VIEWS.studies ? ` and ${unlike(1)} studies of them (ablations, seeds, controls)` : ""}, ${counted(DATA.tasks.length, "task")}, ${counted(OWN_LANGUAGES.length, "language")}. Made ${DATA.made.slice(0, 10)} by xalign ${DATA.version}.</p></footer>
    <${Detail} at=${at} label=${state.language === "" ? null : Number(state.language)} close=${() => setAt(null)} key=${at && at.join()} />`;
}
// The title is painted before the tables are made.
requestAnimationFrame(() =>
  setTimeout(() => {
    const place = document.getElementById("page");
    place.replaceChildren();
    render(html`<${App} />`, place);
  }),
);
