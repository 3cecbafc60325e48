'use strict';
{
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const root = document.documentElement, tip = document.getElementById('tip');
  root.classList.add('script');

  // Light or dark: the system's choice until the button is used.
  const scheme = document.getElementById('scheme'), dark = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => root.dataset.scheme ? root.dataset.scheme === 'dark' : dark.matches;
  const name = () => { scheme.textContent = isDark() ? 'Light page' : 'Dark page'; if (draw) draw(); };
  let draw = null;
  scheme.hidden = false;
  scheme.onclick = () => { root.dataset.scheme = isDark() ? 'light' : 'dark'; name(); };
  dark.onchange = name;

  const say = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
    tip.style.top = Math.max(8, Math.min(y + 16, innerHeight - tip.offsetHeight - 8)) + 'px';
  };
  const hush = () => { tip.hidden = true; };

  // Headings sort.
  const table = document.getElementById('table');
  for (const button of table ? all('thead button', table) : []) button.onclick = () => {
    const th = button.closest('th'), at = th.cellIndex, words = th.classList.contains('words');
    const down = words ? th.getAttribute('aria-sort') === 'ascending' : th.getAttribute('aria-sort') !== 'descending';
    for (const other of th.parentNode.cells) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const body = table.tBodies[0], rows = [...body.rows];
    const value = row => words ? row.cells[at].textContent : +row.cells[at].dataset.value;
    rows.sort((a, b) => (words ? value(a).localeCompare(value(b), 'en', { numeric: true }) : value(a) - value(b)) * (down ? -1 : 1));
    body.append(...rows);
  };

  // The flame picture: the bar that is clicked takes the whole width, and those above it too.
  const picture = document.getElementById('picture');
  if (picture) {
    const bars = all('g', picture), width = +picture.dataset.width;
    const said = new Map(bars.map(bar => [bar, bar.querySelector('title').textContent]));
    for (const bar of bars) bar.querySelector('title').remove();
    const show = (from, size) => {
      for (const bar of bars) {
        const x = (+bar.dataset.x - from) / size * width, w = +bar.dataset.w / size * width;
        const left = Math.max(0, x), right = Math.min(width, x + w);
        bar.style.display = right - left < 0.3 ? 'none' : '';
        const rect = bar.querySelector('rect'), text = bar.querySelector('text');
        rect.setAttribute('x', left);
        rect.setAttribute('width', Math.max(0.3, right - left - 0.6));
        text.setAttribute('x', left + 4);
        const letters = Math.floor((right - left - 8) / 6.6), label = bar.dataset.label;
        text.textContent = letters < 3 ? '' : label.length <= letters ? label : label.slice(0, letters - 1) + '…';
      }
    };
    picture.onclick = event => {
      const bar = event.target.closest('g');
      if (bar) show(+bar.dataset.x, +bar.dataset.w);
    };
    picture.onkeydown = event => { if (event.key === 'Escape') show(0, width); };
    picture.onpointermove = event => {
      const bar = event.target.closest('g');
      if (bar) say(said.get(bar), event.clientX, event.clientY); else hush();
    };
    picture.onpointerleave = hush;
  }

  // The timeline: rows are threads, or as many rows of one as it has calls at the same time.
  const canvas = document.getElementById('canvas');
  if (canvas) {
    const data = JSON.parse(document.getElementById('data').textContent), row = 18, head = 22;
    const bands = new Map();
    for (const [line, lane, begun, took, waited, failed] of data.calls) {
      const key = data.lines[line][0] + ' ' + lane;
      if (!bands.has(key)) bands.set(key, { process: data.lines[line][0], lane, ends: [], calls: [] });
      const band = bands.get(key);
      let at = band.ends.findIndex(end => end <= begun);
      if (at < 0) at = band.ends.length < 12 ? band.ends.push(0) - 1 : 11;
      band.ends[at] = Math.max(band.ends[at], begun + took);
      band.calls.push({ line, begun, took, waited, failed, at });
    }
    const rows = [...bands.values()].sort((a, b) => a.process - b.process || a.lane - b.lane).slice(0, 200);
    let height = head;
    for (const band of rows) { band.top = height + 16; height += 16 + band.ends.length * row + 6; }
    let from = 0, until = Math.max(1, data.took, ...rows.flatMap(band => band.ends));
    const whole = until;
    const time = ns => { for (const [f, u] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']]) if (ns >= f) return +(ns / f).toPrecision(3) + ' ' + u; return Math.round(ns) + ' ns'; };
    draw = () => {
      const ratio = devicePixelRatio || 1, width = canvas.clientWidth, pen = canvas.getContext('2d');
      canvas.style.height = height + 'px';
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      pen.scale(ratio, ratio);
      const colour = what => getComputedStyle(root).getPropertyValue(what);
      const ink = colour('--ink'), soft = colour('--soft'), grid = colour('--grid');
      const families = Object.fromEntries(['nearcall', 'rpc', 'http'].map(f => [f, colour('--f-' + f)]));
      pen.font = '11px system-ui, sans-serif';
      const scale = width / (until - from), raw = (until - from) / 6, power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
      for (let t = Math.ceil(from / step) * step; t <= until; t += step) {
        pen.fillStyle = grid;
        pen.fillRect((t - from) * scale, head - 6, 1, height);
        pen.fillStyle = soft;
        pen.fillText(time(t), (t - from) * scale + 3, 11);
      }
      for (const band of rows) {
        pen.fillStyle = ink;
        const who = data.processes[band.process];
        pen.fillText((data.processes.length > 1 ? who.pid + ' ' : '') + who.lanes[band.lane], 2, band.top - 4);
        for (const call of band.calls) {
          const x = (call.begun - from) * scale, w = Math.max(0.7, call.took * scale - (call.took * scale > 3 ? 0.7 : 0));
          if (x > width || x + w < 0) continue;
          pen.globalAlpha = call.failed ? 1 : 0.72;
          pen.fillStyle = call.failed ? '#d62f2f' : families[data.lines[call.line][2]];
          pen.fillRect(x, band.top + call.at * row, w, row - 3);
        }
        pen.globalAlpha = 1;
      }
    };
    const zoom = (factor, at) => {
      const size = Math.min(whole, Math.max(100, (until - from) * factor));
      from = Math.max(0, Math.min(whole - size, at - (at - from) * size / (until - from)));
      until = from + size;
      draw();
    };
    const move = by => { const size = until - from; from = Math.max(0, Math.min(whole - size, from + by)); until = from + size; draw(); };
    const when = event => from + (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth * (until - from);
    const under = event => {
      const y = event.clientY - canvas.getBoundingClientRect().top, t = when(event), near = 2 * (until - from) / canvas.clientWidth;
      const band = rows.find(b => y >= b.top && y < b.top + b.ends.length * row);
      return band && band.calls.find(c => c.at === Math.floor((y - band.top) / row) && t >= c.begun - near && t <= c.begun + c.took + near);
    };
    let held = null;
    canvas.onwheel = event => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, when(event)); };
    canvas.onpointerdown = event => { held = event.clientX; canvas.setPointerCapture(event.pointerId); };
    canvas.onpointerup = () => { held = null; };
    canvas.onpointermove = event => {
      if (held !== null) { move((held - event.clientX) / canvas.clientWidth * (until - from)); held = event.clientX; return; }
      const call = under(event);
      if (call) say(`${data.lines[call.line][1]}: ${time(call.took)}${call.waited < call.took ? `, waited ${time(call.waited)}` : ''}${call.failed ? ', failed' : ''}; at ${time(call.begun)}`, event.clientX, event.clientY); else hush();
    };
    canvas.onpointerleave = hush;
    canvas.onkeydown = event => {
      const does = { '+': () => zoom(0.7, (from + until) / 2), '-': () => zoom(1.4, (from + until) / 2), '0': () => zoom(Infinity, 0), ArrowLeft: () => move((from - until) / 8), ArrowRight: () => move((until - from) / 8) }[event.key];
      if (does) { event.preventDefault(); does(); }
    };
    onresize = draw;
  }
  name();
}
