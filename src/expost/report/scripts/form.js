// The form of a published report: a person's own values, and the bounds of every label.

// What the values of a form give: errors and notes by field, notes on the row, the answers, and a
// key that is the same for values of the same row. `values` are texts in the order of the fields,
// those of levels the index of one; the label of a regression comes last.
function lookUp(form, values) {
  const parts = form.fields.map((field, index) =>
    encodedValue(field, values[index], form.missing),
  );
  const label = form.label ? encodedLabel(form.label, values[form.fields.length]) : null;
  const all = label ? [...parts, label] : parts;
  const errors = all.map((part) => part.error);
  const notes = all.map((part) => part.note);
  if (values.every((value) => value.trim() === '')) errors[0] = form.texts.empty;
  if (errors.some((error) => error !== undefined)) return { errors, notes, row_notes: [], answers: [] };
  const { row, isClipped } = intoBall(form.ball, parts.flatMap((part) => part.features));
  const shown = label ? [{ text: values[form.fields.length].trim(), y: label.y }] : form.labels;
  return {
    errors,
    notes,
    row_notes: isClipped ? [form.ball.note] : [],
    key: JSON.stringify([row, label?.y]),
    answers: shown.map(({ text, y }) => ({ label: text, ...rowBound(form.formula, row, y) })),
  };
}

// A bound in words: at most 73.2 %, or less than 100 %.
function atMost(text) {
  const below = text.replace(new RegExp(`^<${SPACE}`), '');
  return below === text ? `at most ${text}` : `less than ${below}`;
}

function startForm(section, data) {
  const form = { ...data, formula: unpackedFormula(data.formula) };
  const part = (name) => section.querySelector(`[data-${name}]`);
  const inputs = [...section.querySelectorAll('[data-value]')];
  const tried = new Set();
  const values = () => inputs.map((input) => input.value);
  // The function of the form itself, for programs that check it.
  section.lookUp = (given) => lookUp(form, given);

  function mark(input, error, note) {
    const message = document.getElementById(`${input.id}-message`);
    message.textContent = error ?? note ?? '';
    message.hidden = message.textContent === '';
    message.classList.toggle('error', error !== undefined);
    if (error === undefined) input.removeAttribute('aria-invalid');
    else input.setAttribute('aria-invalid', 'true');
  }

  // A list of links to the fields that need a change; it takes the focus.
  function showErrors(errors) {
    const box = part('errors');
    const wrong = inputs.filter((_, index) => errors[index] !== undefined);
    box.hidden = wrong.length === 0;
    box.querySelector('ul').replaceChildren(
      ...wrong.map((input) => {
        const link = textElement('a', errors[inputs.indexOf(input)]);
        link.href = `#${input.id}`;
        link.addEventListener('click', (event) => {
          event.preventDefault();
          input.focus();
        });
        const item = document.createElement('li');
        item.append(link);
        return item;
      }),
    );
    if (!box.hidden) box.focus();
  }

  function showAnswers({ answers, notes, row_notes: rowNotes }) {
    const worst = Math.max(...answers.map((answer) => answer.everything));
    const sentence = form.texts.sentence.replace('{}', atMost(percentUp(certaintyOf(worst))));
    part('sentence').textContent = sentence;
    const judged = Math.ceil(100 * certaintyOf(worst));
    showPeople(part('people'), judged);
    part('judged').textContent = form.texts.judged.replace('{}', String(judged));
    const isBoth = Boolean(form.formula.separation);
    part('answers').replaceChildren(
      ...answers.map((answer) => {
        const name = textElement('th', answer.label, 't');
        name.scope = 'row';
        const figures = [
          percentUp(certaintyOf(answer.exposure)),
          ...(isBoth ? [percentUp(certaintyOf(answer.everything))] : []),
          figureUp(answer.exposure),
          ...(isBoth ? [figureUp(answer.everything)] : []),
        ];
        const line = document.createElement('tr');
        line.append(name, ...figures.map((text) => textElement('td', text, 'n')));
        return line;
      }),
    );
    const remarks = [...new Set([...notes.filter((note) => note !== undefined), ...rowNotes])];
    if (tried.size > 1 && form.texts.tried) {
      remarks.unshift(form.texts.tried.replace('{}', count(tried.size)));
    }
    part('notes').replaceChildren(...remarks.map((text) => textElement('li', text)));
    part('notes').hidden = remarks.length === 0;
    part('live').textContent = sentence;
    part('answer').hidden = false;
    part('answer').scrollIntoView({ block: 'nearest' });
  }

  function show() {
    const found = lookUp(form, values());
    inputs.forEach((input, index) => mark(input, found.errors[index], found.notes[index]));
    if (found.answers.length === 0) {
      part('answer').hidden = true;
      part('live').textContent = '';
    } else {
      tried.add(found.key);
    }
    showErrors(found.errors);
    if (found.answers.length > 0) showAnswers(found);
  }

  part('show').addEventListener('click', show);
  for (const input of inputs) {
    // A bound that is shown is that of the values that are shown.
    input.addEventListener('input', () => {
      part('answer').hidden = true;
      part('live').textContent = '';
    });
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && input.tagName === 'INPUT') show();
    });
  }
  part('clear').addEventListener('click', () => {
    for (const input of inputs) {
      input.value = '';
      mark(input, undefined, undefined);
    }
    showErrors([]);
    part('answer').hidden = true;
    part('live').textContent = '';
    inputs[0].focus();
  });
}

// The first 50 of 100 people are judged correctly by guessing, the others because of the model.
function showPeople(section, filled) {
  const paths = [...section.querySelectorAll('path')];
  const shapes = paths.map((path) => path.getAttribute('d')).join('').split(/(?=M)/);
  const groups = [shapes.slice(0, 50), shapes.slice(50, filled), shapes.slice(filled)];
  paths.forEach((path, index) => path.setAttribute('d', groups[index].join('')));
  section.querySelector('svg').setAttribute('aria-label', `${filled} of 100 people`);
}
