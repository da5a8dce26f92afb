// The chart of the profile: what stands at a rank, by pointer and by keyboard.

// PageUp and PageDown pass a quarter of the ranks so far.
const STRIDE = 1.25;

function startProfile(rows, followsSlider) {
  const box = document.querySelector('[data-profile-chart]');
  if (!box) return () => {};
  const svg = box.querySelector('svg');
  const area = areaOf(svg);
  const [first, last] = pair(box.dataset.ranks);
  const [low, high] = pair(box.dataset.scores);
  const x = logScale(first, last, area.left, area.right);
  const y = logScale(low, high, area.bottom, area.top);
  const readout = rows ? startReadout(box, svg, area, { x, y }, rows) : () => {};
  const typical = svg.querySelector('polyline.typical');
  const label = document.querySelector('[data-typical-epsilon]');
  const above = box.parentElement.querySelector('[data-above]');
  return (epsilon, figures) => {
    const curve = followsSlider && typical ? figures.curve(epsilon) : null;
    if (curve) {
      const points = curve.ranks.map(
        (rank, place) => `${x.at(rank).toFixed(1)},${y.at(curve.typical[place]).toFixed(1)}`,
      );
      typical.setAttribute('points', points.join(' '));
      if (label) label.textContent = ` at ε = ${number(epsilon)}`;
      if (above) {
        const beyond = curve.typical[0] > high ? 'above' : 'below';
        const hidden = curve.typical[0] <= high && curve.typical[0] >= low;
        above.hidden = hidden;
        above.textContent = hidden
          ? ''
          : `At ε = ${number(epsilon)} the typical curve begins ${beyond} the chart.`;
      }
    }
    readout(epsilon, followsSlider ? figures : null);
  };
}

function startReadout(box, svg, area, scales, rows) {
  const panel = box.parentElement.querySelector('[data-readout]');
  const line = svgElement('line', { class: 'cursor', y1: area.top, y2: area.bottom });
  const dot = svgElement('circle', { class: 'cursor-dot', r: 5 });
  line.toggleAttribute('hidden', true);
  dot.toggleAttribute('hidden', true);
  svg.append(line, dot);
  let place = null;
  let state = { epsilon: null, figures: null };

  function show() {
    if (place === null) return;
    const at = scales.x.at(place + 1).toFixed(1);
    for (const mark of [line, dot]) mark.toggleAttribute('hidden', false);
    line.setAttribute('x1', at);
    line.setAttribute('x2', at);
    dot.setAttribute('cx', at);
    const height = scales.y.at(rows.score(place));
    dot.setAttribute('cy', Math.min(Math.max(height, area.top), area.bottom).toFixed(1));
    const facts = rowFacts(rows, place, state);
    panel.replaceChildren(
      ...facts.map(([term, text]) => {
        const fact = document.createElement('div');
        fact.append(cell('dt', term), cell('dd', text));
        return fact;
      }),
    );
    panel.hidden = false;
    box.setAttribute('aria-valuenow', String(place + 1));
    box.setAttribute('aria-valuetext', facts.map(([term, text]) => `${term}: ${text}`).join(', '));
  }

  function go(wanted) {
    place = Math.min(Math.max(Math.round(wanted), 0), rows.length - 1);
    show();
  }

  for (const [name, value] of Object.entries({
    role: 'slider',
    tabindex: '0',
    'aria-label': `${rows.unit} by rank`,
    'aria-describedby': 'chart-text',
    'aria-valuemin': '1',
    'aria-valuemax': String(rows.length),
    'aria-valuenow': '1',
    'aria-valuetext': 'rank: 1',
  })) {
    box.setAttribute(name, value);
  }
  box.addEventListener('focus', () => {
    if (place === null) go(0);
  });
  box.addEventListener('keydown', (event) => {
    const step = stepOf(event.key, place ?? 0, rows.length);
    if (step === null || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(step);
  });
  const read = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY);
    const inside = point.matrixTransform(svg.getScreenCTM().inverse());
    if (inside.x >= area.left - 4 && inside.x <= area.right + 4) {
      go(scales.x.value(inside.x) - 1);
    }
  };
  box.addEventListener('pointermove', read);
  box.addEventListener('pointerdown', read);
  return (epsilon, figures) => {
    state = { epsilon, figures };
    show();
  };
}

// Where a key leads to from a place among so many ranks; null: it is not one of ours.
function stepOf(key, place, length) {
  const rank = place + 1;
  switch (key) {
    case 'ArrowRight':
    case 'ArrowUp':
      return place + 1;
    case 'ArrowLeft':
    case 'ArrowDown':
      return place - 1;
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

function cell(tag, text, className) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

// What is told of one row: pairs of a term and a text.
function rowFacts(rows, place, { epsilon, figures }) {
  const facts = [
    ['rank', `${count(place + 1)} of ${count(rows.total)}`],
    [rows.unit, rows.key(place)],
  ];
  if (rows.noiseless) {
    facts.push(['distance', figure(rows.distance[place])]);
    return facts;
  }
  facts.push(
    ['exposure', `${figure(Math.abs(rows.loss[place]))} nats`],
    ['belief that it was in', percent(sigmoid(rows.loss[place]))],
    ['proved to within', `±${SPACE}${figureUp(rows.within[place])} nats`],
  );
  const typical = figures ? figures.typicalOf(epsilon, rows.distance[place]) : null;
  if (typical !== null) facts.push([`typical at ε = ${number(epsilon)}`, `${figure(typical)} nats`]);
  return facts;
}
