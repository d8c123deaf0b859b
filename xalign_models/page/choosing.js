// Which model to use for given languages: the steps of xalign_models/atlas/choose.py, in its order and with its
// constants, which the page carries. A test compares the two.
const SETTINGS = DATA.atlas?.settings;
const known = (value) => !Number.isNaN(value);
const logistic = (x) => 1 / (1 + Math.exp(-x));
function logit(score) {
  if (!known(score)) return NaN;
  const clipped = Math.min(SETTINGS.most, Math.max(SETTINGS.least, score));
  return Math.log(clipped / (1 - clipped));
}

// A column of the atlas with its numbers: counts (languages, kinds), scores (kinds, languages, models), statistics.
async function columnAt(index) {
  const about = DATA.atlas.columns[index],
    numbers = await unpack(`atlas-${index}`),
    languages = about.languages.length,
    models = about.models.length,
    start = 5 * languages,
    score = (at) => (numbers[at] === MISSING ? NaN : numbers[at] / DATA.atlas.scale);
  return {
    ...about,
    count: (language, kind) => numbers[5 * language + kind],
    score: (model, language, kind) => score(start + (kind * languages + language) * models + model),
    statistic: (model, which) => score(start + (5 * languages + which) * models + model),
  };
}

// A column's evidence for languages: a logit for each of its models; null if it has none of the languages.
function taskScores(column, languages) {
  const fewest = Math.min(SETTINGS.fewest, column.models.length),
    cells = [];
  for (const place of languages.map((label) => column.languages.indexOf(label)).filter((place) => place >= 0))
    for (const pairing of SETTINGS.pairings) {
      const kinds = pairing.filter((kind) => column.count(place, kind) > 0);
      if (!kinds.length) continue;
      const cell = column.models.map((_, model) => logit(mean(kinds.map((kind) => column.score(model, place, kind)))));
      if (cell.filter(known).length >= fewest) cells.push(cell);
    }
  if (!cells.length) return null;
  const means = cells.map((cell) => mean(cell.filter(known)));
  const scores = column.models.map((_, model) => {
    const residuals = cells.flatMap((cell, index) => (known(cell[model]) ? [cell[model] - means[index]] : []));
    return 2 * residuals.length >= cells.length ? mean(means) + mean(residuals) : NaN;
  });
  return scores.some(known) ? scores : null;
}

// The models that a chain of shared tasks ties to the most models: a flag for each.
function connected(table, count) {
  let best = Array(count).fill(false),
    left = table;
  const size = (group) => group.filter(Boolean).length;
  while (left.length) {
    const group = left[0].map(known);
    for (let near = [null]; near.length; ) {
      const shares = (row) => row.some((score, model) => known(score) && group[model]);
      near = left.filter(shares);
      left = left.filter((row) => !near.includes(row));
      near.forEach((row) => row.forEach((score, model) => known(score) && (group[model] = true)));
    }
    if (size(group) > size(best)) best = group;
  }
  return best;
}

// score = difficulty of the task + quality of the model, by alternating least squares.
function fitQuality(table, weights, count) {
  const models = [...Array(count).keys()],
    tasks = [...table.keys()],
    has = table.map((row) => row.map(known)),
    total = (list, term) => list.reduce((sum, one) => sum + term(one), 0),
    evidence = models.map((model) => total(tasks, (task) => (has[task][model] ? weights[task] : 0))),
    scored = tasks.map((task) => Math.max(has[task].filter(Boolean).length, 1));
  let quality = Array(count).fill(0),
    difficulty = [];
  for (let round = 0; round < SETTINGS.rounds; round++) {
    difficulty = tasks.map(
      (task) => total(models, (model) => (has[task][model] ? table[task][model] - quality[model] : 0)) / scored[task],
    );
    quality = models.map(
      (model) =>
        total(tasks, (task) => (has[task][model] ? weights[task] * (table[task][model] - difficulty[task]) : 0)) /
        (evidence[model] + SETTINGS.pull),
    );
  }
  const ordered = quality.filter((_, model) => evidence[model] > 0).sort((a, b) => a - b),
    middle = (ordered.length - 1) / 2,
    median = (ordered[Math.floor(middle)] + ordered[Math.ceil(middle)]) / 2,
    better = models.filter((model) => quality[model] >= median);
  let squares = 0,
    observed = 0;
  for (const task of tasks)
    for (const model of better)
      if (has[task][model]) {
        squares += weights[task] * (table[task][model] - difficulty[task] - quality[model]) ** 2;
        observed++;
      }
  const variance = squares / Math.max(observed - better.length - tasks.length, 1);
  return { quality, error: evidence.map((one) => Math.sqrt(variance / (one + SETTINGS.pull))), difficulty };
}

