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
      parser = new CsvParser(delimiterOf(header), newline);
      rest = header;
    }
    const found = parser.feed(rest);
    if (found.length) yield found;
  }
  if (parser === null) {
    if (header.trim() === '') throw new FileProblem('This file is empty.');
    parser = new CsvParser(delimiterOf(header), firstLineEnd(header, true) ?? '\n');
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

// Of a cell: not begun, without quotes, in quotes, behind a quote that may have closed it.
const [FRESH, PLAIN, QUOTED, CLOSED] = [0, 1, 2, 3];

class CsvParser {
  constructor(delimiter, newline) {
    this.delimiter = delimiter;
    this.newline = newline;
    this.last = newline[newline.length - 1];
    this.width = 0;
    this.records = 0;
    this.blank = false;
    this.carriage = false;
    this.found = [];
    this.begin();
  }

  begin() {
    this.cells = [];
    this.content = '';
    this.state = FRESH;
    this.length = 0;
  }

  problem(what) {
    return new FileProblem(`Record ${this.records + 1}: ${what}.`);
  }

  // The records that end in a piece of text.
  feed(text) {
    this.found = [];
    for (let place = 0; place < text.length; place += 1) this.take(text[place]);
    return this.found;
  }

  // The record that the end of the file ends.
  end() {
    this.found = [];
    if (this.state === QUOTED) throw this.problem('a quote is opened and never closed');
    if (this.carriage) throw this.problem('ends differently from line 1');
    if (this.cells.length || this.state !== FRESH) this.record();
    return this.found;
  }

  take(character) {
    this.length += 1;
    if (this.length > LONGEST_RECORD) throw this.problem('is too long (is a quote never closed?)');
    if (character === '\0') throw this.problem('holds a NUL: this is not a text file');
    if (this.state === QUOTED) {
      if (character === '"') this.state = CLOSED;
      else this.content += character;
    } else if (this.carriage && character !== '\n') {
      throw this.problem('ends differently from line 1');
    } else if (character === this.delimiter) {
      this.cell();
    } else if (character === '\r' || character === '\n') {
      this.lineEnd(character);
    } else if (character === '"') {
      this.quote();
    } else {
      this.plain(character);
    }
  }

  lineEnd(character) {
    if (character === this.last && (this.newline.length === 1 || this.carriage)) {
      this.carriage = false;
      this.record();
    } else if (character === '\r' && this.newline.length === 2) {
      this.carriage = true;
    } else {
      throw this.problem('ends differently from line 1');
    }
  }

  quote() {
    if (this.state === PLAIN) throw this.problem('has a quote within a cell');
    if (this.state === CLOSED) this.content += '"';
    this.state = QUOTED;
  }

  plain(character) {
    if (this.state === CLOSED) throw this.problem('has a quote within a cell');
    this.content += character;
    this.state = PLAIN;
  }

  cell() {
    this.cells.push(this.content);
    this.content = '';
    this.state = FRESH;
  }

  record() {
    const isBlank = this.cells.length === 0 && this.state === FRESH;
    this.cells.push(this.content);
    const { cells } = this;
    this.begin();
    if (isBlank && this.width > 1) {
      this.blank = true;
      return;
    }
    if (isBlank || this.blank) throw this.problem('is blank, or follows a blank line; delete it');
    if (this.records === 0) {
      if (cells.some((name) => /[\r\n]/.test(name))) {
        throw this.problem('a column name holds a line end');
      }
      this.width = cells.length;
    }
    if (cells.length !== this.width) {
      throw this.problem(`has ${cells.length} cells where the header has ${this.width}`);
    }
    this.records += 1;
    this.found.push(cells);
  }
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
