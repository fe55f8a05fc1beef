// Runs a folder that compress wrote (name.onnx/) in onnxruntime the way a text is written:
// some tokens at once, then one after the other with the states of those before, and
// compares the logits of all of them with those of one run.
//
//     node ort_steps.mjs FOLDER INPUTS.safetensors OUTPUTS.safetensors [TOLERANCE]
//
// INPUTS and OUTPUTS are those of `compress run` for the same model, without padding of
// what is written. Decoders are run with padding in front as well, which must not matter.
// Exits with 1 where logits differ by more than TOLERANCE (1e-4) times the larger of 1 and
// the largest of them.
import fs from 'node:fs';
import path from 'node:path';
import ort from 'onnxruntime-node';
import { largestDifference, readTensors } from './ort_outputs.mjs';

const [folder, inputs, outputs, tolerance = '1e-4'] = process.argv.slice(2);
const graph = (name) => path.join(folder, 'onnx', name);
const open = (name) => ort.InferenceSession.create(graph(name));
const seq2seq = fs.existsSync(graph('encoder_model.onnx'));
const given = readTensors(inputs), wanted = readTensors(outputs).logits;
const decoder = await open(seq2seq ? 'decoder_model_merged.onnx' : 'model.onnx');
const ids = seq2seq ? given.decoder_input_ids : given.input_ids;
const [N, T] = ids.shape;
const integers = (data, dims) => new ort.Tensor('int64', BigInt64Array.from(data, BigInt), dims);

let source = {};
if (seq2seq) {
    const encoder = await open('encoder_model.onnx');
    const feeds = { input_ids: integers(given.input_ids.data, given.input_ids.shape) };
    if (given.attention_mask) feeds.attention_mask = integers(given.attention_mask.data, given.attention_mask.shape);
    source = { encoder_hidden_states: (await encoder.run(feeds)).last_hidden_state };
    if (given.attention_mask) source.encoder_attention_mask = feeds.attention_mask;
}

const emptyState = ({ type, shape }) => {
    const dims = shape.map((dim) => (typeof dim === 'number' ? dim : dim === 'batch_size' ? N : 0));
    return new ort.Tensor(type, new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
};

// The largest difference of all logits, with `padding` tokens in front that do not count.
async function difference(first, padding) {
    const states = {};
    for (const input of decoder.inputMetadata) if (input.name.startsWith('past')) states[input.name] = emptyState(input);
    let worst = 0, bytes = [];
    for (let at = 0; at < T; at = at === 0 ? first : at + 1) {
        const count = at === 0 ? first : 1, more = at === 0 ? padding : 0;
        const tokens = [], mask = [];
        for (let n = 0; n < N; n++) {
            tokens.push(...Array(more).fill(0n), ...ids.data.slice(n * T + at, n * T + at + count));
            mask.push(...Array(padding).fill(0n), ...Array(at + count).fill(1n));
        }
        const feeds = { ...states, ...source, input_ids: integers(tokens, [N, more + count]) };
        if (decoder.inputNames.includes('attention_mask')) feeds.attention_mask = integers(mask, [N, padding + at + count]);
        if (decoder.inputNames.includes('use_cache_branch')) feeds.use_cache_branch = new ort.Tensor('bool', [at > 0], [1]);
        for (const name of Object.keys(feeds)) if (!decoder.inputNames.includes(name)) delete feeds[name];
        const results = await decoder.run(feeds);
        const V = results.logits.dims[2];
        for (let n = 0; n < N; n++) {
            const got = results.logits.data.slice((n * (more + count) + more) * V, (n + 1) * (more + count) * V);
            worst = Math.max(worst, largestDifference(got, wanted.data.slice((n * T + at) * V, (n * T + at + count) * V)));
        }
        for (const [name, value] of Object.entries(results))
            if (name.startsWith('present')) states[name.replace('present_', 'past_').replace('present.', 'past_key_values.')] = value;
        bytes.push(Object.values(states).reduce((sum, state) => sum + state.data.byteLength, 0));
    }
    console.log(`${first} at once, ${padding} in front: differs by ${worst.toExponential(2)}; states of ${bytes[0]}, then ${bytes.at(-1)} bytes`);
    return worst;
}

let worst = Math.max(await difference(1, 0), await difference(4, 0), await difference(T, 0));
if (decoder.inputNames.includes('attention_mask') && !seq2seq) worst = Math.max(worst, await difference(4, 3));
process.exit(worst < Number(tolerance) ? 0 : 1);
