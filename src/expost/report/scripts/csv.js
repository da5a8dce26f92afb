// A CSV file in the browser, read as src/expost/data reads it: RFC 4180, one delimiter, one kind of
// line end, every record as wide as the header, blank lines at the end alone. A stream: only one
// record is held at a time.

const DELIMITERS = [',', ';', '\t', '|'];
const LONGEST_RECORD = 2000000;

class FileProblem extends Error {}

// Text of a file piece by piece; refuses what is no CSV by its first bytes.
async function* textOf(file) {
  const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  const begins = (...bytes) => bytes.every((byte, place) => start[place] === byte);
  if (begins(0x50, 0x41, 0x52, 0x31)) {
    throw new FileProblem(
      'This is a Parquet file, which cannot be opened here: search by number or id, or save it as CSV.',
    );
  }
  if (begins(0xff, 0xfe) || begins(0xfe, 0xff)) {
    throw new FileProblem('This is UTF-16 text: save it again as UTF-8.');
  }
  let stream = file.stream();
  if (begins(0x1f, 0x8b)) {
    if (typeof DecompressionStream === 'undefined') {
      throw new FileProblem('This browser does not open gzip files: unpack it first.');
    }
    stream = stream.pipeThrough(new DecompressionStream('gzip'));
  }
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const text = decoder.decode(value ?? new Uint8Array(), { stream: !done });
      if (text !== '') yield text;
      if (done) return;
    }
  } catch (error) {
    if (error instanceof FileProblem) throw error;
    throw new FileProblem('This is not UTF-8 text, or a gzip file that is damaged.');
  } finally {
    // Whoever stops reading in the middle lets the file go.
    reader.cancel().catch(() => {});
  }
}

// Lists of records, piece by piece; the first record of all is the header.
async function* recordsOf(file) {
  let header = '';
  let parser = null;
  for await (const text of textOf(file)) {
    let rest = text;
    if (parser === null) {
      header += text;
      const newline = firstLineEnd(header, false);
      if (newline === null && header.length <= LONGEST_RECORD) continue;
      if (newline === null) throw new FileProblem('Line 1: a quote is opened and never closed.');
      parser = csvParser(delimiterOf(header), newline);
      rest = header;
    }
    const found = parser.feed(rest);
    if (found.length) yield found;
  }
  if (parser === null) {
    if (header.trim() === '') throw new FileProblem('This file is empty.');
    parser = csvParser(delimiterOf(header), firstLineEnd(header, true) ?? '\n');
    const found = parser.feed(header);
    if (found.length) yield found;
  }
  const last = parser.end();
  if (last.length) yield last;
}

// The first line end outside of quotes; null: it is not there yet.
function firstLineEnd(text, whole) {
  let quoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const character = text[place];
    if (character === '"') quoted = !quoted;
    else if (!quoted && character === '\n') return '\n';
    else if (!quoted && character === '\r') {
      if (place + 1 === text.length) return whole ? '\r' : null;
      return text[place + 1] === '\n' ? '\r\n' : '\r';
    }
  }
  return null;
}

function delimiterOf(text) {
  const [line] = text.replace(/"[^"]*"/g, '').split(/[\r\n]/);
  const counts = DELIMITERS.map((mark) => line.split(mark).length - 1);
  const most = Math.max(...counts);
  if (most === 0) return ',';
  const best = DELIMITERS.filter((mark, place) => counts[place] === most);
  if (best.length > 1) {
    throw new FileProblem('Line 1: it is not clear which character separates the cells.');
  }
  return best[0];
}

function csvParser(delimiter, newline) {
  // Of a cell: not begun, without quotes, in quotes, behind a quote that may have closed it.
  const [FRESH, PLAIN, QUOTED, CLOSED] = [0, 1, 2, 3];
  const last = newline[newline.length - 1];
  let state = FRESH;
  let cells = [];
  let content = '';
  let carriage = false;
  let length = 0;
  let width = 0;
  let count_ = 0;
  let blank = 0;

  const problem = (what) => new FileProblem(`Record ${count_ + 1}: ${what}.`);

  function record(found) {
    cells.push(content);
    const isBlank = cells.length === 1 && content === '' && state === FRESH;
    const finished = cells;
    [cells, content, state, length] = [[], '', FRESH, 0];
    if (isBlank && count_ > 0 && width > 1) {
      blank = blank || count_ + 1;
      return;
    }
    if (isBlank || blank) throw problem('is blank, or follows a blank line; delete blank lines');
    if (count_ === 0) width = finished.length;
    if (finished.length !== width) {
      throw problem(`has ${finished.length} cells where the header has ${width}`);
    }
    count_ += 1;
    found.push(finished);
  }

  function take(character, found) {
    length += 1;
    if (length > LONGEST_RECORD) throw problem('is too long (is a quote never closed?)');
    if (state === QUOTED) {
      if (character === '"') state = CLOSED;
      else content += character;
      return;
    }
    if (carriage && character !== '\n') throw problem('ends differently from line 1');
    if (character === delimiter) {
      cells.push(content);
      [content, state] = ['', FRESH];
    } else if (character === last && (newline !== '\r\n' || carriage)) {
      carriage = false;
      record(found);
    } else if (character === '\r' && newline === '\r\n') {
      carriage = true;
    } else if (character === '\r' || character === '\n') {
      throw problem('ends differently from line 1');
    } else if (character === '"') {
      if (state === PLAIN) throw problem('has a quote within a cell');
      if (state === CLOSED) content += '"';
      state = QUOTED;
    } else {
      if (state === CLOSED) throw problem('has a quote within a cell');
      if (character === '\0') throw problem('holds a NUL: this is not a text file');
      content += character;
      state = PLAIN;
    }
  }

  return {
    feed(text) {
      const found = [];
      for (let place = 0; place < text.length; place += 1) take(text[place], found);
      return found;
    },
    end() {
      const found = [];
      if (state === QUOTED) throw problem('a quote is opened and never closed');
      if (carriage) throw problem('ends differently from line 1');
      if (cells.length || content !== '' || state !== FRESH) record(found);
      return found;
    },
  };
}

// A cell without the spaces around it.
function trimmed(text) {
  return text.replace(/^ +| +$/g, '');
}

const DECIMAL = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;

// Whether a cell has a value: the same text, or the same number.
function hasValue(cellText, wanted) {
  const found = trimmed(cellText);
  if (found === wanted) return true;
  return DECIMAL.test(found) && DECIMAL.test(wanted) && Number(found) === Number(wanted);
}
