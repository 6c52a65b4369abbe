// The same in Node: a small engine that takes the steps of ours for each call, a registry that checks the request and
// the value, a provider whose children are resolved at once, and a body that loops. Prints the processor time per
// call in microseconds, after a warm-up.
import { randomUUID } from "node:crypto";
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

// What the schema of the contract says.
function admits(value) {
  const texts = (items) => Array.isArray(items) && items.every((item) => typeof item === "string");
  const keys = ["status", "summary", "done", "next", "notes"];
  return (
    value !== null && typeof value === "object" && !Array.isArray(value) &&
    keys.every((key) => key in value) && Object.keys(value).every((key) => keys.includes(key)) &&
    (value.status === "continue" || value.status === "done") && typeof value.summary === "string" &&
    texts(value.done) && texts(value.next) && typeof value.notes === "string"
  );
}

// A value that crosses is copied, and refused when it is not plain.
function plainCopy(value, depth = 0) {
  if (depth > 100) throw new Error("the value is nested too deep");
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Error("the value has a number that JSON has not");
    return value;
  }
  if (Array.isArray(value)) return value.map((item) => plainCopy(item, depth + 1));
  if (typeof value !== "object") throw new Error("the value is not plain");
  const copy = {};
  for (const key of Object.keys(value)) copy[key] = plainCopy(value[key], depth + 1);
  return copy;
}

const instant = {
  name: "instant",
  capabilities: { outputContract: true, depthLimit: true, toolRestriction: true, persona: true, modelChoice: true },
  async start(request) {
    if (request.signal.aborted) throw new Error("cancelled");
    // The bytes of the text, as on the other side: a text that is only noted down as the sum of two is no prompt yet.
    const length = Buffer.byteLength(request.prompt);
    return {
      id: "instant",
      async result() {
        return { stopReason: "completed", output: "", structured: JSON.parse(valueText(length)) };
      },
      async dispose() {},
    };
  },
};

class Registry {
  constructor() {
    this.started = 0;
  }
  async startOn(provider, request) {
    if (request.output !== undefined && !provider.capabilities.outputContract) throw new Error("lacks a capability");
    if (request.model !== undefined && !provider.capabilities.modelChoice) throw new Error("lacks a capability");
    if (request.tools !== undefined && !provider.capabilities.toolRestriction) throw new Error("lacks a capability");
    const child = await provider.start(request);
    this.started += 1;
    let ended = false;
    return {
      id: child.id,
      async result() {
        const result = await child.result();
        if (result.stopReason === "completed" && request.output !== undefined && !request.output(result.structured)) {
          result.stopReason = "schema-refused";
        }
        ended = true;
        return result;
      },
      async dispose() {
        await child.dispose();
        ended = true;
      },
    };
  }
}

class Slots {
  constructor(count) {
    this.free = count;
    this.queue = [];
  }
  async take() {
    if (this.free > 0) {
      this.free -= 1;
      return;
    }
    await new Promise((resolve) => this.queue.push(resolve));
  }
  give() {
    const next = this.queue.shift();
    if (next) next();
    else this.free += 1;
  }
}

const optionKeys = new Set(["label", "phase", "output", "model", "tools"]);

class Run {
  constructor(registry, provider, body, args, maxAgents) {
    Object.assign(this, { registry, provider, args, maxAgents });
    this.id = randomUUID();
    this.stop = new AbortController();
    this.slots = new Slots(16);
    this.children = new Set();
    this.agentsStarted = 0;
    this.result = this.drive(body);
  }
  async drive(body) {
    const value = plainCopy(await body(this));
    this.stop.abort();
    for (const child of this.children) await child.dispose();
    return { stopReason: "completed", value, agentsStarted: this.agentsStarted };
  }
  async agent(prompt, options) {
    if (this.stop.signal.aborted) throw new Error("cancelled");
    if (typeof prompt !== "string" || prompt === "") throw new Error("a child's prompt must not be empty");
    for (const key of Object.keys(options)) if (!optionKeys.has(key)) throw new Error("an option is unknown");
    if (this.agentsStarted >= this.maxAgents) throw new Error("the run may start no more children");
    this.agentsStarted += 1;
    const call = this.agentsStarted;
    await this.slots.take();
    try {
      const request = {
        prompt, label: options.label, origin: { run: this.id, call, attempt: 1 },
        parent: { id: "bench", workspace: "/tmp", depth: 0 }, signal: this.stop.signal, output: options.output,
      };
      const child = await this.registry.startOn(this.provider, request);
      this.children.add(child);
      try {
        const result = await child.result();
        if (result.stopReason !== "completed") return null;
        return plainCopy(result.structured);
      } finally {
        await child.dispose();
        this.children.delete(child);
      }
    } finally {
      this.slots.give();
    }
  }
}

async function body(run) {
  let prompt = instructions;
  let value = null;
  for (let call = 0; call < run.args; call += 1) {
    value = await run.agent(prompt, { label: "call", output: admits });
    if (!isGood(value)) throw new Error("the value is made to be good");
    const json = JSON.stringify(value);
    if (json.length > 16384) throw new Error("the value is made to be short");
    prompt = instructions + json;
  }
  return value;
}

const registry = new Registry();
const run = (calls) => new Run(registry, instant, body, calls, 1e9).result;
const [runs, calls] = process.argv.slice(2).map(Number);
for (let warm = 0; warm < 20; warm += 1) await run(calls);
const before = process.cpuUsage();
for (let done = 0; done < runs; done += 1) await run(calls);
const used = process.cpuUsage(before);
console.log((used.user + used.system) / (runs * calls));
