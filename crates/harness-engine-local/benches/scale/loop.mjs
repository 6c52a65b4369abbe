// The same loop in Node: a child that is resolved at once makes a value as text, the loop reads it, checks it and
// writes it into the next prompt. Prints the processor time per call in microseconds, after a warm-up.
import { readFileSync } from "node:fs";

const instructions = readFileSync(new URL("./instructions.txt", import.meta.url), "utf8");
const item = "One of several remarks that say what was done, what was found and what comes next.";

function valueText(number) {
  return `{"status":"continue","summary":"Call ${number} went through a part of the task and left the rest to the next one.","done":["${item}","${item}"],"next":["${item}","${item}"],"notes":{"number":${number},"checked":true,"share":0.25}}`;
}

function isText(value) {
  return typeof value === "string" && value !== "";
}

function isGood(value) {
  return (
    value !== null && typeof value === "object" && Object.keys(value).length === 5 &&
    (value.status === "continue" || value.status === "done") && isText(value.summary) &&
    Array.isArray(value.done) && value.done.every(isText) &&
    Array.isArray(value.next) && value.next.every(isText) &&
    value.notes !== null && typeof value.notes === "object"
  );
}

async function child(prompt) {
  return JSON.parse(valueText(prompt.length));
}

class Slots {
  constructor(count) {
    this.free = count;
    this.queue = [];
  }
  take() {
    if (this.free > 0) {
      this.free -= 1;
      return undefined;
    }
    return new Promise((resolve) => this.queue.push(resolve));
  }
  give() {
    const next = this.queue.shift();
    if (next) next();
    else this.free += 1;
  }
}

async function run(calls) {
  const slots = new Slots(16);
  let prompt = instructions;
  let value = null;
  for (let call = 0; call < calls; call += 1) {
    await slots.take();
    try {
      value = await child(prompt);
    } finally {
      slots.give();
    }
    if (!isGood(value)) throw new Error("the value is made to be good");
    prompt = instructions + JSON.stringify(value);
  }
  return value;
}

const [runs, calls] = process.argv.slice(2).map(Number);
for (let warm = 0; warm < 20; warm += 1) await run(calls);
const before = process.cpuUsage();
for (let done = 0; done < runs; done += 1) await run(calls);
const used = process.cpuUsage(before);
console.log((used.user + used.system) / (runs * calls));
