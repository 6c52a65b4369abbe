// The same loop in Node: a child that is resolved at once makes a value as text, the loop reads it, checks it and
// writes it into the next prompt. Prints the processor time per call in microseconds, after a warm-up.
import { readFileSync } from "node:fs";

const instructions = readFileSync(new URL("./instructions.txt", import.meta.url), "utf8");
function valueText(number) {
  return `{"status":"continue","summary":"Call ${number} took the next step of the task, checked it, and left the rest as it was.","done":["wrote the part that was missing","ran all the checks: ${number} passed","read the two files that it touches","noted what surprised in the notes file"],"next":["look at the slow path once more","cut the part that nobody calls","write down how to undo it"],"notes":"Nothing stands in the way. The one thing to keep in mind is that the second check takes a while when the machine is busy."}`;
}

function isText(value) {
  return typeof value === "string" && value !== "" && value.trim() === value;
}

function isGood(value) {
  return (
    value !== null && typeof value === "object" && Object.keys(value).length === 5 &&
    (value.status === "continue" || value.status === "done") && isText(value.summary) &&
    Array.isArray(value.done) && value.done.length < 100 && value.done.every(isText) &&
    Array.isArray(value.next) && value.next.length < 100 && value.next.every(isText) && isText(value.notes)
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
    const json = JSON.stringify(value);
    if (json.length > 16384) throw new Error("the value is made to be short");
    prompt = instructions + json;
  }
  return value;
}

const [runs, calls] = process.argv.slice(2).map(Number);
for (let warm = 0; warm < 20; warm += 1) await run(calls);
const before = process.cpuUsage();
for (let done = 0; done < runs; done += 1) await run(calls);
const used = process.cpuUsage(before);
console.log((used.user + used.system) / (runs * calls));
