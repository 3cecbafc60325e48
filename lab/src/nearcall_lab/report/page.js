'use strict';
{
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const root = document.documentElement, cells = document.getElementById('cells'), tip = document.getElementById('tip');
  root.classList.add('script');

  // Light or dark: the system's choice until the button is used.
  const scheme = document.getElementById('scheme');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => root.dataset.scheme ? root.dataset.scheme === 'dark' : dark.matches;
  const name = () => { scheme.textContent = isDark() ? 'Light page' : 'Dark page'; };
  scheme.hidden = false;
  scheme.onclick = () => { root.dataset.scheme = isDark() ? 'light' : 'dark'; name(); };
  dark.onchange = name;
  name();

  // Rows unfold; headings sort; missing values come last either way.
  for (const button of all('.unfold')) {
    const more = document.getElementById(button.getAttribute('aria-controls'));
    const fold = open => { button.setAttribute('aria-expanded', open); more.hidden = !open; };
    fold(false);
    button.onclick = () => fold(more.hidden);
  }
  for (const button of all('.copy')) button.onclick = () => {
    const code = button.parentNode.querySelector('code');
    const say = text => { button.textContent = text; };
    const choose = () => { getSelection().selectAllChildren(code); say('Selected: press Ctrl-C'); };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => say('Copied'), choose); else choose();
  };
  for (const button of cells ? all('thead button', cells) : []) button.onclick = () => {
    const th = button.closest('th'), key = 'c' + th.cellIndex;
    const down = th.getAttribute('aria-sort') === 'ascending';
    for (const other of th.parentNode.cells) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const bodies = [...cells.tBodies], numbers = bodies.every(b => !b.dataset[key] || isFinite(b.dataset[key]));
    bodies.sort((a, b) => {
      const x = a.dataset[key], y = b.dataset[key];
      if (!x || !y) return (x ? 0 : 1) - (y ? 0 : 1);
      return (numbers ? x - y : x.localeCompare(y, 'en', { numeric: true })) * (down ? -1 : 1);
    });
    cells.append(...bodies);
  };

  // Filters: of the table, and of the mechanisms that charts and counts show.
  const form = document.getElementById('filters');
  const filter = () => {
    const wanted = all('[data-filter]', form).map(field => [field.dataset.filter, field.value.trim().toLowerCase(), field.value]);
    const mechanisms = new Set();
    let shown = 0;
    for (const body of cells.tBodies) {
      const keep = wanted.every(([what, low, exact]) => !low ||
        (what === 'text' ? low.split(/\s+/).every(word => body.dataset.text.includes(word)) : body.dataset[what] === exact));
      body.hidden = !keep;
      if (keep) { shown++; mechanisms.add(body.dataset.m); }
    }
    const total = cells.tBodies.length;
    document.getElementById('shown').textContent = shown === total ? `${total} rows` : `${shown} of ${total} rows`;
    document.getElementById('none-left').hidden = shown > 0;
    for (const part of all('.series')) part.classList.toggle('off', !mechanisms.has(part.dataset.m));
    for (const row of all('#counts tbody tr')) row.hidden = !mechanisms.has(row.dataset.m);
  };
  if (form) {
    form.onsubmit = event => event.preventDefault();
    form.oninput = filter;
    form.onreset = () => setTimeout(filter);
  }

  // The decision view: of each mechanism the row that comes nearest to what is asked for, and whether it will do.
  const asked = document.getElementById('asked'), answers = document.getElementById('answers');
  const decide = () => {
    const field = what => asked.querySelector(`[data-asks=${what}]`).value;
    const want = +field('rate') || 0, cpus = +field('cpus') || 0, body = answers.tBodies[0], nearest = new Map();
    const distance = row => +row.dataset.rate === 0 ? Infinity : +row.dataset.rate >= want ? +row.dataset.rate : NaN;
    for (const row of body.rows) {
      row.hidden = true;
      if (row.dataset.work !== field('work') || row.dataset.clients !== field('clients') || isNaN(distance(row))) continue;
      const other = nearest.get(row.dataset.m);
      if (!other || distance(row) < distance(other)) nearest.set(row.dataset.m, row);
    }
    const found = [...nearest.values()].map(row => {
      const polls = 'polls' in row.dataset, needs = Math.max(want * row.dataset.cpu, polls ? 1 : 0);
      const slow = +row.dataset.rate === 0 && +row.dataset.calls < want, dear = needs > cpus;
      row.hidden = false;
      row.classList.toggle('no', slow || dear);
      row.querySelector('.needs').textContent = needs.toPrecision(2);
      row.querySelector('.verdict').textContent =
        (slow ? 'no: too few calls per second' : dear ? 'no: too few CPUs' : 'yes') + (polls ? ', polls without pause' : '');
      return [slow || dear, +row.dataset.time || Infinity, row];
    });
    found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    body.append(...found.map(each => each[2]));
    const able = found.filter(each => !each[0]).length;
    asked.querySelector('output').textContent = found.length ? `${able} of ${found.length} will do` : 'not measured';
  };
  if (asked) {
    asked.onsubmit = event => event.preventDefault();
    asked.oninput = decide;
    decide();
  }

  // Of several figures of one kind the chosen one is shown.
  for (const select of all('select[data-chooses]')) {
    const figures = all(`figure[data-of="${select.dataset.chooses}"]`);
    const show = () => { for (const figure of figures) figure.hidden = figure.dataset.key !== select.value; };
    select.onchange = show;
    show();
  }

  // Pointing at a line, or going to it with the arrow keys, says its numbers and puts the others back.
  const said = new Map();
  for (const part of all('.series')) {
    const title = part.querySelector('title');
    said.set(part, title.textContent);
    part.setAttribute('role', 'img');
    part.setAttribute('aria-label', title.textContent);
    title.remove();
  }
  const off = chart => {
    chart.classList.remove('chosen');
    for (const part of all('.series.on', chart)) part.classList.remove('on');
    tip.hidden = true;
  };
  const on = (part, x, y) => {
    const chart = part.closest('.chart');
    off(chart);
    chart.classList.add('chosen');
    part.classList.add('on');
    tip.textContent = said.get(part);
    tip.hidden = false;
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
    tip.style.top = Math.max(8, Math.min(y + 16, innerHeight - tip.offsetHeight - 8)) + 'px';
  };
  for (const chart of all('.chart')) {
    chart.onpointermove = event => {
      const part = event.target.closest('.series');
      if (part) on(part, event.clientX, event.clientY); else off(chart);
    };
    chart.onpointerleave = chart.onblur = () => off(chart);
    chart.onkeydown = event => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (event.key === 'Escape') off(chart);
      const parts = all('.series:not(.off)', chart);
      if (!step || !parts.length) return;
      event.preventDefault();
      const at = parts.findIndex(part => part.classList.contains('on'));
      const next = parts[at < 0 ? (step > 0 ? 0 : parts.length - 1) : (at + step + parts.length) % parts.length];
      const box = next.getBoundingClientRect();
      on(next, box.left + box.width / 2, box.top + box.height / 2);
    };
  }
}
