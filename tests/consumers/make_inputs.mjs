// Writes inputs for a model, drawn by a fixed seed: what `compress inspect --json` says it wants.
//
//     compress inspect MODEL --json | node make_inputs.mjs INPUTS.safetensors [SAMPLES [LENGTH]]
//
// Tokens lie within the smallest vocabulary of the model, masks end with zeros in every sample
// but the first, images are numbers between -1 and 1.
import fs from 'node:fs';

const [path, samples = '2', length = '7'] = process.argv.slice(2);
const model = JSON.parse(fs.readFileSync(0, 'utf8'));
const sizes = { N: Number(samples), T: Number(length), S: Number(length) + 2 };

// Mulberry32: a generator whose numbers are the same everywhere.
let state = 1;
const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
};

const shapes = Object.fromEntries(model.storages.map(({ name, shape }) => [name, shape]));
const tables = model.stacks.flatMap(({ nodes }) => nodes).filter(({ op, role }) => op === 'embedding' && role === 'embed');
const vocabulary = Math.min(...tables.map(({ storages }) => shapes[storages.weight][0]));

function fill(name, dims, kind) {
    const row = dims.slice(1).reduce((a, b) => a * b, 1);
    const data = kind === 'i32' ? new Int32Array(dims[0] * row) : new Float32Array(dims[0] * row);
    for (let i = 0; i < data.length; i++) {
        const sample = Math.floor(i / row), place = i % row;
        if (name.endsWith('mask')) data[i] = place < row - 2 * sample ? 1 : 0;
        else if (name === 'token_type_ids') data[i] = place < row / 2 ? 0 : 1;
        else data[i] = kind === 'i32' ? Math.floor(random() * vocabulary) : 2 * random() - 1;
    }
    return data;
}

const header = {}, parts = [];
let offset = 0;
for (const { name, type } of model.inputs) {
    const [, kind, list] = type.match(/^(\w+)\[(.*)\]$/);
    const shape = list.split(', ').map((dim) => sizes[dim] ?? Number(dim));
    const bytes = Buffer.from(fill(name, shape, kind).buffer);
    header[name] = { dtype: kind.toUpperCase(), shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
    parts.push(bytes);
}
let text = JSON.stringify(header);
text += ' '.repeat((8 - (text.length % 8)) % 8);
const head = Buffer.alloc(8);
head.writeBigUInt64LE(BigInt(text.length));
fs.writeFileSync(path, Buffer.concat([head, Buffer.from(text), ...parts]));
