// The chart of slots over time, on a canvas: thousands of bars are drawn in a few milliseconds.
// A lane is a slot. Its bar is the run that has it, and strips below show files on their way: input,
// and below it output, which is seen to travel beside the next run and its input.

const LANE = 26, TOP = 3, BAR = 14, STRIP = 3, AXIS = 22, MIN = 10e3, MAX = 36 * 3600e3;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * 1e3);

// Colours of runs by their job: light ones below dark text, and dark ones below light text.
const LIGHT = ['#a9c8ea', '#a8d6b8', '#f1cf9c', '#d8bde6', '#f2bcbc', '#a6d9d8', '#dcd596', '#c5cad8', '#b9c2f0', '#e6c3ae'];
const DARK = ['#2f5a86', '#2c694a', '#7d551f', '#653f76', '#823c46', '#1d666a', '#635d22', '#4a5267', '#434c94', '#6f4a33'];

export const keyOf = (r) => `${r.job}.${r.task || 0}.${r.run || 0}`;
export const span = (r, kind) => r.spans.find((s) => s.kind === kind);
export const begun = (r) => r.spans.reduce((t, s) => Math.min(t, s.begin), Infinity);
export const ended = (r, now) => r.spans.reduce((t, s) => Math.max(t, s.end || now), 0);

// timed measures how long something takes, for who wants to know. Of the last it is remembered.
let measured = 0;
export function timed(name, act) {
  const start = performance.now();
  act();
  if (++measured % 200 === 0) performance.clearMeasures();
  performance.measure(name, { start, end: performance.now() });
}

export class Gantt {
  constructor(canvas, room, events) {
    Object.assign(this, { canvas, room, events, runs: [], queues: [], lanes: [], width: 15 * 60e3, end: 0, skew: 0, leaves: 0, chosen: '', hover: null });
    this.box = canvas.parentElement;
    this.context = canvas.getContext('2d');
    new ResizeObserver(() => this.paint()).observe(this.box);
    this.box.addEventListener('scroll', () => this.paint(), { passive: true });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
    this.listen();
  }

  // now is the time of the host.
  now() { return Date.now() + this.skew; }
  // right is where the view ends: shortly after now, or after the end of a pilot that is near.
  right() {
    const now = this.now();
    if (this.end) return this.end;
    return Math.max(now + this.width * 0.02, this.leaves > now && this.leaves - now < this.width / 8 ? this.leaves + this.width * 0.02 : 0);
  }
  get follows() { return !this.end; }

  show(width) { this.width = Math.min(MAX, Math.max(MIN, width)); this.moved(); }
  follow() { this.end = 0; this.moved(); }
  move(by) {
    const end = (this.end || this.now()) + by;
    this.end = end >= this.now() ? 0 : Math.max(end, this.now() - 25 * 3600e3);
    this.moved();
  }
  zoom(factor, at) {
    const right = this.right(), t = right - this.width + (at ?? 1) * this.width;
    const width = Math.min(MAX, Math.max(MIN, this.width * factor));
    if (!this.follows || at !== undefined && at < 0.9) this.end = Math.min(t + (right - t) * width / this.width, this.now());
    if (this.end && this.now() - this.end < width * 0.01) this.end = 0;
    this.width = width;
    this.moved();
  }
  moved() { this.events.moved(); this.paint(); }

  take(runs, queues, now) {
    this.runs = runs;
    this.queues = queues;
    this.skew = now - Date.now();
    this.paint();
  }

  // arrange places runs in lanes: those of this host, and below those of others a lane for each slot
  // in which one of its jobs is.
  arrange(from, to, now) {
    const hosts = new Map([['', []]]);
    for (const r of this.runs) {
      if (begun(r) > to || ended(r, now) < from) continue;
      const host = r.host || '';
      if (!hosts.has(host)) hosts.set(host, []);
      hosts.get(host).push(r);
    }
    const lanes = this.arrangeHost('', hosts.get(''), this.queues, now);
    for (const host of [...hosts.keys()].sort().slice(1)) {
      lanes.push({ host, head: true, runs: [] }, ...this.arrangeHost(host, hosts.get(host), [], now));
    }
    return lanes;
  }

