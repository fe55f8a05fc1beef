// Writes inputs for a model as safetensors, by the inputs that its IR text declares.
//
//     compress ir MODEL | node random_inputs.mjs OUT.safetensors [TOKENS] [SAMPLES]
//
// Ids are within the vocabulary, masks leave out tokens at the end of all samples but the
// first, images are standard normal; the same arguments give the same bytes.
import fs from 'node:fs';

const [out, tokens = '11', samples = '3'] = process.argv.slice(2);
const text = fs.readFileSync(0, 'utf8');
const sizes = { N: Number(samples), T: Number(tokens), S: Number(tokens) + 2, M: 2 };
let state = sizes.T;
const random = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32);
const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());

let vocabulary = 1000;
for (const [, weight] of text.matchAll(/= embedding\(\$(?:decoder_)?input_ids, @([^)]+)\)/g)) {
    const shape = text.split(`param @${weight} : `)[1].match(/\[(\d+)/);
    vocabulary = Math.min(vocabulary, Number(shape[1]));
}
const value = (name, i, shape) => {
    if (name.endsWith('mask')) {
        const row = Math.floor(i / shape[1]);
        return row === 0 || i % shape[1] < shape[1] - 2 * row ? 1 : 0;
    }
    if (name.endsWith('type_ids')) return Math.floor(2 * random());
    return Math.floor((name.includes('position') ? sizes.T : vocabulary) * random());
};

const header = {}, parts = [];
let at = 0;
for (const [, name, dtype, dims] of text.matchAll(/^input (\S+) : (\w+)\[([^\]]*)\]/gm)) {
    const shape = dims.split(', ').map((dim) => sizes[dim] ?? Number(dim));
    const count = shape.reduce((a, b) => a * b, 1);
    const data = dtype === 'f32'
        ? Float32Array.from({ length: count }, normal)
        : BigInt64Array.from({ length: count }, (_, i) => BigInt(value(name, i, shape)));
    header[name] = { dtype: dtype === 'f32' ? 'F32' : 'I64', shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
    parts.push(Buffer.from(data.buffer));
}
const json = Buffer.from(JSON.stringify(header));
const length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(json.length));
fs.writeFileSync(out, Buffer.concat([length, json, ...parts]));
