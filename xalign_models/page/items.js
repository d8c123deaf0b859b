// Single items: which of them one model, or two, missed in each subset.
function ItemsView({ rows, task, state, change }) {
  const blocks = DATA.items.filter((block) => block.task === task && block.rows.some((row) => rows.includes(row))),
    having = rows.filter((row) => blocks.some((block) => block.rows.includes(row))),
    row = chosenRow(state, having);
  const [at, setAt] = useState(null);
  const tasks = unique(DATA.items.map((block) => DATA.tasks[block.task].name)).join(", ");
  const bound = html`<p class="more">This page has single outcomes of models, not of studies, for ${tasks || "no task"}: as many as fit into 400 KB, and of tasks with more than 100 subsets those with English. Files below results/, in items/, have all of them.</p>`;
  if (row === undefined) return html`<p>The page has no single outcomes of ${DATA.tasks[task].name} for this choice.</p>${bound}`;
  const block = blocks.find((one) => one.rows.includes(row));
  const rivals = having.filter((one) => one !== row && block.rows.includes(one));
  const wanted = state.against === "" ? baselineOf(row) : Number(state.against);
  const rival = rivals.includes(wanted) ? wanted : null;
  const [ours, theirs] = [row, rival].map((one) => one !== null && missedBy(block, one));
  const short = (one) => (rival !== null && labelOf(row) === labelOf(rival) ? rowName(one) : labelOf(one));
  const labels = rival === null ? ["missed"] : [`missed by ${short(row)} alone`, `missed by ${short(rival)} alone`, "missed by both"];
  let start = 0;
  const subsets = block.subsets.map((names, index) => {
    const lists = labels.map(() => []);
    for (let item = 0; item < block.counts[index]; item++) {
      const [a, b] = [ours, theirs].map((missed) => missed && missed(start + item));
      if (a || b) lists[!b ? 0 : a ? 2 : 1].push(item);
    }
    start += block.counts[index];
    return { name: names.map(languageName).join(" → "), count: block.counts[index], lists };
  });
  const item = /^\d+$/.test(state.item) ? Number(state.item) : null;
  const [sort, turn] = ordering({ state, change }, ["items", ...(rival === null ? ["missed"] : ["alone", "rival", "both"])]);
  const value = (index, at) => (at ? subsets[index].lists[at - 1].length : subsets[index].count);
  const order = sorted([...subsets.keys()], sort, value, (index) => subsets[index].name);
  const verdict = ({ count, lists }) => (item >= count ? "–" : (labels[lists.findIndex((list) => list.includes(item))] ?? "found"));
  const cells = (one) => [one.count, ...one.lists.map((list) => list.length), ...(item === null ? [] : [verdict(one)])];
  return html`<p class="lead">How many items of ${DATA.tasks[task].name} a model missed: queries whose answer is not among the first, or texts with a wrong label.</p>
    <p class="more">Choose a row for the numbers of its items. They count from 0, in the order of the task’s data, whose text is not in this page.</p>
    <div class="choices"><${Choice} label="Model" wide value=${String(row)} onChange=${(model) => change({ model })} options=${having.map((one) => [String(one), rowName(one)])} />
      <${Choice} label="Compared with" wide value=${String(rival)} onChange=${(against) => change({ against })} options=${[["null", "no other model"], ...rivals.map((one) => [String(one), rowName(one)])]} />
      <label class="choice"><span>Look up an item</span><input inputmode="numeric" value=${state.item} placeholder="its number" onInput=${(event) => change({ item: event.target.value.trim() }, true)} /></label></div>
    <${Grid} caption="Missed items" corner=${block.subsets.some((names) => names.length > 1) ? "queries → candidates" : "subset"} heads=${["items", ...labels, ...(item === null ? [] : [`item ${item}`])]} sort=${sort} onSort=${turn} onOpen=${setAt}
      rows=${order.map((index) => ({ key: index, id: index, head: html`<bdi>${subsets[index].name}</bdi>`, cells: cells(subsets[index]).map((cell) => html`<td tabindex="-1" data-row=${index}>${cell}</td>`) }))} />
    ${bound}
    ${subsets[at] ? html`<${Facts} key=${at} close=${() => setAt(null)} title=${html`<bdi>${subsets[at].name}</bdi>`} facts=${labels.map((label, which) => [`${label}: ${subsets[at].lists[which].length} of ${subsets[at].count}`, subsets[at].lists[which].join(", ") || "none"])} />` : ""}`;
}

// Whether a row missed each item of a block, by the item's place; rows are unpacked once.
function missedBy(block, row) {
  if (!unpacked.has(block.name)) {
    const all = inflate(block.name),
      size = all.length / block.rows.length;
    for (let i = size; i < all.length; i++) all[i] ^= all[i - size];
    unpacked.set(block.name, all);
  }
  const bytes = unpacked.get(block.name),
    start = (bytes.length / block.rows.length) * block.rows.indexOf(row);
  return (place) => !((bytes[start + (place >> 3)] >> (7 - (place & 7))) & 1);
}
