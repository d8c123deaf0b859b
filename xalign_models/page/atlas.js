// Views of the atlas: how even the models' languages are, and a form that chooses a model for languages.
const PAIRINGS = [
  ["within the language", "queries and candidates in the language"],
  ["from English", "English queries, candidates in the language"],
  ["into English", "queries in the language, English candidates"],
  ["from other languages", "queries in further languages, candidates in the language"],
  ["into other languages", "queries in the language, candidates in further languages"],
];
const kindName = (kind) => ({ retrieval: "retrieval of passages", bitext: "bitext, translations", sts: "sts, similar sentences" })[kind] ?? kind;
const amount = (value) =>
  !value ? "?" : value >= 1e9 ? `${+(value / 1e9).toFixed(1)}B` : `${Math.round(value / 1e6) || "<1"}M`;
const share = (value) => percent(value === null ? null : 100 * value);
const licenceOf = ({ licence }) => (/^https?:/.test(licence) ? "its own" : licenceName(licence) ? licence : "?");
const columnName = (column) =>
  `${column.label} · ${column.metric}${column.measured.length === column.models.length ? " · measured here" : ""} · ${column.models.length} models`;

function aboutModel(about) {
  return [
    ["Parameters", about.parameters?.toLocaleString("en")],
    ["Dimensions", about.dimension],
    ["Longest text, in tokens", about.max_tokens?.toLocaleString("en")],
    ["Licence", about.licence],
    ["Released", about.release_date],
    ["Languages that the registry names", about.languages],
    [
      "Trained on tasks of the atlas",
      about.trained_on ? about.trained_on.join(", ") || "none of them, as its authors declare" : "not declared",
    ],
  ];
}

