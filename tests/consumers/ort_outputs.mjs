// Runs an ONNX file in onnxruntime (npm onnxruntime-node 1.30.0) and compares its outputs.
//
//     node ort_outputs.mjs MODEL.onnx INPUTS.safetensors OUTPUTS.safetensors [TOLERANCE]
//
// INPUTS are the graph's by name; states of a decoder (past_...) that are not among them
// start as zeros, a mask that is not there is all ones. Every output that OUTPUTS has
// must differ by less than TOLERANCE (1e-4) times the larger of 1 and its largest value.
// Prints the largest differences; exits with 1 where one is too large, or where nothing
// was compared. OUTPUTS comes from `compress run MODEL --input INPUTS --output OUTPUTS`.
import fs from 'node:fs';
import ort from 'onnxruntime-node';

const KINDS = { F32: [Float32Array, 'float32'], I64: [BigInt64Array, 'int64'], I32: [Int32Array, 'int32'] };

export function readTensors(path) {
    const file = fs.readFileSync(path);
    const length = Number(file.readBigUInt64LE(0));
    const header = JSON.parse(file.subarray(8, 8 + length).toString());
    const tensors = {};
    for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
        if (name === '__metadata__' || !KINDS[dtype]) continue;
        const bytes = file.subarray(8 + length + data_offsets[0], 8 + length + data_offsets[1]);
        const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
        tensors[name] = { kind: KINDS[dtype][1], data: new KINDS[dtype][0](copy), shape };
    }
    return tensors;
}

// What a session wants, from tensors by name: integers as int64, zeros for states.
export function feedsOf(session, tensors) {
    const source = tensors.input_ids ?? tensors.decoder_input_ids;
    const feeds = {};
    for (const { name, type, shape } of session.inputMetadata) {
        const given = tensors[name];
        if (given) {
            const data = type === 'int64' ? BigInt64Array.from(given.data, BigInt) : given.data;
            feeds[name] = new ort.Tensor(type, data, given.shape);
        } else if (name.startsWith('past')) {
            const dims = shape.map((dim) => (typeof dim === 'number' ? dim : dim === 'batch_size' ? source.shape[0] : 0));
            const count = dims.reduce((a, b) => a * b, 1);
            feeds[name] = new ort.Tensor(type, type === 'float16' ? new Uint16Array(count) : new Float32Array(count), dims);
        } else if (name.endsWith('mask')) {
            const ids = name.startsWith('decoder') ? tensors.decoder_input_ids : source;
            feeds[name] = new ort.Tensor('int64', new BigInt64Array(ids.data.length).fill(1n), ids.shape);
        } else throw new Error(`no input ${name}`);
    }
    return feeds;
}

export function largestDifference(a, b) {
    let worst = 0, scale = 1;
    for (let i = 0; i < a.length; i++) {
        worst = Math.max(worst, Math.abs(a[i] - b[i]));
        scale = Math.max(scale, Math.abs(b[i]));
        if (Number.isNaN(a[i])) return Infinity;
    }
    return worst / scale;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
    const [model, inputs, outputs, tolerance = '1e-4'] = process.argv.slice(2);
    const session = await ort.InferenceSession.create(model);
    const results = await session.run(feedsOf(session, readTensors(inputs)));
    const wanted = readTensors(outputs);
    let compared = 0, failed = 0;
    for (const name of Object.keys(results)) {
        if (!wanted[name]) continue;
        const difference = results[name].data.length === wanted[name].data.length
            ? largestDifference(results[name].data, wanted[name].data) : Infinity;
        compared++;
        failed += !(difference < Number(tolerance));
        console.log(`${name} [${results[name].dims}] differs by ${difference.toExponential(2)}`);
    }
    process.exit(compared && !failed ? 0 : 1);
}
