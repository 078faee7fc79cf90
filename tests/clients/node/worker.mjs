// Runs one client's recipe: a line of JSON in, a line of JSON out, as ../worker.py does.

import { readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const AsyncFunction = (async () => {}).constructor;
let names = {};
let made = 0;

/** Run the recipe up to its calls; it is a module of its own beside this one, so that its imports resolve. */
async function setUp(source) {
  const file = new URL(`.recipe-${process.pid}-${made++}.mjs`, import.meta.url);
  const declared = [...source.matchAll(/^const (\w+)/gm)].map((match) => match[1]);
  writeFileSync(file, `${source}\nexport { ${declared.join(", ")} };\n`);
  try {
    names = { ...(await import(file)) };
  } finally {
    unlinkSync(file);
  }
  return null;
}

/** Run one call, with what the recipe set up and what is given for it. */
async function call({ call, given, result }) {
  const scope = { ...names, ...given };
  const run = new AsyncFunction(...Object.keys(scope), `${call}\nreturn ${result};`);
  return await run(...Object.values(scope));
}

/** The version of a package that is installed. */
function versionOf(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file)).version;
}

async function answer(request) {
  try {
    if (request.version !== undefined) {
      return { value: versionOf(request.version) };
    }
    return { value: await (request.setup !== undefined ? setUp(request.setup) : call(request)) };
  } catch (error) {
    return { kind: error.constructor.name, error: error.message };
  }
}

const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);

console.log = console.error; // what a library prints is no answer
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line)), plain) + "\n");
}
