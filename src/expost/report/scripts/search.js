// Rows by number or id, and by their values in a file that never leaves the browser.

const MOST_SHOWN = 50;

function startSearch(rows, state) {
  const section = document.querySelector('[data-search]');
  if (!section || !rows) return () => {};
  const box = section.querySelector('[data-search-key]');
  const status = section.querySelector('[data-search-status]');
  const table = resultTable(section.querySelector('[data-search-results]'), rows, state);
  const find = keyFinder(rows);

  function search() {
    const wanted = box.value.trim();
    const found = wanted === '' ? [] : find(wanted);
    table.show(found.slice(0, MOST_SHOWN));
    status.textContent = wanted === '' ? '' : outcome(rows, found.length);
  }

  box.addEventListener('input', search);
  const inFile = startFileSearch(section, rows, state);
  return () => {
    table.again();
    inFile();
  };
}

function outcome(rows, found, places = found) {
  const left = rows.total > rows.length;
  if (found === 0) {
    return left
      ? `None of the ${count(rows.length)} most exposed ${rows.unit}s, which this page has, matches.`
      : `No ${rows.unit} matches.`;
  }
  const shown = places > MOST_SHOWN ? ` The ${MOST_SHOWN} most exposed of them are shown.` : '';
  return `${count(found)} ${rows.unit}${found === 1 ? ' matches' : 's match'}.${shown}`;
}

// Exact matches first, then those that begin alike; each by rank. Upper and lower case are one.
function keyFinder(rows) {
  const folded = rows.keys ? rows.keys.map((key) => key.toLowerCase()) : null;
  const texts = folded ?? Array.from(rows.numbers, String);
  return (wanted) => {
    const asked = printable(wanted).toLowerCase();
    const bare = asked.replace(/^row\s+/, '').replace(/(\d),(?=\d{3})/g, '$1');
    const matches = [asked, ...(bare === asked ? [] : [bare])];
    const exact = [];
    const numbered = [];
    const begins = [];
    for (let place = 0; place < texts.length; place += 1) {
      if (matches.includes(texts[place])) exact.push(place);
      else if (folded && matches.includes(String(rows.numbers[place]))) numbered.push(place);
      else if (matches.some((match) => texts[place].startsWith(match))) begins.push(place);
    }
    return [...exact, ...numbered, ...begins];
  };
}

// A table of rows with their figures; its typical figures follow the slider.
function resultTable(element, rows, state) {
  const head = element.querySelector('thead tr');
  const body = element.querySelector('tbody');
  let places = [];

  function columns() {
    const numeric = [
      ['rank', (place) => count(place + 1)],
      ...(rows.keys ? [['number', (place) => String(rows.numbers[place])]] : []),
    ];
    if (rows.noiseless) {
      numeric.push(['distance', (place) => figure(rows.distance[place])]);
    } else {
      numeric.push(
        ['exposure (nats)', (place) => figure(Math.abs(rows.loss[place]))],
        ['proved to within', (place) => `±${SPACE}${figureUp(rows.within[place])}`],
        ['belief that it was in', (place) => percent(sigmoid(rows.loss[place]))],
      );
    }
    const { epsilon, figures } = state();
    if (figures && figures.typicalOf(epsilon, 1) !== null && !rows.noiseless) {
      numeric.push([
        `typical exposure at ε = ${number(epsilon)}`,
        (place) => figure(figures.typicalOf(epsilon, rows.distance[place])),
      ]);
    }
    numeric.push([`more exposed than`, (place) => `${percent(rows.lessExposed(place))} of all`]);
    return numeric;
  }

  function again() {
    element.hidden = places.length === 0;
    if (element.hidden) return body.replaceChildren();
    const numeric = columns();
    const titles = [cell('th', rows.unit), ...numeric.map(([title]) => cell('th', title, 'n'))];
    for (const title of titles) title.scope = 'col';
    head.replaceChildren(...titles);
    const lines = places.map((place) => {
      const line = document.createElement('tr');
      const key = cell('th', rows.key(place), 'label');
      key.scope = 'row';
      line.append(key, ...numeric.map(([, text]) => cell('td', text(place), 'n')));
      line.dataset.rank = String(place + 1);
      return line;
    });
    return body.replaceChildren(...lines);
  }

  return {
    again,
    show(found) {
      places = found;
      again();
    },
  };
}
