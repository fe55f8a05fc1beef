// Runs a GGUF file in llama.cpp (npm node-llama-cpp 3.22.1, its prebuilt program).
//
//     node llamacpp.mjs text MODEL.gguf EXPECTED.txt TOKENS PROMPT
//     node llamacpp.mjs agrees MODEL.gguf EXPECTED.txt SHARE PROMPT
//     node llamacpp.mjs runs MODEL.gguf TOKENS PROMPT
//     node llamacpp.mjs tokens MODEL.gguf INPUTS.safetensors TEXT
//     node llamacpp.mjs embedding MODEL.gguf EXPECTED.safetensors TOLERANCE TEXT
//
// text: the likeliest tokens after a prompt must be those of the file, which is what `compress
// generate MODEL --prompt PROMPT --max-tokens TOKENS` prints (which begins with the token that
// begins a text, if there is one). Keys and values are kept as f32.
// agrees: of the tokens of such a file, read one after the other, so large a share must be the
// likeliest ones where they stand: llama.cpp rounds activations where weights are quantised.
// runs: as text, and all that is asked is that there are so many tokens.
// tokens: writes the tokens of a text, with those around it, as inputs of `compress run`.
// embedding: the vector of a text must equal the mean of the rows of `last_hidden_state`, from
// `compress run`, of length 1, within the tolerance in every number.
// Exits with 1 where something differs.
import fs from 'node:fs';
import { getLlama } from 'node-llama-cpp';

const [what, path, ...rest] = process.argv.slice(2);
const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error', maxThreads: 1 });
const model = await llama.loadModel({ modelPath: path });
// What stands in front of every text.
const begin = model.tokens.shouldPrependBosToken ? [model.tokens.bos] : [];

async function generate(count, prompt) {
    const context = await model.createContext({
        contextSize: 256, threads: 1, sequences: 1,
        experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32',
    });
    const ids = [...begin, ...model.tokenize(prompt)];
    const made = [];
    for await (const token of context.getSequence().evaluate(ids, { temperature: 0 })) {
        made.push(token);
        if (made.length >= count) break;
    }
    return { made, text: model.detokenize([...model.tokenize(prompt), ...made]) + '\n' };
}

/* Mean of the rows of last_hidden_state [1, T, width], of length 1. */
function readMean(file) {
    const bytes = fs.readFileSync(file), length = Number(bytes.readBigUInt64LE(0));
    const { shape, data_offsets: [begin, end] } = JSON.parse(bytes.subarray(8, 8 + length)).last_hidden_state;
    const copy = bytes.buffer.slice(bytes.byteOffset + 8 + length + begin, bytes.byteOffset + 8 + length + end);
    const states = new Float32Array(copy), width = shape[2], mean = new Array(width).fill(0);
    states.forEach((x, i) => { mean[i % width] += x; });
    return toUnit(mean);
}

function toUnit(vector) {
    const length = Math.hypot(...vector);
    return vector.map((x) => x / length);
}

let fine = true;
if (what === 'embedding') {
    const [file, tolerance, text] = rest;
    const context = await model.createEmbeddingContext({ contextSize: 128, threads: 1 });
    const found = toUnit((await context.getEmbeddingFor(text)).vector), wanted = readMean(file);
    const worst = Math.max(...wanted.map((x, i) => Math.abs(x - found[i])));
    fine = wanted.length === found.length && worst <= Number(tolerance);
    console.log(`${found.length} numbers, largest difference ${worst.toExponential(1)}`);
} else if (what === 'tokens') {
    const [file, text] = rest, { bos, sep } = model.tokens;
    const ids = [bos, ...model.tokenize(text), sep], zeros = ids.map(() => 0), ones = ids.map(() => 1);
    const header = {}, data = [];
    for (const [name, values] of Object.entries({ attention_mask: ones, input_ids: ids, token_type_ids: zeros })) {
        const end = 4 * values.length * (data.length + 1);
        header[name] = { dtype: 'I32', shape: [1, values.length], data_offsets: [end - 4 * values.length, end] };
        data.push(Buffer.from(Int32Array.from(values).buffer));
    }
    const json = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(json.length));
    fs.writeFileSync(file, Buffer.concat([length, json, ...data]));
} else if (what === 'text') {
    const [file, count, prompt] = rest, wanted = fs.readFileSync(file, 'utf8');
    const { made, text } = await generate(Number(count), prompt);
    let same = 0;
    while (same < wanted.length && wanted[same] === text[same]) same++;
    fine = text === wanted;
    console.log(fine ? `${made.length} tokens, ${text.length} characters`
        : `differs behind ${same} characters: ...${JSON.stringify(text.slice(Math.max(0, same - 20), same + 20))}`);
} else if (what === 'agrees') {
    const [file, share, prompt] = rest;
    const context = await model.createContext({ contextSize: 256, threads: 1, sequences: 1 });
    const text = fs.readFileSync(file, 'utf8').replace(/\n$/, '');
    const ids = [...begin, ...model.tokenize(text)];
    const given = ids.length - model.tokenize(text).length + model.tokenize(prompt).length;
    const answers = await context.getSequence().controlledEvaluate(ids.slice(0, -1).map((token, i) =>
        (i + 1 < given ? token : [token, { generateNext: { token: true } }])));
    let same = 0;
    for (let i = given; i < ids.length; i++) same += answers[i - 1].next.token === ids[i];
    fine = ids.length > given && same >= Number(share) * (ids.length - given);
    console.log(`${same} of ${ids.length - given} tokens are the likeliest ones`);
} else {
    const { made } = await generate(Number(rest[0]), rest[1]);
    fine = made.length === Number(rest[0]);
    console.log(`${made.length} tokens`);
}
await llama.dispose();
process.exit(fine ? 0 : 1);
