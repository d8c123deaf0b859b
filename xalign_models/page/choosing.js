// Which model to use for given languages, read off the table of xalign_models/atlas/scores.py: its formula, and nothing
// more. A test compares the ranking with the command's.
const SETTINGS = DATA.atlas?.settings;
const logistic = (x) => 1 / (1 + Math.exp(-x));

// A column of the atlas with its numbers: counts (languages, kinds), scores (kinds, languages, models), statistics.
function columnAt(index) {
  const about = DATA.atlas.columns[index],
    numbers = unpack(`atlas-${index}`),
    languages = about.languages.length,
    models = about.models.length,
    start = 5 * languages,
    score = (at) => (numbers[at] === MISSING ? null : numbers[at] / 1000);
  return {
    ...about,
    score: (model, language, kind) => score(start + (kind * languages + language) * models + model),
    statistic: (model, which) => score(start + (5 * languages + which) * models + model),
  };
}

// The table: the number of tasks of a kind with a language, and each model's score there, with its interval.
function readTable() {
  const numbers = unpack("atlas-table"),
    { models, languages, rank, step, unit, effects, parts } = DATA.atlas.table,
    place = new Map(languages.map((label, index) => [label, index]));
  let end = 0;
  const { tasks, rows, coordinates, residuals, states, row_spreads, model_spreads } = Object.fromEntries(
    parts.map(([name, size]) => [name, numbers.subarray(end, (end += size))]),
  );
  const rowAt = (kind, label) => kind * languages.length + place.get(label);
  return {
    // Whether a model was measured on a task of a kind, in any language.
    seen: (kind, model) => languages.some((label) => states[rowAt(kind, label) * models.length + model]),
    count: (kind, label) => tasks[rowAt(kind, label)],
    cell(kind, label, model, adjusted) {
      const row = rowAt(kind, label),
        state = states[row * models.length + model],
        share = Math.max(tasks[row], 1);
      let sum = 0;
      for (let i = 0; i < rank; i++) sum += rows[row * rank + i] * coordinates[model * rank + i];
      const raw = logistic(sum / unit ** 2) + residuals[row * models.length + model] / step,
        score = Math.min(0.999, Math.max(0.001, raw)),
        base = Math.max(tasks[row] + 1, 16),
        measured = state % base,
        trained = Math.floor(state / base),
        centre = Math.log(score / (1 - score)) - (adjusted ? (effects[kind] * trained) / share : 0),
        own = tasks[row] ? model_spreads[kind * models.length + model] : 0,
        width = Math.exp((row_spreads[row] + own) / unit) * (1 - measured / share);
      const low = logistic(centre - width),
        high = logistic(centre + width);
      return {
        score: logistic(centre), cautious: logistic(centre - (tasks[row] ? SETTINGS.caution * width ** 2 : 0)), measured, trained,
        low: width > 0 && low < SETTINGS.least ? 0 : low,
        high: width > 0 && high > SETTINGS.most ? 1 : high,
      };
    },
  };
}

// A licence's name in the registry's form, as the command writes it; empty if it is unknown.
function licenceName(text) {
  const words = (text || "").toLowerCase().trim().split(/[\s_,-]+/),
    name = words.filter((word) => !["the", "license", "licence", "version"].includes(word)).join("-");
  return name === "not-specified" ? "" : name.replace(/^apache-?v?2(\.0)?$/, "apache-2.0");
}

function admits(wish, about) {
  const licence = licenceName(about.licence);
  return (
    (!wish.size || (about.parameters || Infinity) <= wish.size) &&
    (!wish.dimension || (about.dimension || Infinity) <= wish.dimension) &&
    (!wish.licence ||
      (wish.licence === "permissive" ? SETTINGS.permissive.includes(licence) : licence === wish.licence))
  );
}

// Candidates as `choose` ranks them, and what the evidence lacks; `languages` are labels.
function chooseModels(table, wish) {
  const total = (list) => list.reduce((sum, value) => sum + value, 0),
    all = [...SETTINGS.tasks.keys()],
    has = (kind) => total(wish.languages.map((label) => table.count(kind, label))),
    kinds = wish.kind ? [SETTINGS.tasks.indexOf(wish.kind)] : all.some(has) ? all.filter(has) : all;
  const candidates = DATA.atlas.table.models
    .map((index, model) => ({ about: DATA.atlas.models[index], model }))
    .filter(({ about }) => admits(wish, about))
    .map(({ about, model }) => {
      const languages = wish.languages.map((label) => kinds.map((kind) => table.cell(kind, label, model, wish.adjusted))),
        of = (field) => languages.map((cells) => mean(cells.map((cell) => cell[field]))),
        sum = (field) => total(languages.flat().map((cell) => cell[field])),
        scores = of("score"),
        worst = scores.indexOf(Math.min(...scores));
      return {
        about, model, worst: [wish.languages[worst], scores[worst]], score: mean(scores), low: mean(of("low")),
        high: mean(of("high")), cautious: mean(of("cautious")), measured: sum("measured"), trained: sum("trained"),
      };
    });
  if (!candidates.length) return { problem: "No model with scores for these languages fits; relax the size, the licence or the dimension." };
  const rank = ({ cautious }) => Math.round(10000 * cautious);
  candidates.sort((a, b) => rank(b) - rank(a) || a.model - b.model);
  const near = candidates.filter(({ about, cautious }) => about.parameters && cautious >= candidates[0].cautious - SETTINGS.close),
    coverage = wish.languages.map((label) => [label, total(kinds.map((kind) => table.count(kind, label)))]);
  const cheapest = near.length ? near.reduce((a, b) => (b.about.parameters < a.about.parameters ? b : a)) : null;
  // As the command: the most doubtful scores of models that may be the best.
  const next = candidates
    .filter(({ low, high, model }) => high > Math.max(candidates[0].low, low + SETTINGS.close) && kinds.some((kind) => table.seen(kind, model)))
    .sort((a, b) => b.score - a.score)
    .slice(0, SETTINGS.next)
    .map(({ about, model }) => {
      const cells = kinds.flatMap((kind) => wish.languages.map((label) => ({ kind, label, ...table.cell(kind, label, model, wish.adjusted) })));
      return { about, ...cells.reduce((a, b) => (b.high - b.low > a.high - a.low ? b : a)) };
    });
  return { candidates, coverage, cheapest, next, cells: total(kinds.map(has)) };
}
