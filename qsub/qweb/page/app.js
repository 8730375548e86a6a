// The page: it reads messages from qweb as they come, and keeps what they say of runs, jobs and
// the host. All that comes from jobs is put into the page as text, never as markup.
import { Gantt, keyOf, span, begun, ended, bad, clock, timed } from './gantt.js';

const $ = (id) => document.getElementById(id);
const DAY = 86400e3, KEEP = 15 * 60e3, MOST_RUNS = 8000, MOST_ROWS = 150, LAST = 50;
const RANGES = [['1m', 60e3], ['5m', 300e3], ['15m', 900e3], ['1h', 3600e3], ['6h', 6 * 3600e3], ['24h', DAY]];

const state = { runs: new Map(), queues: [], top: null, status: null, others: [], curves: new Map(), chosen: null, past: 0 };

// make makes an element with attributes and children, strings among which are text.
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, v] of Object.entries(attributes)) {
    if (name === 'class') e.className = v;
    else if (name.startsWith('on')) e.addEventListener(name.slice(2), v);
    else if (v !== undefined && v !== false) e.setAttribute(name, v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
  return e;
}
const text = (e, t) => { if (e.textContent !== t) e.textContent = t; };

// ---- how things are written

export function size(n) {
  if (!n) return '0';
  let k = 0;
  for (; n >= 1000 && k < 5; k++) n /= 1024;
  return (k && n < 100 ? n.toFixed(1) : Math.round(n)) + ' KMGTP'[k].trim() + (k ? '' : ' B');
}
export function lasted(ms) {
  const s = Math.max(0, ms) / 1e3, two = (n) => String(Math.floor(n)).padStart(2, '0');
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)}`;
  if (s < 86400) return `${Math.floor(s / 3600)}:${two(s / 60 % 60)}:${two(s % 60)}`;
  return `${Math.floor(s / 86400)}d ${two(s / 3600 % 24)}:${two(s / 60 % 60)}`;
}
const time = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
const where = (r) => (r.host ? `${r.queue}@${r.host}` : r.queue);
const name = (r) => r.task ? `${r.job}.${r.task}` : String(r.job);
const result = (r) => r.failed < 0 ? 'not run' : r.failed ? `failed ${r.failed}` : r.exit > 128 ? `signal ${r.exit - 128}` : r.exit ? `exit ${r.exit}` : 'ok';

// ---- what comes

function take(m) {
  if (m.error) { link(false, m.error); return; }
  link(true, '');
  if (m.timeline) timed('timeline', () => takeTimeline(m.timeline));
  if (m.top) takeTop(m.top);
  if (m.status) { state.status = m.status; state.others = m.others || []; drawAlarms(); drawOthers(); }
  paint();
}

function takeTimeline(t) {
  if (t.whole) state.runs.clear();
  for (const r of t.runs || []) { state.runs.delete(keyOf(r)); state.runs.set(keyOf(r), r); }
  for (const [key, r] of state.runs) { // in the order of what was heard last of each
    if (!r.over) continue;
    if (state.runs.size <= MOST_RUNS && ended(r, t.now) > t.now - DAY) break;
    state.runs.delete(key);
  }
  state.queues = t.queues;
  chart.take([...state.runs.values()], t.queues, t.now);
  drawEnded();
  if (state.chosen) drawStages();
}

function takeTop(top) {
  const now = Date.now();
  for (const j of top.jobs) {
    if (!j.usage) continue;
    const key = `${j.job}.${j.tasks || ''}`;
    let c = state.curves.get(key);
    if (!c || c.since !== j.time) state.curves.set(key, c = { since: j.time, t: [], cpu: [], mem: [], used: 0, at: 0, limit: 0 });
    const u = j.usage, wall = u.wallclock;
    if (c.at && wall <= c.at) continue; // not measured anew
    c.t.push(now / 1e3);
    c.cpu.push(c.at ? Math.max(0, (u.cpu - c.used) / (wall - c.at)) : null);
    c.mem.push(u.rss / 2 ** 20);
    c.limit = u.mem_limit || 0;
    c.used = u.cpu;
    c.at = wall;
    while (c.t.length && c.t[0] < (now - KEEP) / 1e3) { c.t.shift(); c.cpu.shift(); c.mem.shift(); }
  }
  const there = new Set(top.jobs.map((j) => `${j.job}.${j.tasks || ''}`));
  for (const key of state.curves.keys()) if (!there.has(key)) state.curves.delete(key);
  state.top = top;
  chart.leaves = top.pilot && top.pilot.ends ? Date.parse(top.pilot.ends) : 0;
}

// ---- drawing, once for all that has come

let pending = 0;
function paint() {
  if (pending) return;
  pending = requestAnimationFrame(() => {
    pending = 0;
    timed('update', () => {
      drawFacts();
      drawJobs();
      if (state.chosen) drawCurves();
    });
    document.documentElement.dataset.ready = '1';
  });
}

function drawFacts() {
  const t = state.top;
  if (!t) return;
  text($('host'), t.host);
  if (state.status) $('host').title = `execd ${state.status.version} since ${new Date(state.status.started).toLocaleString()}, control groups: ${state.status.groups}`;
  document.title = `${t.host} – Paddock`;
  const facts = [
    ['slots', `${t.used}/${t.slots}`], ['running', t.running], t.suspended && ['suspended', t.suspended, 'warn'], ['waiting', t.pending],
    t.held && ['held', t.held], t.in_error && ['in error', t.in_error, 'bad'], t.sending && ['sending', t.sending], t.stuck && ['stuck', t.stuck, 'bad'],
    t.load && ['load', t.load.split(' ').map((n) => (+n).toFixed(2)).join(' ')],
    t.memory && ['memory', `${size(t.memory_used)} of ${size(t.memory)}`],
    t.drain && ['', 'draining', 'warn'],
    t.pilot && pilot(t.pilot),
  ].filter(Boolean);
  const box = $('facts');
  while (box.children.length > facts.length) box.lastChild.remove();
  facts.forEach(([label, value, kind], i) => {
    const e = box.children[i] || box.appendChild(make('div', {}, make('dt'), make('dd')));
    e.className = kind || '';
    text(e.children[0], label);
    text(e.children[1], String(value));
  });
}

// pilot says of which job execd is a pilot, and when it ends.
function pilot(p) {
  const of = p.job ? `of ${p.scheduler} job ${p.job}` : 'of no batch system';
  if (!p.ends) return ['pilot', of];
  const ends = Date.parse(p.ends), left = ends - chart.now();
  const at = left > 12 * 3600e3 ? new Date(ends).toLocaleString([], { hour12: false }) : time(ends);
  return ['pilot', `${of}, ends at ${at}, ${lasted(left)} left`, left < 600e3 ? 'warn' : ''];
}

function drawAlarms() {
  const list = state.status.problems || [], box = $('alarms');
  box.hidden = !list.length;
  box.replaceChildren(...list.map((p) => make('p', { class: p.critical ? 'bad' : '' }, p.text)));
}

function drawOthers() {
  $('others-part').hidden = !state.others.length;
  $('others').tBodies[0].replaceChildren(...state.others.map((h) => make('tr', {},
    make('td', {}, h.name), make('td', { class: h.state === 'up' ? 'good' : 'bad' }, h.draining ? `${h.state}, draining` : h.state),
    make('td', { class: 'n' }, String(h.free)), make('td', { class: 'n' }, String(h.slots)), make('td', { class: 'dim' }, h.error || h.version || ''))));
}

const words = {
  r: 'running', t: 'starting', qw: 'waiting', hqw: 'held', s: 'suspended', S: 'suspended', T: 'suspended', Eqw: 'error', to: 'sending', Eto: 'stuck', Rr: 'running',
};
const stateClass = (s) => /E/.test(s) ? 'bad' : /[sST]/.test(s) && !/to/.test(s) || /^h/.test(s) ? 'warn' : /r|t/.test(s) ? 'good' : 'dim';

// A row of jobs is made once, and only what has changed is written.
const rows = new Map();
function row(key) {
  let r = rows.get(key);
  if (r) return r;
  const cells = Array.from({ length: 9 }, (_, i) => make('td', { class: [0, 4, 5, 7].includes(i) ? 'n' : '' }));
  const open = make('button', { type: 'button' });
  cells[0].append(open);
  const meter = make('meter', { min: 0, max: 1, high: 0.9, 'aria-label': 'of its limit' }), used = make('span');
  meter.hidden = true;
  cells[6].append(meter, used);
  r = { e: make('tr', { 'data-key': key }, ...cells), cells, open, meter, used };
  rows.set(key, r);
  return r;
}

function matches(j, filter) {
  return !filter || `${j.job}.${j.tasks || ''} ${j.name} ${j.owner} ${j.state} ${words[j.state] || ''} ${j.queue || ''}`.toLowerCase().includes(filter);
}

function drawJobs() {
  const t = state.top;
  if (!t) return;
  const filter = $('filter').value.trim().toLowerCase(), found = t.jobs.filter((j) => matches(j, filter)), now = Date.now(), body = $('jobs').tBodies[0];
  const shown = found.slice(0, MOST_ROWS), there = new Set();
  shown.forEach((j, i) => {
    const key = `${j.job}.${j.tasks || ''}`, r = row(key), c = r.cells, curve = state.curves.get(key), x = j.transfer;
    there.add(key);
    text(r.open, j.tasks ? `${j.job}.${j.tasks.replace(/:1$/, '')}` : String(j.job));
    text(c[1], j.name);
    text(c[2], j.owner);
    text(c[3], words[j.state] ? `${words[j.state]}` : j.state);
    c[3].title = j.state;
    const kind = stateClass(j.state);
    if (c[3].className !== kind) c[3].className = kind;
    text(c[4], String(j.slots));
    const cpu = curve && curve.cpu.at(-1);
    text(c[5], cpu !== null && cpu !== undefined ? `${Math.round(cpu * 100)} %` : '');
    if (j.usage) {
      const limit = j.usage.mem_limit;
      text(r.used, size(j.usage.rss) + (limit ? ` of ${size(limit)}` : ''));
      r.meter.hidden = !limit;
      if (limit) r.meter.value = j.usage.rss / limit;
    } else {
      r.meter.hidden = true;
      text(r.used, x ? (x.queued ? 'queued' : x.total ? `${Math.round(100 * x.bytes / x.total)} % of ${size(x.total)}` : size(x.bytes)) : '');
    }
    text(c[7], lasted(now + chart.skew - Date.parse(j.time)));
    text(c[8], j.from ? `from ${j.from}` : j.queue ? j.queue.replace(`@${t.host}`, '') : (j.reason || ''));
    r.e.classList.toggle('chosen', !!state.chosen && state.chosen.job === j.job && (!state.chosen.task || String(state.chosen.task) === j.tasks));
    if (body.children[i] !== r.e) body.insertBefore(r.e, body.children[i] || null);
  });
  while (body.children.length > shown.length) body.lastChild.remove();
  for (const key of rows.keys()) if (!there.has(key)) rows.delete(key);
  text($('jobs-title'), `Jobs ${found.length}${filter ? ` of ${t.jobs.length}` : ''}`);
  text($('jobs-more'), found.length > shown.length ? `${found.length - shown.length} more: filter to see them.` : t.jobs.length ? '' : 'Nothing runs and nothing waits.');
}

function drawEnded() {
  const now = chart.now();
  const list = [...state.runs.values()].filter((r) => r.over && r.spans.length).map((r) => [ended(r, now), r]).sort((a, b) => b[0] - a[0]).slice(0, LAST);
  const sign = list.map(([t, r]) => keyOf(r) + t).join();
  if (sign === drawEnded.sign) return;
  drawEnded.sign = sign;
  $('ended').tBodies[0].replaceChildren(...list.map(([t, r]) => {
    const run = span(r, 'run'), first = begun(r);
    return make('tr', { 'data-run': keyOf(r), 'data-key': '' },
      make('td', {}, time(t)), make('td', { class: 'n' }, make('button', { type: 'button' }, name(r))), make('td', {}, r.name), make('td', {}, r.owner),
      make('td', { class: bad(r) ? 'bad' : 'good' }, result(r)), make('td', { class: 'n' }, lasted(first - r.submitted)),
      make('td', { class: 'n' }, run ? lasted(run.end - run.begin) : '–'), make('td', { class: 'dim' }, where(r)));
  }));
  if (!list.length) $('ended').tBodies[0].replaceChildren(make('tr', {}, make('td', { colspan: 8, class: 'dim' }, 'Nothing has ended yet.')));
}

// ---- one job

function choose(job, task, run) {
  state.chosen = { job, task: task || 0 };
  const r = run || [...state.runs.values()].filter((r) => r.job === job && (!task || r.task === task)).pop();
  chart.chosen = r ? keyOf(r) : '';
  chart.paint();
  const body = $('detail-body');
  body.replaceChildren(...['facts', 'why', 'curves', 'stages', 'output'].map((id) => make('div', { id: `d-${id}`, hidden: '' })));
  for (const p of plots.values()) p.destroy();
  plots.clear();
  $('close').hidden = false;
  text($('detail-title'), `${r ? r.name : ''} ${task ? `${job}.${task}` : job}`.trim());
  drawStages();
  ask();
  paint();
}

function close() {
  if (!state.chosen) return;
  state.chosen = null;
  chart.chosen = '';
  chart.paint();
  for (const p of plots.values()) p.destroy();
  plots.clear();
  $('close').hidden = true;
  text($('detail-title'), 'No job chosen');
  $('detail-body').replaceChildren(make('p', { class: 'hint' }, 'Choose a job in the table or a bar of the chart.'));
  paint();
}

const part = (id, title, ...children) => {
  const e = $(`d-${id}`);
  if (!e) return;
  e.hidden = !children.length;
  e.replaceChildren(...(title ? [make('h3', {}, title)] : []), ...children);
};
const pairs = (list) => make('dl', {}, ...list.filter(Boolean).flatMap(([k, v]) => [make('dt', {}, k), make('dd', {}, v)]));

async function get(path) {
  const r = await fetch(path, { headers: headers() });
  if (!r.ok) throw new Error((await r.text()).trim());
  return r.json();
}

// ask asks for what is known of the chosen job beside what all see, and again as long as it is.
let asking = 0;
async function ask() {
  clearTimeout(asking);
  const c = state.chosen;
  if (!c || document.hidden) return;
  const of = `job=${c.job}${c.task ? `&task=${c.task}` : ''}`;
  try {
    const j = await get(`/api/job?${of}`), r = state.runs.get(chart.chosen);
    if (state.chosen !== c) return;
    if (!j.over) drawJob(j, c);
    else {
      if (r) part('facts', '', pairs([['owner', r.owner], ['submitted', new Date(r.submitted).toLocaleString()], ['ran in', where(r) + (r.slots ? `, slot ${r.slots.replace('_', '.')}` : '')], ['result', result(r)]]));
      part('why');
    }
    if (j.me && (j.owner || r && r.owner) === j.me) drawOutput(await get(`/api/output?${of}`), c); else part('output');
  } catch (e) { link(false, e.message); }
  if (state.chosen === c) asking = setTimeout(ask, 3000);
}

function drawJob(j, c) {
  text($('detail-title'), `${j.name} ${c.task ? `${c.job}.${c.task}` : c.job}`);
  const t = (j.tasks || []).find((t) => !c.task || t.task === c.task);
  part('facts', '', pairs([
    ['owner', `${j.owner} (${j.group})`], ['submitted', new Date(j.submitted).toLocaleString()],
    j.hard && ['asks for', j.hard.map((r) => `${r.name}=${r.value}`).join(', ')],
    j.pending && ['waiting tasks', j.pending], j.finished && ['ended tasks', String(j.finished)],
    t && t.queue && ['runs in', t.queue], t && t.binding && ['cores', t.binding],
    t && t.usage && ['processor', lasted(t.usage.cpu * 1e3) + (t.usage.cpu_limit ? ` of ${lasted(t.usage.cpu_limit * 1e3)}` : '')],
    t && t.usage && ['memory', `${size(t.usage.rss)}, at most ${size(t.usage.maxrss)}${t.usage.mem_limit ? ` of ${size(t.usage.mem_limit)}` : ''}`],
    t && t.usage && t.usage.time_limit && ['time', `${lasted(t.usage.wallclock * 1e3)} of ${lasted(t.usage.time_limit * 1e3)}`],
    t && t.usage && t.usage.pids && ['processes', String(t.usage.pids)],
  ]));
  const why = [...(j.reasons || []), ...(j.tasks || []).filter((t) => t.reason).map((t) => t.reason), t && t.suspended, t && t.silent, t && t.transfer && t.transfer.failure].filter(Boolean);
  const list = [...new Set(why)].slice(0, 12);
  part('why', 'Why', ...(list.length ? [make('ul', {}, ...list.map((w) => make('li', {}, w)))] : []));
  state.hooks = t && t.hooks || [];
  drawStages();
}

function drawOutput(o, c) {
  if (state.chosen !== c) return;
  const old = $('d-output').querySelector('pre');
  if (old && old.textContent === o.text) return;
  if (!o.text) { part('output', 'Output', make('p', { class: 'dim' }, o.why || 'none yet')); return; }
  const pre = make('pre', { tabindex: 0, role: 'region', 'aria-label': 'Output' }, o.text);
  part('output', `${o.more ? 'End of ' : ''}${o.path}`, pre);
  pre.scrollTop = pre.scrollHeight;
}

const kinds = { slot: 'has its slot', hook: 'hook', in: 'input', run: 'runs', suspended: 'suspended', out: 'output' };
function drawStages() {
  const r = state.runs.get(chart.chosen), now = chart.now();
  if (!r) { part('stages'); return; }
  const list = [{ what: 'waited', begin: r.submitted, end: begun(r) }, ...r.spans.map((s) => ({ ...s, what: kinds[s.kind] }))].filter((s) => s.begin && isFinite(s.end ?? 0));
  list.sort((a, b) => a.begin - b.begin);
  const hooks = (state.hooks || []).map((h) => make('tr', {}, make('td', {}, h.hook), make('td', {}, time(Date.parse(h.started))), make('td', { class: 'n' }, lasted(h.took * 1e3)), make('td', {}, h.running ? 'runs' : h.result || '')));
  part('stages', 'Stages', make('table', {}, make('tbody', {}, ...list.map((s) => make('tr', {},
    make('td', { class: s.failed ? 'bad' : '' }, s.failed ? `${s.what}, failed` : s.what), make('td', {}, time(s.begin)),
    make('td', { class: 'n' }, lasted((s.end || now) - s.begin) + (s.end ? '' : ' …')), make('td', {}, s.bytes ? size(s.bytes) : ''))), ...hooks)));
}

// Curves of the chosen job.
const plots = new Map();
function drawCurves() {
  const key = `${state.chosen.job}.${state.chosen.task || ''}`, c = state.curves.get(key), box = $('d-curves');
  if (!box) return;
  if (!c || c.t.length < 2) { if (!plots.size) box.hidden = true; return; }
  box.hidden = false;
  const css = getComputedStyle(document.documentElement), colour = (n) => css.getPropertyValue(n).trim();
  for (const [id, title, values, stroke] of [['cpu', 'Processors', c.cpu, '--in'], ['mem', 'Memory, MB', c.mem, '--hook']]) {
    const data = id === 'mem' && c.limit ? [c.t, values, c.t.map(() => c.limit / 2 ** 20)] : [c.t, values];
    let p = plots.get(id);
    if (p && p.series.length !== data.length) { p.destroy(); p.root.parentElement?.remove(); plots.delete(id); p = null; }
    if (!p) {
      const into = make('div', { class: 'curve' }, make('h3', {}, title));
      box.append(into);
      const axis = { stroke: colour('--dim'), grid: { stroke: colour('--grid'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
      p = new uPlot({
        width: Math.max(200, box.clientWidth - 24), height: 104, cursor: { show: false }, legend: { show: false }, padding: [6, 6, 0, 0],
        axes: [{ ...axis, size: 22, space: 70, incrs: [5, 10, 15, 30, 60, 120, 300], values: (_, list, __, ___, step) => list.map((t) => clock(t * 1e3, step * 1e3)) }, { ...axis, size: 44, space: 26 }],
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, id === 'cpu' ? 1 : 8)] } },
        series: [{}, { stroke: colour(stroke), width: 1.5, points: { show: false } }, { stroke: colour('--bad'), width: 1, dash: [4, 4], points: { show: false } }].slice(0, data.length),
      }, data, into);
      plots.set(id, p);
    } else p.setData(data);
  }
}

// ---- the connection

const headers = () => location.hash.length > 1 ? { Authorization: `Bearer ${location.hash.slice(1)}` } : {};
function link(on, why) {
  const e = $('link');
  e.classList.toggle('off', !on);
  text(e, on ? 'live' : why);
}

async function listen() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 15e3)) {
    try {
      const r = await fetch('/api/live', { headers: headers() });
      if (!r.ok) {
        link(false, (await r.text()).trim());
        if (r.status === 401 || r.status === 403) return;
      } else {
        const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ''; ;) {
          const { value, done } = await reader.read();
          if (done) break;
          rest += value;
          for (let at; (at = rest.indexOf('\n')) >= 0; rest = rest.slice(at + 1)) { take(JSON.parse(rest.slice(0, at))); wait = 500; }
        }
        link(false, 'the connection broke');
      }
    } catch { link(false, 'qweb does not answer'); }
    await new Promise((on) => setTimeout(on, wait));
  }
}

// ---- who looks

const chart = new Gantt($('chart'), $('room'), {
  moved() {
    for (const b of $('zoom').children) b.setAttribute('aria-pressed', String(+b.dataset.width === chart.width));
    $('now').hidden = chart.follows;
  },
  choose(r) { if (r) choose(r.job, r.task, r); else close(); },
  tip(r, x, y) {
    const e = $('tip');
    e.hidden = !r;
    if (!r) return;
    const run = span(r, 'run'), now = chart.now();
    e.replaceChildren(make('b', {}, r.name), `${name(r)} of ${r.owner}${r.host ? ` on ${r.host}` : ''}`, make('br'),
      run ? `${time(run.begin)}–${run.end ? time(run.end) : ''} ${lasted((run.end || now) - run.begin)}` : 'not running yet', make('br'),
      make('span', { class: r.over && bad(r) ? 'bad' : 'dim' }, r.over ? result(r) : 'goes on'));
    e.style.left = `${Math.min(x + 14, innerWidth - e.offsetWidth - 8)}px`;
    e.style.top = `${Math.min(y + 14, innerHeight - e.offsetHeight - 8)}px`;
  },
});

for (const [label, width] of RANGES) {
  $('zoom').append(make('button', { type: 'button', 'data-width': width, 'aria-pressed': String(width === chart.width), onclick: () => chart.show(width) }, label));
}
$('now').addEventListener('click', () => chart.follow());
$('close').addEventListener('click', close);
$('filter').addEventListener('input', paint);
$('jobs').addEventListener('click', (e) => {
  const key = e.target.closest('tr[data-key]')?.dataset.key;
  if (!key) return;
  const [, job, task] = key.match(/^(\d+)\.(.*)$/);
  choose(+job, /^\d+$/.test(task) ? +task : 0);
});
$('ended').addEventListener('click', (e) => {
  const r = state.runs.get(e.target.closest('tr[data-run]')?.dataset.run);
  if (r) choose(r.job, r.task, r);
});

function scheme(to) {
  document.documentElement.dataset.theme = to;
  try { localStorage.setItem('theme', to); } catch { /* it is not kept */ }
  for (const p of plots.values()) { p.destroy(); p.root.parentElement?.remove(); }
  plots.clear();
  chart.paint();
  paint();
}
const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
try { const kept = localStorage.getItem('theme'); if (kept === 'dark' || kept === 'light') document.documentElement.dataset.theme = kept; } catch { /* none is kept */ }
const turn = () => scheme(dark() ? 'light' : 'dark');
$('theme').addEventListener('click', turn);

const keys = {
  ArrowLeft: () => chart.move(-chart.width / 8), ArrowRight: () => chart.move(chart.width / 8), '+': () => chart.zoom(.5), '=': () => chart.zoom(.5), '-': () => chart.zoom(2),
  0: () => chart.follow(), n: () => chart.step(1), p: () => chart.step(-1), d: turn, '/': () => $('filter').focus(), Escape: close,
};
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target === $('filter')) {
    if (e.key === 'Escape') { $('filter').value = ''; $('filter').blur(); paint(); }
    return;
  }
  if (e.target.closest('.scroll, pre') && e.key.startsWith('Arrow')) return;
  const act = keys[e.key];
  if (act) { e.preventDefault(); act(); }
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) { chart.paint(); ask(); } });

// What goes on grows: by a pixel now and then.
(function grow() {
  if (!document.hidden && chart.follows) chart.paint();
  setTimeout(grow, Math.min(10e3, Math.max(250, chart.width / 1500)));
})();
listen();
