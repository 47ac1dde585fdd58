// Runs the script of a report over a stand-in for the browser: node run_page.js page.html
// Prints what the page shows as JSON; exits with an error where the script throws.
"use strict";
const fs = require("fs"), vm = require("vm");
const page = fs.readFileSync(process.argv[2], "utf8");
const ids = [...page.matchAll(/id="([a-z-]+)"/g)].map(match => match[1]);
const drawn = { rects: 0, texts: [] };

class Node {
  constructor(tag) {
    Object.assign(this, { tagName: tag.toUpperCase(), children: [], style: {}, dataset: {},
      listeners: {}, clientWidth: 800, width: 0, height: 0, value: "", hidden: false });
  }
  get firstChild() { return this.children[0]; }
  get textContent() { return this.text ?? this.children.map(child => child.textContent).join(" "); }
  set textContent(text) { this.text = String(text); }
  appendChild(child) { this.children.push(child); this.text = undefined; return child; }
  removeChild(child) { this.children = this.children.filter(each => each !== child); }
  addEventListener(kind, listener) { (this.listeners[kind] ||= []).push(listener); }
  send(kind, event) {
    const whole = { target: this, preventDefault() {}, pointerId: 1, clientX: 400, clientY: 60, ...event };
    for (const listener of this.listeners[kind] || []) listener(whole);
  }
  getBoundingClientRect() { return { left: 0, top: 0, width: 800, height: 400 }; }
  setPointerCapture() {}
  focus() { this.focused = true; }
  getContext() {
    return new Proxy({}, { get: (_, name) => ({ fillRect: () => { drawn.rects++; },
      fillText: text => { drawn.texts.push(text); },
      measureText: text => ({ width: 6 * text.length }) })[name] || (() => {}), set: () => true });
  }
}
const nodes = Object.fromEntries(ids.map(id => [id, new Node("div")]));
nodes.weight.value = "1";
nodes.data.textContent = page.match(/id="data">([^]*?)<\/script>/)[1];
const script = [...page.matchAll(/<script>([^]*?)<\/script>/g)].map(match => match[1]).join("\n");
const root = new Node("html"), page_keys = new Node("document");
const sandbox = {
  document: { getElementById: id => { if (!nodes[id]) throw Error("no element " + id); return nodes[id]; },
    createElement: tag => new Node(tag), createTextNode: text => ({ textContent: text }),
    documentElement: root, addEventListener: (kind, listener) => page_keys.addEventListener(kind, listener) },
  getComputedStyle: () => ({ getPropertyValue: () => " #123 " }), matchMedia: () => ({ matches: false }),
  requestAnimationFrame: call => call(), addEventListener: () => {}, console, JSON, Math, Number,
  devicePixelRatio: 2,
};
sandbox.window = sandbox;
vm.runInNewContext(script, sandbox);

const time = nodes.time, before = drawn.rects;
for (const key of ["+", "-", "ArrowLeft", "ArrowRight", "n", "p", "Home", "Enter"]) time.send("keydown", { key });
time.send("wheel", { deltaY: -1 });
time.send("wheel", { deltaY: 1, shiftKey: true });
time.send("pointerdown", {});
time.send("pointermove", { clientX: 300 });
time.send("pointerup", {});
for (let y = 20; y < 300; y += 9) { time.send("pointerdown", { clientY: y }); time.send("pointerup", { clientY: y }); }
const details = nodes.details.textContent;
nodes.search.value = process.argv[3] || "mul";
nodes.search.send("input", {});
const found = nodes.hits.textContent;
nodes.search.send("keydown", { key: "Enter" });
const picked = nodes.details.textContent;
nodes.search.send("keydown", { key: "Escape" });
page_keys.send("keydown", { key: "/" });
page_keys.send("keydown", { key: "t" });
nodes.flame.send("keydown", { key: "ArrowRight" });
nodes.flame.send("keydown", { key: "Enter" });
nodes.flame.send("keydown", { key: "Escape" });
nodes.flame.send("click", { clientY: 5 });
nodes.weight.value = "2";
nodes.weight.onchange();
for (const id of ["in", "out", "all", "before", "after", "up", "theme"]) nodes[id].onclick();
const heads = nodes.kernels.children[0].children[0].children;
heads[3].children[0].onclick();
console.log(JSON.stringify({ verdict: nodes.verdict.textContent, rects: drawn.rects - before, found,
  picked, details, theme: root.dataset.theme, left: nodes.left.textContent,
  kernels: nodes.kernels.children[1].children.length, heads: heads.length,
  flame: nodes.flame.listeners.click.length, texts: [...new Set(drawn.texts)].slice(0, 60) }));