function admits(wish, about) {
  const licence = (about.licence || "").toLowerCase();
  return (
    (!wish.size || (about.parameters || Infinity) <= wish.size) &&
    (!wish.dimension || (about.dimension || Infinity) <= wish.dimension) &&
    (!wish.licence ||
      (wish.licence === "permissive" ? SETTINGS.permissive.includes(licence) : licence === wish.licence))
  );
}

// Candidates, the best first, and what the evidence lacks; `languages` are labels. `problem` says why there are none.
function chooseModels(columns, wish) {
  const covered = new Set(columns.flatMap((column) => column.known)),
    relatives = DATA.atlas.relatives,
    guessed = wish.languages.filter((label) => !covered.has(label) && relatives[label]),
    missing = wish.languages.filter((label) => !covered.has(label) && !relatives[label]),
    languages = wish.languages
      .filter((label) => !missing.includes(label))
      .map((label) => (covered.has(label) ? label : relatives[label][0])),
    notes = [];
  if (!languages.length) return { problem: "Nothing is published for these languages or a relative of theirs." };
  const observed = columns
    .map((column) => ({ column, scores: taskScores(column, languages) }))
    .filter(({ scores }) => scores);
  const models = [...new Set(observed.flatMap(({ column }) => column.models))].sort((a, b) => a - b),
    place = new Map(models.map((model, index) => [model, index]));
  const whole = observed.map(({ column, scores }) => {
    const row = Array(models.length).fill(NaN);
    column.models.forEach((model, index) => (row[place.get(model)] = scores[index]));
    return row;
  });
  const tied = connected(whole, models.length),
    table = whole.map((row) => row.map((score, index) => (tied[index] ? score : NaN)));
  const apart = models.filter((_, index) => !tied[index] && whole.some((row) => known(row[index]))).length;
  if (apart)
    notes.push(`${apart} models share no task with the others for these languages and are not ranked.`);
  const about = models.map((model) => DATA.atlas.models[model]);
  const scored = (index) => table.some((row) => known(row[index])),
    chosen = [...models.keys()].filter((index) => admits(wish, about[index]) && scored(index));
  if (!chosen.length)
    return { problem: "No model with scores for these languages fits; relax the size, the licence or the dimension." };
  const unknown = about.filter(
    (model) =>
      (wish.size && !model.parameters) || (wish.dimension && !model.dimension) || (wish.licence && !model.licence),
  ).length;
  if (unknown) notes.push(`${unknown} models are left out because the registry does not say whether they fit.`);
  const asks = (column) => !wish.kind || column.kind === wish.kind,
    asked = observed.map(({ column }) => asks(column)),
    coverage = wish.languages.map((label) => [
      label,
      new Set(columns.filter((column) => asks(column) && column.known.includes(label)).map(({ task }) => task)).size,
    ]);
  const weights = asked.map((one) => (one ? 1 : SETTINGS.otherKind)),
    fitted = fitQuality(table, weights, models.length),
    { quality, error } = fitted,
    difficulty = asked.includes(true) ? fitted.difficulty.filter((_, row) => asked[row]) : fitted.difficulty;
  if (!asked.includes(true))
    notes.push(`No ${wish.kind} task has scores for these languages; tasks of other kinds stand in.`);
  const expected = (value) => mean(difficulty.map((one) => logistic(one + value))),
    order = chosen.sort((a, b) => quality[b] - quality[a] || a - b),
    first = order[0],
    tasks = new Set(observed.map(({ column }) => column.task));
  const candidates = order.map((index) => ({
    model: models[index],
    about: about[index],
    score: expected(quality[index]),
    low: expected(quality[index] - SETTINGS.width * error[index]),
    high: expected(quality[index] + SETTINGS.width * error[index]),
    tied: quality[first] - quality[index] <= SETTINGS.width * Math.hypot(error[first], error[index]),
    tasks: observed.flatMap(({ column }, row) =>
      known(table[row][index]) ? [[column.label, logistic(table[row][index])]] : [],
    ),
    trainedOn: (about[index].trained_on || []).filter((task) => tasks.has(task)),
  }));
  return { candidates, evidence: observed.map(({ column }) => column.label), coverage, guessed, missing, notes };
}
