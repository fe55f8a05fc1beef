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

const integers = (data, dims) => new ort.Tensor('int64', BigInt64Array.from(data, BigInt), dims);

function emptyState({ type, shape }, samples) {
    const dims = shape.map((dim) => (typeof dim === 'number' ? dim : dim === 'batch_size' ? samples : 0));
    return new ort.Tensor(type, new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
}

// The decoder of a folder, and what it is told of the source.
async function open(folder, given) {
    const graph = (name) => path.join(folder, 'onnx', name);
    if (!fs.existsSync(graph('encoder_model.onnx')))
        return { decoder: await ort.InferenceSession.create(graph('model.onnx')), ids: given.input_ids, source: {} };
    const encoder = await ort.InferenceSession.create(graph('encoder_model.onnx'));
    const decoder = await ort.InferenceSession.create(graph('decoder_model_merged.onnx'));
    const mask = given.attention_mask, feeds = { input_ids: integers(given.input_ids.data, given.input_ids.shape) };
    if (mask && encoder.inputNames.includes('attention_mask')) feeds.attention_mask = integers(mask.data, mask.shape);
    const source = { encoder_hidden_states: (await encoder.run(feeds)).last_hidden_state };
    if (mask) source.encoder_attention_mask = integers(mask.data, mask.shape);
    return { decoder, ids: given.decoder_input_ids, source };
}

// The largest difference of all logits: `first` tokens at once, `padding` in front of them
// that do not count; and the bytes of the states after the first and the last step.
async function difference({ decoder, ids, source }, wanted, first, padding) {
    const [N, T] = ids.shape, states = {}, bytes = [];
    for (const input of decoder.inputMetadata) if (input.name.startsWith('past')) states[input.name] = emptyState(input, N);
    let worst = 0;
    for (let at = 0; at < T; at = at === 0 ? first : at + 1) {
        const count = at === 0 ? first : 1, more = at === 0 ? padding : 0;
        const tokens = [], mask = [];
        for (let n = 0; n < N; n++) {
            tokens.push(...Array(more).fill(0n), ...ids.data.slice(n * T + at, n * T + at + count));
            mask.push(...Array(padding).fill(0n), ...Array(at + count).fill(1n));
        }
        const feeds = { ...states, ...source, input_ids: integers(tokens, [N, more + count]) };
        feeds.attention_mask = integers(mask, [N, padding + at + count]);
        feeds.use_cache_branch = new ort.Tensor('bool', [at > 0], [1]);
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
    return { worst, text: `${first} at once, ${padding} in front: differs by ${worst.toExponential(2)}; states of ${bytes[0]}, then ${bytes.at(-1)} bytes` };
}

// Every way, as { worst, text }.
export async function stepDifferences(folder, given, wanted) {
    const model = await open(folder, given), T = model.ids.shape[1], all = [];
    for (const first of new Set([1, Math.min(4, T), T])) all.push(await difference(model, wanted, first, 0));
    if (model.decoder.inputNames.includes('attention_mask') && !model.source.encoder_hidden_states)
        all.push(await difference(model, wanted, Math.min(4, T), 3));
    return all;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
    const [folder, inputs, outputs, tolerance = '1e-4'] = process.argv.slice(2);
    const all = await stepDifferences(folder, readTensors(inputs), readTensors(outputs).logits);
    for (const { text } of all) console.log(text);
    process.exit(all.every(({ worst }) => worst < Number(tolerance)) ? 0 : 1);
}
