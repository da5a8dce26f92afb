// Rows by key or number, with their figures.

const MOST_SHOWN = 50;

// Arrays of numbers are base64 of little-endian bytes (report/rows.py).
function numbersOf(text, read, size = 4) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / size }, (_, index) => view[read](size * index, true));
}

// Rows in the order of their ranks, the most exposed first.
function decodeRows(packed) {
  const [loss, within, distance] = ['loss', 'within', 'distance'].map((name) =>
    numbersOf(packed[name], 'getFloat32'),
  );
  const numbers = numbersOf(packed.numbers, 'getUint32');
  const leftOut = packed.prediction
    ? ['distance_error', 'prediction', 'prediction_without'].map((name) =>
        numbersOf(packed[name], 'getFloat32'),
      )
    : null;
  const score = (index) => (packed.noiseless ? distance[index] : Math.abs(loss[index]));
  return {
    ...packed,
    numbers,
    loss,
    within,
    distance,
    leftOut,
    length: numbers.length,
    score,
    key: (index) => (packed.keys ? packed.keys[index] : String(numbers[index])),
    // The share of all rows that are less exposed than this one.
    lessExposed(index) {
      let last = index;
      while (last + 1 < numbers.length && score(last + 1) === score(index)) last += 1;
      return (packed.total - 1 - last) / packed.total;
    },
  };
}

// The figures of one row: pairs of a term and a text.
function rowFacts(rows, index, { epsilon, figures }) {
  if (rows.noiseless) {
    const facts = [['distance', figure(rows.distance[index])]];
    if (rows.leftOut) {
      const [within, prediction, without] = rows.leftOut;
      facts.push(
        ['certified to', `±${SPACE}${figureUp(within[index])}`],
        ['prediction', figure(prediction[index])],
        ['without the row', figure(without[index])],
      );
    }
    return facts;
  }
  const exposure = rows.score(index);
  const facts = [
    ['attacker’s certainty', percentUp(certaintyOf(exposure))],
    ['evidence of', rows.loss[index] > 0 ? 'presence' : 'absence'],
    ['exposure', `${figure(exposure)} nats`],
    ['certified to', `±${SPACE}${figureUp(rows.within[index])} nats`],
  ];
  const expected = figures ? figures.expected(epsilon, rows.distance[index]) : null;
  if (expected !== null) {
    facts.push([`expected certainty at ε = ${number(epsilon)}`, percentUp(certaintyOf(expected))]);
  }
  return facts;
}

function startSearch(section, rows, state) {
  const box = section.querySelector('input[type=search]');
  const status = section.querySelector('[data-status]');
  const results = section.querySelector('[data-results]');
  const find = keyFinder(rows);
  let shown = [];

  function columns(index) {
    return [
      ['rank', count(index + 1)],
      ...(rows.keys ? [['number', String(rows.numbers[index])]] : []),
      ...rowFacts(rows, index, state()),
      ['more exposed than', `${percent(rows.lessExposed(index))} of all`],
    ];
  }

  function show() {
    results.hidden = shown.length === 0;
    const lines = shown.map((index) => {
      const line = document.createElement('tr');
      const key = textElement('th', rows.key(index), 't');
      key.scope = 'row';
      line.append(key, ...columns(index).map(([, text]) => textElement('td', text, sideOf(text))));
      return line;
    });
    results.querySelector('tbody').replaceChildren(...lines);
    if (results.hidden) return;
    const titles = [
      textElement('th', rows.unit, 't'),
      ...columns(shown[0]).map(([term, text]) => textElement('th', term, sideOf(text))),
    ];
    for (const title of titles) title.scope = 'col';
    results.querySelector('thead tr').replaceChildren(...titles);
  }

  box.addEventListener('input', () => {
    const wanted = box.value.trim();
    const matches = wanted === '' ? [] : find(wanted);
    shown = matches.slice(0, MOST_SHOWN);
    status.textContent = wanted === '' ? '' : outcome(rows, matches.length);
    show();
  });
  return show;
}

// The class of a cell: numbers are set flush right.
function sideOf(text) {
  return /\d/.test(text) ? 'n' : 't';
}

function outcome(rows, matches) {
  if (matches === 0) {
    return rows.total > rows.length
      ? `None of the ${count(rows.length)} most exposed ${rows.unit}s on this page matches.`
      : `No ${rows.unit} matches.`;
  }
  const shown = matches > MOST_SHOWN ? ` The ${MOST_SHOWN} most exposed of them are shown.` : '';
  return `${count(matches)} ${rows.unit}${matches === 1 ? ' matches' : 's match'}.${shown}`;
}

// Exact matches first, then numbers, then keys that begin alike; each by rank, in either case.
function keyFinder(rows) {
  const folded = rows.keys ? rows.keys.map((key) => key.toLowerCase()) : null;
  const texts = folded ?? rows.numbers.map(String);
  return (wanted) => {
    const text = printable(wanted).toLowerCase();
    const bare = text.replace(/^row\s+/, '').replace(/(\d),(?=\d{3})/g, '$1');
    const exact = [];
    const numbered = [];
    const begins = [];
    texts.forEach((key, index) => {
      if (key === text || key === bare) exact.push(index);
      else if (folded && String(rows.numbers[index]) === bare) numbered.push(index);
      else if (key.startsWith(text) || key.startsWith(bare)) begins.push(index);
    });
    return [...exact, ...numbered, ...begins];
  };
}
