// Search by values: the curator opens her own table; the page keeps none of it.

const BY_ORDER = 'order';

function startFileSearch(section, rows, state) {
  const part = section.querySelector('[data-file-search]');
  if (!part) return () => {};
  const chooser = part.querySelector('input[type=file]');
  const status = part.querySelector('[data-file-status]');
  const form = part.querySelector('[data-conditions]');
  const list = form.querySelector('[data-condition-list]');
  const match = form.querySelector('[data-match]');
  const table = resultTable(part.querySelector('[data-file-results]'), rows, state);
  const placeOfNumber = new Map(Array.from(rows.numbers, (value, place) => [value, place]));
  const placeOfKey = rows.keys ? new Map(rows.keys.map((key, place) => [key, place])) : null;
  let opened = null;
  let run = 0;

  async function open() {
    run += 1;
    const mine = run;
    form.hidden = true;
    table.show([]);
    list.replaceChildren();
    const files = [...chooser.files].sort((one, other) => (one.name < other.name ? -1 : 1));
    if (!files.length) return;
    status.textContent = 'Reading …';
    try {
      const shape = await look(files, placeOfKey, rows.unit !== 'person');
      if (mine !== run) return;
      opened = { files, ...shape };
      const ways = waysToMatch(rows, shape);
      if (!ways.length) throw new FileProblem(cannotMatch(rows, shape));
      match.replaceChildren(...ways.map(([value, text]) => new Option(text, value)));
      list.append(condition(opened.names));
      form.hidden = false;
      const columns = `${shape.names.length} column${shape.names.length === 1 ? '' : 's'}`;
      status.textContent = `${count(shape.records)} rows, ${columns}. The file stays on this computer.`;
    } catch (error) {
      if (mine === run) status.textContent = told(error);
    }
  }

  async function find() {
    if (opened === null) return;
    run += 1;
    const mine = run;
    const conditions = [...list.children].map(readCondition);
    status.textContent = 'Searching …';
    try {
      const places = new Set();
      let [records, beyond] = [0, 0];
      for await (const [row, cells] of rowsOf(opened.files)) {
        if (mine !== run) return;
        if (!conditions.every(({ column, value }) => hasValue(cells[column], value))) continue;
        records += 1;
        const place =
          match.value === BY_ORDER
            ? placeOfNumber.get(row)
            : placeOfKey.get(printable(trimmed(cells[Number(match.value)])));
        if (place === undefined) beyond += 1;
        else places.add(place);
      }
      const found = [...places].sort((one, other) => one - other);
      table.show(found.slice(0, MOST_SHOWN));
      status.textContent = summaryOf(rows, records, found.length, beyond);
    } catch (error) {
      if (mine === run) status.textContent = told(error);
    }
  }

  chooser.addEventListener('change', open);
  form.querySelector('[data-add]').addEventListener('click', () => {
    const added = condition(opened.names);
    list.append(added);
    added.querySelector('select').focus();
  });
  form.querySelector('[data-find]').addEventListener('click', find);
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.matches('input')) find();
  });
  return table.again;
}

function told(error) {
  return error instanceof FileProblem ? error.message : 'The file could not be read.';
}

// Every record but the headers, with its number over all files.
async function* rowsOf(files) {
  let row = 0;
  for (const file of files) {
    let header = true;
    for await (const records of recordsOf(file)) {
      for (const cells of records) {
        if (!header) {
          yield [row, cells];
          row += 1;
        }
        header = false;
      }
    }
  }
}

// Names, number of records, and the columns that may hold the keys of this page.
async function look(files, placeOfKey, unique) {
  const shape = { names: null, records: 0, keyed: [] };
  let candidates = [];
  for (const file of files) {
    let header = true;
    for await (const batch of recordsOf(file)) {
      for (const cells of batch) {
        if (header) {
          const names = cells.map((text) => text.trim());
          if (shape.names === null) {
            candidates = placeOfKey ? names.map((_, column) => ({ column, seen: new Set() })) : [];
          } else if (names.join('\u0000') !== shape.names.join('\u0000')) {
            throw new FileProblem('These files have different headers; open those of one table.');
          }
          shape.names = names;
          header = false;
        } else {
          shape.records += 1;
          candidates = candidates.filter((one) => holdsKey(one, cells, placeOfKey, unique));
        }
      }
    }
  }
  if (!shape.records) throw new FileProblem('This file has a header and no rows.');
  // A column with all keys is surer than one with some: a small number may be an age, or an id.
  const whole = candidates.filter(({ seen }) => seen.size === placeOfKey.size);
  shape.keyed = (whole.length ? whole : candidates).map(({ column }) => column);
  return shape;
}

// Whether a column's cell is a key of this page; one that no row before had, where rows differ.
function holdsKey({ column, seen }, cells, placeOfKey, unique) {
  const place = placeOfKey.get(printable(trimmed(cells[column])));
  if (place === undefined || (unique && seen.has(place))) return false;
  seen.add(place);
  return true;
}

// By the columns that hold the ids, and by the order of the rows where it is that of the profile.
function waysToMatch(rows, { names, records, keyed }) {
  const ordered = rows.inOrder && records === rows.rows;
  const others = names.map((_, column) => column).filter((column) => !keyed.includes(column));
  const by = (column) => [String(column), `the ids in the column ${printable(names[column])}`];
  const partial = rows.keys && rows.length < rows.total;
  return [
    ...keyed.map(by),
    ...(ordered ? [[BY_ORDER, 'the order of the rows']] : []),
    ...(partial ? others.map(by) : []),
  ];
}

function cannotMatch(rows, { records }) {
  const known = rows.keys ? `no column holds the ids of this page's ${rows.unit}s` : '';
  const counted = rows.inOrder
    ? `the file has ${count(records)} rows and the profile ${count(rows.rows)}`
    : `these ${rows.unit}s are not the rows of a table`;
  return `This is not the table that was profiled: ${[known, counted].filter(Boolean).join(', and ')}.`;
}

function condition(names) {
  const line = document.createElement('div');
  line.className = 'condition';
  const column = document.createElement('select');
  column.append(...names.map((name, place) => new Option(printable(name), String(place))));
  column.setAttribute('aria-label', 'column');
  const value = document.createElement('input');
  value.type = 'text';
  value.autocomplete = 'off';
  value.setAttribute('aria-label', 'value');
  const remove = cell('button', 'remove');
  remove.type = 'button';
  remove.addEventListener('click', () => {
    const next = line.nextElementSibling ?? line.previousElementSibling;
    if (!next) return;
    line.remove();
    next.querySelector('select').focus();
  });
  line.append(column, cell('span', '='), value, remove);
  return line;
}

function readCondition(line) {
  return {
    column: Number(line.querySelector('select').value),
    value: trimmed(line.querySelector('input').value),
  };
}

function summaryOf(rows, records, found, beyond) {
  const lines = `${count(records)} row${records === 1 ? '' : 's'} of the file match${records === 1 ? 'es' : ''}`;
  const of = rows.unit === 'row' ? '' : `, of ${count(found)} ${rows.unit}s`;
  const shown = found > MOST_SHOWN ? ` The ${MOST_SHOWN} most exposed are shown.` : '';
  const left = beyond ? ` ${count(beyond)} of them are not among those that this page has.` : '';
  return `${lines}${of}.${shown}${left}`;
}
