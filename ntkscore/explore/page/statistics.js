"use strict";
// Ranks and rank correlations of columns, NaN left out by the caller.

// Ranks from 1, those of equal values averaged.
function ranks(values) {
  const n = values.length;
  const order = Uint32Array.from({ length: n }, (_, i) => i).sort((a, b) => values[a] - values[b]);
  const out = new Float64Array(n);
  for (let i = 0; i < n; ) {
    let j = i;
    while (j < n && values[order[j]] === values[order[i]]) j++;
    for (let k = i; k < j; k++) out[order[k]] = (i + j + 1) / 2;
    i = j;
  }
  return out;
}

function pearson(a, b) {
  const n = a.length;
  let ma = 0, mb = 0;
  for (let i = 0; i < n; i++) { ma += a[i] / n; mb += b[i] / n; }
  let ab = 0, aa = 0, bb = 0;
  for (let i = 0; i < n; i++) {
    const p = a[i] - ma, q = b[i] - mb;
    ab += p * q; aa += p * p; bb += q * q;
  }
  return ab / Math.sqrt(aa * bb);
}

function spearman(a, b) { return a.length < 3 ? NaN : pearson(ranks(a), ranks(b)); }

// Pairs that a merge sort exchanges.
function exchanges(values) {
  let from = Float64Array.from(values), to = new Float64Array(values.length), count = 0;
  for (let width = 1; width < values.length; width *= 2) {
    for (let low = 0; low < values.length; low += 2 * width) {
      const mid = Math.min(low + width, values.length), high = Math.min(low + 2 * width, values.length);
      for (let i = low, j = mid, k = low; k < high; k++) {
        if (i < mid && (j >= high || from[i] <= from[j])) to[k] = from[i++];
        else { count += mid - i; to[k] = from[j++]; }
      }
    }
    [from, to] = [to, from];
  }
  return count;
}

function tiedPairs(sorted, equal) {
  let pairs = 0;
  for (let i = 0; i < sorted.length; ) {
    let j = i + 1;
    while (j < sorted.length && equal(sorted[i], sorted[j])) j++;
    pairs += ((j - i) * (j - i - 1)) / 2;
    i = j;
  }
  return pairs;
}

// Kendall's tau-b, by Knight's algorithm.
function kendall(a, b) {
  const n = a.length;
  if (n < 3) return NaN;
  const order = Array.from({ length: n }, (_, i) => i).sort((i, j) => a[i] - a[j] || b[i] - b[j]);
  const pairs = (n * (n - 1)) / 2;
  const inA = tiedPairs(order, (i, j) => a[i] === a[j]);
  const inBoth = tiedPairs(order, (i, j) => a[i] === a[j] && b[i] === b[j]);
  const inB = tiedPairs(Float64Array.from(b).sort(), (p, q) => p === q);
  const swapped = exchanges(order.map((i) => b[i]));
  const net = pairs - inA - inB + inBoth - 2 * swapped;
  return net / Math.sqrt((pairs - inA) * (pairs - inB));
}
