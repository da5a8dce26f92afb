// The page's data: JSON, with arrays of numbers as base64 of little-endian bytes.

function readData() {
  const block = document.getElementById('expost-data');
  return block ? JSON.parse(block.textContent) : {};
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function numbersOf(text, read) {
  const bytes = bytesOf(text);
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 4 }, (_, place) => view[read](4 * place, true));
}

// Rows in the order of their ranks, the most exposed first.
function decodeRows(packed) {
  const single = (name) => Float32Array.from(numbersOf(packed[name], 'getFloat32'));
  const numbers = Uint32Array.from(numbersOf(packed.numbers, 'getUint32'));
  const rows = {
    ...packed,
    numbers,
    loss: single('loss'),
    within: single('within'),
    distance: single('distance'),
    length: numbers.length,
  };
  rows.score = (place) => (rows.noiseless ? rows.distance[place] : Math.abs(rows.loss[place]));
  rows.key = (place) => (rows.keys ? rows.keys[place] : String(rows.numbers[place]));
  // The share of all rows that are less exposed than this one.
  rows.lessExposed = (place) => {
    let last = place;
    while (last + 1 < rows.length && rows.score(last + 1) === rows.score(place)) last += 1;
    return (rows.total - 1 - last) / rows.total;
  };
  return rows;
}
