// Everything begins here; without it the page is whole, and stands still.

function start() {
  const data = readData();
  const rows = data.rows ? decodeRows(data.rows) : null;
  for (const element of document.querySelectorAll('[data-script]')) element.hidden = false;
  const current = { epsilon: null, figures: null };
  const state = () => current;
  const profile = startProfile(rows, data.followsSlider);
  const search = startSearch(rows, state);
  const remember = (epsilon, figures) => {
    Object.assign(current, { epsilon, figures: data.followsSlider ? figures : null });
  };
  // The charts of other models than the slider speaks of stand still.
  const transition = data.choiceFollows ? startTransition() : () => {};
  startSlider(data.slider, [remember, transition, profile, search]);
}

start();
