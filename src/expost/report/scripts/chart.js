// Charts that follow the slider, and the read-out of single rows by pointer and keyboard.

const SVG = 'http://www.w3.org/2000/svg';
// PageUp and PageDown pass a quarter of the ranks so far.
const STRIDE = 1.25;

function svgElement(svg, name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  svg.append(element);
  return element;
}

function textElement(tag, text, className) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

// The area between the axes of a drawing, and its two scales (report/svg.py).
function axesOf(svg) {
  const box = svg.querySelector('clipPath rect');
  const [left, top, width, height] = ['x', 'y', 'width', 'height'].map((name) =>
    Number(box.getAttribute(name)),
  );
  const area = { left, right: left + width, top, bottom: top + height };
  return {
    area,
    x: scaleOf(svg.dataset.x, area.left, area.right),
    y: scaleOf(svg.dataset.y, area.bottom, area.top),
  };
}

function scaleOf(text, start, end) {
  const [first, last, kind] = text.split(' ');
  const [low, high] = [Number(first), Number(last)];
  const on = kind === 'log' ? Math.log : (value) => value;
  const off = kind === 'log' ? Math.exp : (value) => value;
  const unit = (end - start) / (on(high) - on(low));
  const far = 10 * Math.abs(end - start);
  const at = (value) => {
    const distance = unit * (on(value) - on(low));
    return start + Math.min(Math.max(Number.isNaN(distance) ? -far : distance, -far), far);
  };
  return { low, high, at, value: (position) => off(on(low) + (position - start) / unit) };
}

// An upright line in each chart over ε, where the slider stands.
function startMoving(figures) {
  const lines = figures
    .flatMap((figure) => [...figure.querySelectorAll('svg[data-quantity=epsilon]')])
    .map((svg) => {
      const { area, x } = axesOf(svg);
      return { x, line: svgElement(svg, 'line', { class: 'moving', y1: area.top, y2: area.bottom }) };
    });
  return (epsilon) => {
    for (const { line, x } of lines) {
      line.toggleAttribute('hidden', !(epsilon >= x.low && epsilon <= x.high));
      line.setAttribute('x1', x.at(epsilon).toFixed(1));
      line.setAttribute('x2', x.at(epsilon).toFixed(1));
    }
  };
}

// The expected curve of the profile: the second series over ranks, in certainty.
function startCurve(figure) {
  const svg = figure?.querySelector('svg[data-quantity=rank]');
  const line = svg?.querySelector('polyline.second');
  if (!line) return () => {};
  const { x, y } = axesOf(svg);
  const note = textElement('p', '', 'quiet');
  note.dataset.beyond = '';
  note.hidden = true;
  figure.querySelector('.chart').after(note);
  return (epsilon, figures) => {
    const curve = figures.curve(epsilon);
    if (!curve) return;
    const heights = curve.exposures.map(certaintyOf);
    const points = curve.ranks.map(
      (rank, index) => `${x.at(rank).toFixed(1)},${y.at(heights[index]).toFixed(1)}`,
    );
    line.setAttribute('points', points.join(' '));
    note.hidden = heights[0] <= y.high;
    note.textContent = note.hidden
      ? ''
      : `At ε = ${number(epsilon)} the expected curve begins above the chart.`;
  };
}

// Rows of the profile's chart: what stands at a rank.
function startReadout(figure, rows, state) {
  const svg = figure?.querySelector('svg[data-quantity=rank]');
  if (!svg || !rows) return () => {};
  const box = svg.parentElement;
  const { area, x, y } = axesOf(svg);
  const line = svgElement(svg, 'line', { class: 'cursor', y1: area.top, y2: area.bottom, hidden: '' });
  const dot = svgElement(svg, 'circle', { class: 'cursor-dot', r: 5, hidden: '' });
  const panel = textElement('dl', '', 'readout');
  panel.hidden = true;
  const hint = textElement(
    'p',
    `Point at the chart to read single ${rows.unit}s, or focus it and press the arrow keys, Home ` +
      'or End.',
    'quiet hint',
  );
  box.after(hint, panel);
  let index = null;

  function show() {
    if (index === null) return;
    const at = x.at(index + 1).toFixed(1);
    for (const mark of [line, dot]) mark.toggleAttribute('hidden', false);
    line.setAttribute('x1', at);
    line.setAttribute('x2', at);
    dot.setAttribute('cx', at);
    const height = y.at(rows.noiseless ? rows.distance[index] : certaintyOf(rows.score(index)));
    dot.setAttribute('cy', Math.min(Math.max(height, area.top), area.bottom).toFixed(1));
    const facts = [
      ['rank', `${count(index + 1)} of ${count(rows.total)}`],
      [rows.unit, rows.key(index)],
      ...rowFacts(rows, index, state()),
    ];
    panel.replaceChildren(
      ...facts.map(([term, text]) => {
        const fact = document.createElement('div');
        fact.append(textElement('dt', term), textElement('dd', text));
        return fact;
      }),
    );
    panel.hidden = false;
    box.setAttribute('aria-valuenow', String(index + 1));
    box.setAttribute('aria-valuetext', facts.map(([term, text]) => `${term}: ${text}`).join(', '));
  }

  function go(wanted) {
    index = Math.min(Math.max(Math.round(wanted), 0), rows.length - 1);
    show();
  }

  for (const [name, value] of Object.entries({
    role: 'slider',
    tabindex: '0',
    'aria-label': `${rows.unit} by rank`,
    'aria-valuemin': '1',
    'aria-valuemax': String(rows.length),
    'aria-valuenow': '1',
    'aria-valuetext': 'rank: 1',
  })) {
    box.setAttribute(name, value);
  }
  box.addEventListener('focus', () => {
    if (index === null) go(0);
  });
  box.addEventListener('keydown', (event) => {
    const step = stepOf(event.key, index ?? 0, rows.length);
    if (step === null || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(step);
  });
  const read = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY);
    const inside = point.matrixTransform(svg.getScreenCTM().inverse());
    if (inside.x >= area.left - 4 && inside.x <= area.right + 4) go(x.value(inside.x) - 1);
  };
  box.addEventListener('pointermove', read);
  box.addEventListener('pointerdown', read);
  return show;
}

// The index that a key leads to among so many ranks; null: another key.
function stepOf(key, index, length) {
  const rank = index + 1;
  switch (key) {
    case 'ArrowRight':
    case 'ArrowUp':
      return index + 1;
    case 'ArrowLeft':
    case 'ArrowDown':
      return index - 1;
    case 'PageUp':
      return Math.max(rank + 1, Math.round(rank * STRIDE)) - 1;
    case 'PageDown':
      return Math.min(rank - 1, Math.round(rank / STRIDE)) - 1;
    case 'Home':
      return 0;
    case 'End':
      return length - 1;
    default:
      return null;
  }
}