  // arrangeHost places runs in lanes of a host: those of the queues, those that were carved, and for
  // runs of which the slot is not known the first that is free.
  arrangeHost(host, runs, queues, now) {
    const lanes = [], at = new Map();
    const add = (queue, name) => {
      const lane = { host, queue, name, runs: [], until: 0 };
      at.set(`${queue}:${name}`, lane);
      lanes.push(lane);
      return lane;
    };
    const loose = [], carved = new Map(), placed = [];
    for (const r of runs) {
      if (!r.slots) { loose.push(r); continue; }
      placed.push(r);
      for (const name of r.slots.split(',')) if (name.includes('_')) carved.set(`${r.queue}:${name}`, [r.queue, name]);
    }
    for (const q of queues) {
      const own = [...carved.values()].filter(([queue]) => queue === q.name).map(([, name]) => name);
      for (let i = 1; i <= q.slots; i++) {
        const parts = own.filter((name) => name.startsWith(`${i}_`)).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
        if (parts.length) for (const name of parts) add(q.name, name);
        else add(q.name, String(i));
      }
    }
    for (const r of placed) for (const name of r.slots.split(',')) (at.get(`${r.queue}:${name}`) || add(r.queue, name)).runs.push(r);
    if (host) lanes.sort((a, b) => a.queue.localeCompare(b.queue) || a.name.localeCompare(b.name, 'en', { numeric: true }));
    loose.sort((a, b) => begun(a) - begun(b));
    for (const lane of lanes) lane.until = lane.runs.reduce((t, r) => Math.min(t, begun(r)), Infinity);
    const last = new Map();
    for (const r of loose) {
      const free = lanes.find((l) => l.queue === r.queue && (last.get(l) || 0) <= begun(r) && l.until >= ended(r, now)) || add(r.queue, '?');
      last.set(free, ended(r, now));
      free.until = free.until || Infinity;
      free.runs.push(r);
    }
    return lanes;
  }

  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      timed('chart', () => this.draw());
    });
  }

  style() {
    const css = getComputedStyle(document.documentElement);
    const of = (name) => css.getPropertyValue(name).trim();
    const dark = of('--ground') === '#101418';
    return { dark, runs: dark ? DARK : LIGHT, text: of('--text'), dim: of('--dim'), line: of('--line'), grid: of('--grid'), panel: of('--panel'), idle: of('--idle'), hook: of('--hook'), in: of('--in'), out: of('--out'), bad: of('--bad'), warn: of('--warn'), focus: of('--focus'), hatch: of('--hatch') };
  }

  draw() {
    const now = this.now(), to = this.right(), from = to - this.width;
    const w = this.box.clientWidth, gutter = w < 500 ? 46 : 88;
    this.lanes = this.arrange(from, to, now);
    const all = AXIS + this.lanes.length * LANE + 6;
    const most = parseFloat(getComputedStyle(this.box).maxHeight) || 640;
    const h = Math.min(all, most), scale = devicePixelRatio || 1;
    const spare = `${Math.max(0, all - h)}px`;
    if (this.room.style.height !== spare) this.room.style.height = spare;
    const c = this.context;
    if (this.canvas.width !== Math.round(w * scale) || this.canvas.height !== Math.round(h * scale)) {
      this.canvas.width = Math.round(w * scale);
      this.canvas.height = Math.round(h * scale);
      this.canvas.style.height = `${h}px`;
    }
    const s = this.style();
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, w, h);
    c.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    c.textBaseline = 'middle';
    const x = (t) => gutter + (t - from) / this.width * (w - gutter);
    this.view = { from, to, gutter, w };
    this.hits = [];

    const top = AXIS - this.box.scrollTop;
    c.save();
    c.beginPath();
    c.rect(0, AXIS, w, h - AXIS);
    c.clip();
    let queue = null;
    this.lanes.forEach((lane, i) => {
      const y = top + i * LANE;
      if (y + LANE < AXIS || y > h) { queue = lane.queue ?? null; return; }
      if (lane.head) {
        c.fillStyle = s.grid;
        c.fillRect(0, y, w, LANE - 1);
        c.fillStyle = s.dim;
        c.fillRect(0, y - 1, w, 1);
        c.textAlign = 'left';
        c.fillText(fit(c, `on ${lane.host}`, w - 24), 12, y + LANE / 2);
        queue = null;
        return;
      }
      c.fillStyle = s.grid;
      c.fillRect(0, y + LANE - 1, w, 1);
      c.fillStyle = lane.queue === queue && i ? s.dim : s.text;
      c.textAlign = 'right';
      const number = lane.name.replace('_', '.');
      c.fillText(number, gutter - 8, y + TOP + BAR / 2 + .5);
      if (lane.queue !== queue) {
        c.textAlign = 'left';
        if (gutter > 50) c.fillText(fit(c, lane.queue, gutter - 34), 12, y + TOP + BAR / 2 + .5);
        if (queue !== null) { c.fillStyle = s.dim; c.fillRect(0, y - 1, w, 1); }
      }
      queue = lane.queue;
    });
    c.beginPath();
    c.rect(gutter, AXIS, w - gutter, h - AXIS);
    c.clip();
    const [ticks, step] = this.ticks(from, to, w - gutter);
    c.fillStyle = s.grid;
    for (const t of ticks) c.fillRect(Math.round(x(t)), AXIS, 1, h);
    c.textAlign = 'left';
    this.lanes.forEach((lane, i) => {
      const y = top + i * LANE + TOP;
      if (y + LANE < AXIS || y > h) return;
      for (const r of lane.runs) this.drawRun(c, s, x, r, y, now);
    });
    if (now <= to) {
      c.fillStyle = s.bad;
      c.fillRect(Math.round(x(now)), AXIS, 1, h);
    }
    const leaves = this.leaves >= from && this.leaves <= to ? Math.round(x(this.leaves)) : -1;
    if (leaves >= 0) {
      c.fillStyle = s.warn;
      for (let y = AXIS; y < h; y += 8) c.fillRect(leaves, y, 2, 5);
    }
    c.restore();

    c.fillStyle = s.line;
    c.fillRect(0, AXIS - 1, w, 1);
    c.fillStyle = s.dim;
    c.textAlign = 'center';
    for (const t of ticks) if (x(t) > gutter + 20 && x(t) < w - 24 && (leaves < 0 || Math.abs(x(t) - leaves) > 64)) c.fillText(clock(t, step), x(t), AXIS / 2);
    if (leaves >= 0) {
      c.fillStyle = s.warn;
      c.fillText('pilot ends', Math.max(gutter + 30, Math.min(leaves, w - 30)), AXIS / 2);
    }
  }

  // drawRun draws a run in a lane. What is narrower than a pixel is drawn as one.
  drawRun(c, s, x, r, y, now) {
    const key = keyOf(r), colour = s.runs[r.job % s.runs.length];
    const box = (sp) => { const a = x(sp.begin), b = x(sp.end || now); return [a, Math.max(b - a, 1)]; };
    let left = Infinity, right = -Infinity, label = null;
    for (const sp of r.spans) {
      const [a, n] = box(sp);
      if (a > this.view.w || a + n < this.view.gutter) continue;
      left = Math.min(left, a);
      right = Math.max(right, a + n);
      switch (sp.kind) {
        case 'slot': c.fillStyle = s.idle; c.fillRect(a, y + 3, n, BAR - 6); break;
        case 'hook': c.fillStyle = sp.failed ? s.bad : s.hook; c.fillRect(a, y + 2, n, BAR - 4); break;
        case 'run':
          c.fillStyle = colour;
          if (n > 4) { c.beginPath(); c.roundRect(a, y, n, BAR, 2); c.fill(); } else c.fillRect(a, y, n, BAR);
          label = [a, n];
          break;
        case 'suspended': hatch(c, s.hatch, a, y, n); break;
        case 'in': c.fillStyle = sp.failed ? s.bad : s.in; c.fillRect(a, y + BAR + 1, n, STRIP); break;
        case 'out': c.fillStyle = sp.failed ? s.bad : s.out; c.fillRect(a, y + BAR + 1 + STRIP, n, STRIP); break;
      }
    }
    if (left === Infinity) return;
    if (r.over && bad(r) && label) { c.fillStyle = s.bad; c.fillRect(label[0] + Math.max(label[1] - 3, 0), y, Math.min(3, label[1]), BAR); }
    if (label) {
      const a = Math.max(label[0], this.view.gutter), n = label[0] + label[1] - a;
      if (n > 34) { c.fillStyle = s.text; c.fillText(fit(c, r.name, n - 8), a + 5, y + BAR / 2 + .5); }
    }
    if (key === this.chosen) {
      c.strokeStyle = s.focus;
      c.lineWidth = 2;
      c.strokeRect(left - 1, y - 1, right - left + 2, BAR + 2);
      const first = begun(r);
      if (r.submitted && r.submitted < first) { // how long it waited
        c.setLineDash([2, 3]);
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(x(r.submitted), y + BAR / 2);
        c.lineTo(x(first), y + BAR / 2);
        c.stroke();
        c.setLineDash([]);
      }
    }
    this.hits.push([left, y - 1, right, y + BAR + 1 + 2 * STRIP, r]);
  }

  ticks(from, to, px) {
    const step = STEPS.find((n) => n / this.width * px >= 74) || 86400e3;
    const zone = new Date(to).getTimezoneOffset() * 60e3, list = [];
    for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) list.push(t);
    return [list, step];
  }

  at(e) {
    const r = this.canvas.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top;
    if (py < AXIS || !this.hits) return null;
    let best = null, near = 4;
    for (const [a, y, b, z, run] of this.hits) {
      if (py < y || py > z) continue;
      const off = px < a ? a - px : px > b ? px - b : 0;
      if (off < near || off === 0) { best = run; near = off; if (!off && span(run, 'run')) break; }
    }
    return best;
  }

  listen() {
    const c = this.canvas;
    let from = null, went = false;
    c.addEventListener('pointerdown', (e) => { if (e.button === 0) { from = [e.clientX, this.right()]; went = false; } });
    c.addEventListener('pointermove', (e) => {
      if (from && e.buttons) {
        const by = e.clientX - from[0];
        if (!went && Math.abs(by) < 4) return;
        if (!went) { went = true; c.setPointerCapture(e.pointerId); }
        this.end = from[1];
        this.move(-by / (this.view.w - this.view.gutter) * this.width);
        this.events.tip(null);
        return;
      }
      this.events.tip(this.at(e), e.clientX, e.clientY);
    });
    c.addEventListener('pointerup', (e) => { if (from && !went) this.events.choose(this.at(e)); from = null; });
    c.addEventListener('pointercancel', () => { from = null; });
    c.addEventListener('pointerleave', () => this.events.tip(null));
    c.addEventListener('wheel', (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) {
        e.preventDefault();
        const px = e.clientX - c.getBoundingClientRect().left - this.view.gutter;
        this.zoom(Math.exp(e.deltaY / 300), px / (this.view.w - this.view.gutter));
      } else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
        e.preventDefault();
        this.move(e.deltaX / (this.view.w - this.view.gutter) * this.width);
      }
    }, { passive: false });
  }

  // step chooses the next or the previous run that is shown, lane by lane.
  step(by) {
    const list = [...new Set(this.lanes.flatMap((l) => [...l.runs].sort((a, b) => begun(a) - begun(b))))];
    if (!list.length) return;
    const i = list.findIndex((r) => keyOf(r) === this.chosen);
    this.events.choose(list[i < 0 ? (by > 0 ? 0 : list.length - 1) : (i + by + list.length) % list.length]);
  }
}

