// The start of all scripts; without them the page is complete, and static.

// The slider of a document moves the charts and rows of that document alone.
function startDocument(kind, data) {
  const own = `[data-document="${CSS.escape(kind)}"]`;
  const figures = [...document.querySelectorAll(`figure${own}`)];
  const profile = figures.find((figure) => figure.dataset.figure === 'profile');
  const widget = (name) => document.querySelector(`[data-widget=${name}]${own}`);
  const current = { epsilon: null, figures: null };
  const state = () => current;
  const rows = data.search ? decodeRows(data.search) : null;
  const readout = startReadout(profile, rows, state);
  const search = rows ? startSearch(widget('search'), rows, state) : () => {};
  if (data.form) startForm(widget('form'), data.form);
  if (!data.slider) return;
  const remember = (epsilon, values) => Object.assign(current, { epsilon, figures: values });
  const listeners = [remember, startMoving(figures), startCurve(profile), readout, search];
  startSlider(widget('slider'), data.slider, listeners);
}

function start() {
  const block = document.getElementById('expost-data');
  for (const [kind, data] of Object.entries(JSON.parse(block.textContent))) {
    startDocument(kind, data);
  }
  for (const part of document.querySelectorAll('[data-still]')) part.hidden = true;
  for (const part of document.querySelectorAll('[data-script]')) part.hidden = false;
}

start();
