// Compares the outputs of two runs (`compress run`), by name.
//
//     node same_outputs.mjs A.safetensors B.safetensors [TOLERANCE]
//
// Every tensor of A that B has must differ by at most TOLERANCE (1e-6) times the larger of
// 1 and its largest value. Prints the largest difference; exits with 1 where one is too
// large, or where nothing was compared.
import fs from 'node:fs';

function readFloats(path) {
    const file = fs.readFileSync(path);
    const length = Number(file.readBigUInt64LE(0));
    const header = JSON.parse(file.subarray(8, 8 + length).toString());
    const tensors = {};
    for (const [name, { dtype, data_offsets: [from, to] = [] }] of Object.entries(header)) {
        if (dtype !== 'F32') continue;
        const bytes = file.subarray(8 + length + from, 8 + length + to);
        tensors[name] = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    }
    return tensors;
}

const [one, two, tolerance = '1e-6'] = process.argv.slice(2);
const a = readFloats(one);
const b = readFloats(two);
let compared = 0;
let worst = 0;
for (const name of Object.keys(a)) {
    if (!b[name]) continue;
    const largest = a[name].reduce((most, x) => Math.max(most, Math.abs(x)), 1);
    const off = a[name].length === b[name].length
        ? a[name].reduce((most, x, i) => Math.max(most, Math.abs(x - b[name][i]) / largest), 0)
        : Infinity;
    worst = Math.max(worst, off);
    compared++;
}
console.log(`${compared} outputs, largest difference ${worst.toExponential(1)}`);
process.exit(compared > 0 && worst <= Number(tolerance) ? 0 : 1);