export const bad = (r) => r.failed !== 0 && r.failed !== undefined || (r.exit ?? 0) !== 0;

function hatch(c, colour, a, y, n) {
  c.save();
  c.beginPath();
  c.rect(a, y, n, BAR);
  c.clip();
  c.strokeStyle = colour;
  c.globalAlpha = .4;
  c.lineWidth = 1.5;
  c.beginPath();
  for (let i = Math.max(a - BAR, -BAR) - ((a - BAR) % 5); i < Math.min(a + n, 8000); i += 5) { c.moveTo(i, y + BAR); c.lineTo(i + BAR, y); }
  c.stroke();
  c.restore();
}

// fit cuts a text to a width.
function fit(c, text, width) {
  const per = 6.2;
  let n = Math.min(text.length, Math.ceil(width / 3));
  if (n === text.length && text.length * per < width * .8) return text;
  let cut = n < text.length ? `${text.slice(0, n)}…` : text;
  while (n > 1 && c.measureText(cut).width > width) cut = `${text.slice(0, --n)}…`;
  return n > 1 || text.length === 1 ? cut : '';
}

// clock writes a time as finely as a step wants it, and midnight as the day that begins.
export function clock(t, step) {
  const d = new Date(t), two = (n) => String(n).padStart(2, '0');
  if (step >= 3600e3 && d.getHours() + d.getMinutes() === 0) return `${d.getMonth() + 1}/${d.getDate()}`;
  return `${two(d.getHours())}:${two(d.getMinutes())}${step < 60e3 ? `:${two(d.getSeconds())}` : ''}`;
}
