// The licences of the packages that vendor.js is bundled from, each text once: node licences.mjs > LICENSES.txt
import { readFileSync, readdirSync } from "node:fs";

const inputs = Object.keys(JSON.parse(readFileSync("meta.json", "utf8")).inputs);
const names = inputs.filter((path) => path.startsWith("node_modules/")).map((path) => path.match(/node_modules\/((@[^/]+\/)?[^/]+)/)[1]);
const texts = new Map();
for (const name of [...new Set(names)].sort()) {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[sc]e/i.test(one));
  const text = readFileSync(`${folder}/${file}`, "utf8").trim();
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${version} (${license})`]);
}
process.stdout.write([...texts].map(([text, packages]) => `${packages.join("\n")}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`));