function AtlasView({ state, change }) {
  const [at, setAt] = useState(null);
  const { columns, source, statistics, models, revisions, versions } = DATA.atlas;
  const index = Math.min(Number(state.column) || 0, columns.length - 1);
  const label = state.language === "" ? null : Number(state.language);
  const about = columns[index],
    place = label === null ? -1 : about.languages.indexOf(label);
  const options = [
    ["", "mean of all"],
    ...byName(about.languages).map((one) => [String(one), `${languageName(one)} · ${named(one)[0]}`]),
  ];
  const choices = html`<div class="choices">
    <${Choice} label="Task" wide value=${String(index)} options=${columns.map((one, key) => [String(key), columnName(one)])} onChange=${(column) => change({ column })} />
    <${Choice} label="Language" value=${place < 0 ? "" : state.language} options=${options} onChange=${(language) => change({ language })} /></div>`;
  const column = columnAt(index);
  const heads =
    place < 0
      ? statistics.map(([name, meaning], which) => [name, meaning, (model) => column.statistic(model, which)])
      : PAIRINGS.map(([name, meaning], kind) => [name, meaning, (model) => column.score(model, place, kind)]);
  const used = heads.filter(([, , value]) => column.models.some((_, model) => value(model) !== null));
  const [sort, turn] = ordering({ state, change }, used.map(([head]) => head), `down:${used[0]?.[0]}`);
  const having = [...column.models.keys()].filter((model) => used.some(([, , value]) => value(model) !== null));
  const name = (model) => models[column.models[model]].name;
  const isOwn = (model) => column.measured.includes(model);
  const order = sorted(having, sort, (model, at) => used[at][2](model), name);
  const left = column.models.length - having.length;
  const titleOf = (model) => html`<bdi>${name(model)}</bdi> · <bdi>${column.task}</bdi>`;
  const factsOf = (model) => [
    ...used.map(([head, , value]) => [head, value(model) !== null && share(value(model))]),
    ["Model revision", revisions[column.revisions[model]]],
    ["mteb version", versions[column.versions[model]]],
    ["Revision of the text", column.text],
    ["Split and metric", `${column.split}, ${column.metric}`],
    ["Source", isOwn(model) ? "measured here" : `${source.address}, commit ${source.commit}, ${source.licence}`],
    ...aboutModel(models[column.models[model]]),
  ];
  return html`${choices}
    <p class="lead">${place < 0 ? "How even each model's languages are: scores in percent, differences in points. " : `Scores in ${languageName(label)}, in percent: means over the task's subsets.`}</p>
    <p class="more">The columns are explained below. Published scores of <bdi>${source.address ?? ""}</bdi>${about.measured.length ? ", and those measured here" : ""}. Select a head to sort by it, a model for where its numbers come from. ${left ? `${left} models are not shown: they lack some of the languages.` : ""}</p>
    <${Grid} caption="Models of the atlas" corner="model" heads=${used.map(([head, meaning]) => html`<abbr title=${meaning}>${head}</abbr>`)}
      rows=${order.map((model) => ({
        key: model,
        id: model,
        head: html`<bdi>${name(model)}</bdi>${isOwn(model) ? html`<small>measured here</small>` : ""}`,
        cells: used.map(([, , value]) => html`<td tabindex="-1" data-row=${model}>${share(value(model))}</td>`),
      }))}
      sort=${sort} onSort=${turn} onOpen=${setAt} />
    <dl>${used.map(([head, meaning]) => html`<dt>${head}</dt><dd>${meaning}</dd>`)}</dl>
    ${column.models[at] === undefined ? "" : html`<${Facts} key=${at} close=${() => setAt(null)} title=${titleOf(at)} facts=${factsOf(at)} />`}`;
}

// What the form says: languages as labels, limits as numbers, and a sentence on each thing that cannot be read.
function wishOf(state) {
  const { words } = DATA.atlas;
  const wrong = [],
    labels = [];
  const folded = (text) => text.trim().toLowerCase();
  for (const text of state.wanted.split(/[,;、،\n]+/).map(folded).filter(Boolean)) {
    let word = text.replace(/[()]/g, "").normalize("NFD").replace(/\p{Mn}/gu, "").trim().split(/[\s_-]+/).join("-");
    while (!Object.hasOwn(words, word) && /^[a-z]{2,3}-/.test(word)) word = word.slice(0, word.lastIndexOf("-"));
    const label = Object.hasOwn(words, word) ? words[word] : undefined;
    if (label === undefined) wrong.push(`“${text}” is not a language that this page knows; choose one from the list.`);
    else if (!labels.includes(label)) labels.push(label);
  }
  const size = /^(\d+(?:\.\d+)?)([kmb]?)$/.exec(folded(state.size));
  if (state.size.trim() && !size) wrong.push("The size is a number with K, M or B, for example 600M.");
  const dimension = Number(state.dimension.trim());
  if (state.dimension.trim() && !(dimension > 0)) wrong.push("The dimension is a number, for example 768.");
  return {
    wrong,
    languages: labels,
    kind: state.kind,
    licence: licenceName(state.licence),
    size: size && Math.round(size[1] * { "": 1, k: 1e3, m: 1e6, b: 1e9 }[size[2]]),
    dimension,
    adjusted: state.adjusted === "1",
  };
}

const commandOf = (wish) =>
  [
    "xalign choose --languages " + shellWord(wish.languages.map((label) => named(label)[0]).join(",")),
    wish.kind && `--task=${shellWord(wish.kind)}`,
    wish.size && `--max-params ${wish.size}`,
    wish.licence && `--license=${shellWord(wish.licence)}`,
    wish.dimension && `--dim ${wish.dimension}`,
    wish.adjusted && "--adjusted",
    DATA.atlas.columns.some((column) => column.measured.length) && "--results .",
  ]
    .filter(Boolean)
    .join(" ");

// The reader's own languages, by the browser's setting, where the atlas knows them; else English.
const OWN = () => {
  const names = (navigator.languages || []).map((tag) => tag.split("-")[0].toLowerCase()).filter((tag) => Object.hasOwn(DATA.atlas.words, tag));
  return unique(names.length ? names : ["en"]).slice(0, 3).join(", ");
};

function ChooseView({ state: given, change }) {
  const state = { ...given, wanted: given.wanted.trim() ? given.wanted : OWN() };
  const { languages, models } = DATA.atlas;
  const wish = wishOf(state);
  const table = useMemo(readTable, []);
  const licences = unique(models.map(({ licence }) => licenceName(licence)).filter(Boolean));
  const add = (label) => change({ wanted: [given.wanted.trim().replace(/,$/, ""), named(label)[0]].filter(Boolean).join(", ") });
  const choosable = byName(languages.filter((label) => named(label)[1]));
  const field = (key, label, hint) =>
    html`<label class="choice"><span>${label}</span><input value=${state[key]} placeholder=${hint} onInput=${(event) => change({ [key]: event.target.value }, true)} /></label>`;
  const form = html`<form class="choices" onSubmit=${(event) => event.preventDefault()}>
    <label class="choice wide"><span>Languages, by name or code</span><input type="search" value=${given.wanted} placeholder=${state.wanted} onInput=${(event) => change({ wanted: event.target.value }, true)} /></label>
    <${Choice} label="Add a language" value="" options=${[["", "choose one …"], ...choosable.map((label) => [String(label), `${languageName(label)} · ${named(label)[2]}`])]} onChange=${(label) => label && add(Number(label))} />
    <${Choice} label="For" value=${state.kind} options=${[["", "all kinds of tasks"], ...SETTINGS.tasks.map((kind) => [kind, kindName(kind)])]} onChange=${(kind) => change({ kind })} />
    ${field("size", "Most parameters", "any, e.g. 600M")}
    <${Choice} label="Licence" value=${wish.licence} options=${[["", "any"], ["permissive", "permissive (MIT, Apache, …)"], ...licences.map((one) => [one, one])]} onChange=${(licence) => change({ licence })} />
    ${field("dimension", "Longest vectors", "any, e.g. 768")}
    <${Choice} label="Tasks trained on" value=${state.adjusted} options=${[["", "as scored"], ["1", "less the gain of training"]]} onChange=${(adjusted) => change({ adjusted })} /></form>
    ${wish.wrong.map((line) => html`<p class="down" role="alert">${line}</p>`)}`;
  if (!wish.languages.length) return html`${form}<p class="lead">Name a language that the atlas knows.</p>`;
  return html`${form}<${Ranking} wish=${wish} table=${table} own=${!given.wanted.trim()} />`;
}

const bytes = (count) => (!count ? "?" : count >= 1e9 ? `${(count / 1e9).toFixed(1)}\u00a0GB` : `${Math.round(count / 1e6)}\u00a0MB`);

// What the form's wish gives: the answer, the ranking, and what is guessed.
function Ranking({ wish, table, own }) {
  const [at, setAt] = useState(null);
  const choice = useMemo(() => chooseModels(table, wish), [table, JSON.stringify(wish)]);
  if (choice.problem) return html`<p role="alert">${choice.problem}</p>`;
  const { candidates, cheapest } = choice,
    [first] = candidates,
    says = (label) => `${languageName(label)} (${named(label)[0]})`,
    list = wish.languages.map(languageName).join(", ");
  const rows = candidates.map((candidate, index) => ({
    key: candidate.model,
    id: index,
    head: html`<bdi>${candidate.about.name}</bdi>`,
    cells: [
      html`<b class=${index ? "" : "best"}>${share(candidate.score)}</b>`,
      html`<span class="whole">${candidate.high - candidate.low < 0.001 ? "measured" : `${share(candidate.low)} – ${share(candidate.high)}`}</span>`,
      html`<span class="whole">${share(candidate.worst[1])} ${languageName(candidate.worst[0])}</span>`,
      `${candidate.measured} of ${choice.cells}`,
      candidate.about.trained_on ? candidate.trained : "?",
      amount(candidate.about.parameters),
      bytes(2 * candidate.about.parameters),
      candidate.about.dimension ? bytes(4e6 * candidate.about.dimension) : "?",
      candidate.about.max_tokens?.toLocaleString("en") ?? "?",
      { true: "open", false: "API" }[candidate.about.open_weights] ?? "?",
      { true: "yes", false: "no" }[candidate.about.prompts] ?? "?",
      html`<bdi>${licenceOf(candidate.about)}</bdi>`,
    ].map((cell) => html`<td tabindex="-1" data-row=${index}>${cell}</td>`),
  }));
  const guesses = choice.coverage.filter(([, count]) => !count).map(([label]) => label);
  const lines = guesses.map((label) => `A guess: no ${wish.kind && `${wish.kind} `}task has ${says(label)}; scores are predicted from languages like it.`);
  return html`<p class="lead">For ${own ? "your browser’s languages, " : ""}${list}${wish.kind ? `, ${kindName(wish.kind)}` : ""}: <b><bdi>${first.about.name}</bdi></b> scores ${share(first.score)}${cheapest && cheapest !== first ? html`; <b><bdi>${cheapest.about.name}</bdi></b> is the smallest within two points of it (${amount(cheapest.about.parameters)} parameters, ${share(cheapest.score)})` : ""}.</p>
    <p class="more">Scores are means over tasks and languages in percent. Where a model lacks a task, its score is predicted, and the 90% interval says how well. In the ranking, doubt counts against a model. Select a model for all that is known of it.</p>
    <ul>${[...lines, `Number of tasks with scores in each language: ${choice.coverage.map(([label, count]) => `${languageName(label)} ${count}`).join(", ")}.`].map((line) => html`<li class=${/^A guess/.test(line) ? "guess" : ""}><bdi>${line}</bdi></li>`)}</ul>
    <${Grid} caption="Models for these languages" corner="model" heads=${["score", "90% interval", "worst language", "measured", "trained on", "parameters", "memory, 16 bit", "index of a million texts", "longest text, tokens", "weights", "prompts", "licence"]} rows=${rows} onOpen=${setAt} />
    ${choice.next.length ? html`<h2>Measure this next</h2><p class="lead">These measurements would narrow the choice most, because the models may be the best and their scores are predicted.</p><ul>${choice.next.map(({ about, kind, label, low, high }) => html`<li><bdi>${about.name}</bdi> on ${kindName(SETTINGS.tasks[kind])} in ${languageName(label)}, now between ${(100 * low).toFixed(0)} and ${(100 * high).toFixed(0)}</li>`)}</ul>` : ""}
    <p>The same in a terminal: <code>${commandOf(wish)}</code></p>
    ${at === null || !candidates[at] ? "" : html`<${Facts} key=${at} close=${() => setAt(null)} title=${html`<bdi>${candidates[at].about.name}</bdi>`} facts=${[["Page", candidates[at].about.reference], ...aboutModel(candidates[at].about)]} />`}`;
}
