// Times a token in llama.cpp (npm node-llama-cpp, its prebuilt program), on the processor.
//
//     node peer_llama.mjs MODEL.gguf TOKENS CONTEXT THREADS
//     node peer_llama.mjs prompt MODEL.gguf PROMPTS LENGTH THREADS
//     node peer_llama.mjs batch MODEL.gguf TOKENS TEXTS THREADS
//     node peer_llama.mjs tokenizer FOLDER
//
// The likeliest TOKENS tokens behind a context of CONTEXT others, keys and values in f16 as
// llama.cpp keeps them. Prints what bench/step.c prints; Node adds up to a millisecond to a token.
// `prompt`: so many times a prompt of LENGTH tokens; `batch`: TEXTS texts of TOKENS tokens side by side,
// five times; a time is that of one token of all of them. The last form gives a Hugging Face folder of drawn weights a tokenizer, without which llama.cpp
// opens no model: bytes, and words that stand for nothing. To be run from a folder with
// node_modules, as build-consumers, which scripts/test-consumers makes.
import fs from 'node:fs';
import { pathToFileURL } from 'node:url';

const [model, ...rest] = process.argv.slice(2);
if (model === 'tokenizer') {
    const folder = rest[0];
    const { vocab_size: size } = JSON.parse(fs.readFileSync(`${folder}/config.json`));
    const specials = ['<unk>', '<s>', '</s>'], vocab = {};
    for (let i = 0; i < size; i++) {
        const byte = i - specials.length;
        vocab[specials[i] ?? (byte < 256 ? `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>` : `\u2581word${i}`)] = i;
    }
    fs.writeFileSync(`${folder}/tokenizer.json`, JSON.stringify({
        version: '1.0', truncation: null, padding: null,
        added_tokens: specials.map((content, id) => ({
            id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true })),
        normalizer: { type: 'Sequence', normalizers: [
            { type: 'Prepend', prepend: '\u2581' },
            { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' }] },
        pre_tokenizer: null, post_processor: null,
        decoder: { type: 'Sequence', decoders: [
            { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
            { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] },
        model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null,
            end_of_word_suffix: null, fuse_unk: true, byte_fallback: true, vocab, merges: [] },
    }));
    fs.writeFileSync(`${folder}/tokenizer_config.json`,
        JSON.stringify({ bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' }));
    process.exit(0);
}
const { getLlama } = await import(pathToFileURL(`${process.cwd()}/node_modules/node-llama-cpp/dist/index.js`));
const mode = model === 'prompt' || model === 'batch' ? model : 'decode';
const path = mode === 'decode' ? model : rest.shift();
const [count, size, threads] = rest.map(Number); // size: context, length or texts
const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error', maxThreads: threads });
const loaded = await llama.loadModel({ modelPath: path });
const words = (n, first = 0) => Array.from({ length: n }, (_, i) => 3 + (((i + first) * 7919) % 1000));
const times = [];
// Tokens one by one behind a context.
async function decode() {
    const place = await loaded.createContext({ contextSize: size + count + 8, threads, sequences: 1 });
    let last, taken = 0;
    for await (const token of place.getSequence().evaluate(words(size), { temperature: 0, yieldEogToken: true })) {
        const now = performance.now();
        if (last) times.push(now - last);
        last = now;
        if (token === undefined || ++taken > count) break;
    }
}
// A prompt up to the first token behind it; one that does not count comes first.
async function prompt() {
    const place = await loaded.createContext({ contextSize: size + 8, batchSize: size, threads, sequences: 1 });
    const sequence = place.getSequence();
    for (let i = -1; i < count; i++) {
        await sequence.clearHistory();
        const start = performance.now();
        for await (const _ of sequence.evaluate(words(size, i + 1), { temperature: 0, yieldEogToken: true })) break;
        if (i >= 0) times.push(performance.now() - start);
    }
}
// All texts side by side, by the addon below `evaluate`, whose scheduler splits what is queued: a token is one
// batch of a token of each text. Which tokens they are is not chosen from logits, so choosing costs nothing here.
// The first token does not count.
async function batch() {
    const place = await loaded.createContext({ contextSize: count + 16, batchSize: size, threads, sequences: size });
    const inner = place._ctx, first = Uint32Array.of(0);
    inner.setThreads(threads);
    for (let round = 0; round < 5; round++) {
        for (let i = 0; i < size; i++) inner.disposeSequence(i);
        let start;
        for (let token = 0; token <= count; token++) {
            if (token === 1) start = performance.now();
            inner.initBatch(size);
            for (let i = 0; i < size; i++) inner.addToBatch(i, token, Uint32Array.from(words(1, i + token)), first);
            await inner.decodeBatch();
        }
        times.push((performance.now() - start) / count);
    }
}
await { decode, prompt, batch }[mode]();
times.sort((a, b) => a - b);
const peak = process.resourceUsage().maxRSS / 1024;
console.log(`median ${times[times.length >> 1].toFixed(3)} ms, best ${times[0].toFixed(3)} ms, peak ${peak.toFixed(0)} MB`);
await llama.dispose();
