for (const button of document.querySelectorAll('thead button')) button.onclick = () => {
  const th = button.closest('th'), body = th.closest('table').tBodies[0], column = th.cellIndex;
  const down = th.getAttribute('aria-sort') === 'ascending';
  for (const other of th.parentNode.cells) other.removeAttribute('aria-sort');
  th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = row => { const v = row.cells[column] && row.cells[column].dataset.v;
    return v === undefined ? row.cells[0].textContent : v === '' ? Infinity : +v; };
  const rows = [...body.rows].sort((a, b) => { const x = key(a), y = key(b);
    return (typeof x === 'string' ? x.localeCompare(y) : x - y) * (down ? -1 : 1); });
  body.append(...rows);
};
